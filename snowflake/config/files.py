"""Config files: where the shipped ones lie, and reading one YAML with the line of each key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from agents.errors import UserError, nearest

MAX_BYTES = 256_000
"""Largest config that is read; real ones have a few kilobytes."""
_MAX_DEPTH = 8


def config_root() -> Path:
    """Return the folder of the shipped configs: inside the installed package, else the checkout's ``configs/``."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def shipped_names() -> tuple[str, ...]:
    """Return the names under which ``--config`` finds the shipped runs, sorted: ``("centipede-6", "demo", ...)``."""
    return tuple(sorted(path.stem for path in config_root().glob("*.yaml")))


def method_names() -> tuple[str, ...]:
    """Return the names of the method presets, sorted: ``("mlp", "nervenet", ...)``."""
    return tuple(sorted(path.stem for path in (config_root() / "methods").glob("*.yaml")))


def method_path(name: str) -> Path:
    """Return the YAML of a method preset.

    Raises:
        UserError: No preset has that name; the message names the nearest.
    """
    names = method_names()
    if name not in names:
        raise UserError(f"method {name!r} does not exist: {nearest(name, names)}")
    return config_root() / "methods" / f"{name}.yaml"


def find_config(name: str | Path) -> Path:
    """Return the file of a config given by shipped name (``"demo"``) or by path (``"my/run.yaml"``).

    Raises:
        UserError: Neither a shipped name nor an existing path; the message names the nearest shipped ones.
    """
    return find_file(name, "config", config_root(), shipped_names())


def find_file(name: str | Path, what: str, folder: Path, names: tuple[str, ...]) -> Path:
    """Return ``folder/NAME.yaml`` for a name among ``names``, else the path that ``name`` is.

    Args:
        name: Shipped name, or path.
        what: What the file is, for the message.
        folder: Where the shipped ones lie.
        names: The shipped ones.

    Raises:
        UserError: Neither a shipped name nor an existing path; the message names the nearest shipped ones.
    """
    if isinstance(name, str) and name in names:
        return folder / f"{name}.yaml"
    path = Path(name)
    if not os.path.exists(path):
        raise UserError(f"{what} {str(name)!r} is neither a file nor a shipped {what}: {nearest(path.stem, names)}")
    return path


def read_yaml(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Read a YAML mapping with the safe loader.

    Args:
        path: A regular UTF-8 file of at most ``MAX_BYTES`` bytes.

    Returns:
        The nested values, and the line (from 1) of every key, by dotted path: ``{"env.n_envs": 3}``.

    Raises:
        UserError: It cannot be read, is no YAML mapping, or names a key twice; one line with file and line.
    """
    text = _read_text(path)
    lines: dict[str, int] = {}
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise UserError(f"{path}: holds no settings: write 'key: value' lines, for example 'seed: 1'")
        _collect_lines(root, (), lines, path)
        return dict(loader.construct_document(root)), lines
    except UserError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{path}{place}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise UserError(f"{path}: not valid YAML: {reason}") from None


def _read_text(path: Path) -> str:
    try:
        if os.path.isdir(path):
            raise UserError(f"{path}: is a folder: name a YAML file")
        if not os.path.isfile(path):
            raise UserError(f"{path}: is missing or no regular file: name a YAML file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UserError(f"{path}: is larger than {MAX_BYTES // 1000} kB: this is no config")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: is no UTF-8 text: name a YAML file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _collect_lines(node: yaml.MappingNode, prefix: tuple[str, ...], lines: dict[str, int], path: Path) -> None:
    """Fill ``lines`` and refuse what YAML lets pass: keys given twice, keys that are no words, merges."""
    if len(prefix) > _MAX_DEPTH:
        raise UserError(f"{path}:{node.start_mark.line + 1}: nested too deeply")
    for key_node, value_node in node.value:
        place = f"{path}:{key_node.start_mark.line + 1}"
        if key_node.tag == "tag:yaml.org,2002:merge":
            raise UserError(f"{place}: merge keys ('<<') are not supported: write the keys out")
        if key_node.tag != "tag:yaml.org,2002:str" or not isinstance(key_node, yaml.ScalarNode):
            raise UserError(f"{place}: a key must be a word, like 'seed'")
        key = ".".join((*prefix, key_node.value))
        if key in lines:
            raise UserError(f"{place}: {key} is given twice, first in line {lines[key]}: remove one")
        lines[key] = key_node.start_mark.line + 1
        if isinstance(value_node, yaml.MappingNode):
            _collect_lines(value_node, (*prefix, key_node.value), lines, path)
