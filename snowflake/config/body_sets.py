"""Body sets: files that name bodies in splits, such as train and test, so that two users compare the same thing.

``set:NAME/SPLIT`` stands for the bodies of a split wherever bodies are named; NAME is a shipped set
(``configs/bodies``) or the path of a YAML. ``set:NAME/SPLIT+mass=1.5`` changes each of them. Paths of model files in a
set start from the folder of its YAML, so that a folder with a set and its robots can be passed on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.errors import UserError, nearest
from agents.files import SUFFIXES
from snowflake.config.files import config_root, read_yaml

PREFIX = "set:"
_SPLIT = re.compile(r"(?P<set>.+?)/(?P<split>[^/+]+)(?P<changes>(\+[a-z]+=.*|\+[a-z]+)?)")
_MODEL_FILE = re.compile(rf"({'|'.join(map(re.escape, SUFFIXES))})(\+|$)", re.IGNORECASE)


def set_names() -> tuple[str, ...]:
    """Return the names of the shipped sets, sorted: ``("ants", "centipedes", ...)``."""
    return tuple(sorted(path.stem for path in (config_root() / "bodies").glob("*.yaml")))


def read_set(name: str) -> dict[str, tuple[str, ...]]:
    """Return the splits of a set: ``{"train": ("centipede-4", ...), "test": (...)}``.

    Args:
        name: Shipped name, or path of a YAML whose keys are splits and whose values are lists of bodies. Paths of model
            files in it start from its folder.

    Raises:
        UserError: There is no such set, or one of its splits holds something else.
    """
    path, values, lines = _read(name)
    return {split: _split(path, split, values[split], lines[split]) for split in values}


def _read(name: str) -> tuple[Path, dict[str, Any], dict[str, int]]:
    """Return the file of a set, its unchecked splits and their lines."""
    names, path = set_names(), Path(name)
    if name in names:
        path = config_root() / "bodies" / f"{name}.yaml"
    elif path.suffix not in (".yaml", ".yml"):
        raise UserError(f"there is no body set {name!r}: {nearest(name, names)}")
    return path, *read_yaml(path)


def _split(path: Path, split: str, bodies: Any, line: int) -> tuple[str, ...]:
    """Check one split, and return its bodies."""
    place = f"{path}:{line}"
    if not isinstance(bodies, list) or not bodies or not all(isinstance(body, str) for body in bodies):
        raise UserError(f"{place}: split {split!r} must be a list of bodies: write [centipede-4, centipede-6]")
    if twice := [body for body in bodies if bodies.count(body) > 1]:
        raise UserError(f"{place}: split {split!r} names {twice[0]!r} twice: name each body once")
    if nested := [body for body in bodies if body.startswith(PREFIX)]:
        raise UserError(f"{place}: {nested[0]!r} is a set in a set: name its bodies")
    return tuple(_located(body, path.parent) for body in bodies)


def _located(body: str, folder: Path) -> str:
    """Take the relative path of a model file, varied or not, from the folder of the set; other bodies stay."""
    is_path = _MODEL_FILE.search(body) or "/" in body.partition("+")[0] or os.path.isfile(folder / body)
    if not is_path or body.startswith("~") or folder == Path():
        return body
    return os.path.join(folder, body)  # an absolute path stays as it is


def expand_sets(names: Sequence[str]) -> tuple[str, ...]:
    """Put the bodies of every ``set:NAME/SPLIT`` in its place; other names stay as they are.

    Raises:
        UserError: An unknown set or split; the message names the nearest.
    """
    return tuple(body for name in names for body in (_bodies(name) if name.startswith(PREFIX) else (name,)))


def _bodies(name: str) -> tuple[str, ...]:
    match = _SPLIT.fullmatch(name.removeprefix(PREFIX))
    text = name.removeprefix(PREFIX)
    if match is None or text.endswith((".yaml", ".yml")):
        _, splits, _ = _read(text)
        raise UserError(f"{name!r} names no split: write {PREFIX}{text}/SPLIT with one of {', '.join(splits)}")
    path, splits, lines = _read(match["set"])
    split = match["split"]
    if split not in splits:
        raise UserError(f"body set {match['set']!r} has no split {split!r}: {nearest(split, tuple(splits))}")
    # The other splits may be at fault: who asks for this one need not mend them.
    return tuple(body + match["changes"] for body in _split(path, split, splits[split], lines[split]))
