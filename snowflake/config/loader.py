"""From YAML and command line to a `TrainConfig`: keys and types are checked against the dataclasses.

Precedence: dataclass defaults < ``configs/methods/<method>.yaml`` < run YAMLs, in order < overrides.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, TypeVar

import yaml

from agents.errors import UserError, nearest
from snowflake.config import attention_presets
from snowflake.config.body_sets import expand_sets
from snowflake.config.checks import EXPONENT_FORM, whole_number
from snowflake.config.files import find_config, method_path, read_yaml
from snowflake.config.policy import PolicyConfig
from snowflake.config.train import TrainConfig

ConfigT = TypeVar("ConfigT")
_KIND = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}


@dataclass(frozen=True)
class Layer:
    """Settings from one source, nested as in the YAML, keys and types checked."""

    values: dict[str, Any]
    """``{"seed": 1, "env": {"n_envs": 8}}``."""
    origin: dict[str, str] = field(default_factory=dict)
    """Where a key was set, by dotted path: ``{"env.n_envs": "demo.yaml:3"}``; empty for the command line."""


def resolve(
    method: str | None = None, configs: Sequence[str | Path] = (), overrides: Mapping[str, Any] | None = None
) -> TrainConfig:
    """Put a config together.

    Args:
        method: Method preset; ``None`` takes the last config's that names one, or the default.
        configs: Shipped names or paths of YAMLs; later ones win.
        overrides: Nested like a YAML: ``{"seed": 1, "env": {"n_envs": 8}}``; they win over all.

    Raises:
        UserError: A file, key, type or value is wrong; one line that names it, with the nearest valid key.
    """
    override = check_layer(overrides or {})
    return build([*preset_layers(override.values.get("method", method), configs), override])


def load(path: str | Path) -> TrainConfig:
    """Read a config written by `to_yaml`; no method preset is applied, missing keys take the dataclass defaults."""
    return build([read_layer(Path(path))])


def flat(config: TrainConfig) -> dict[str, Any]:
    """Return every setting by its dotted path: ``{"seed": 0, ..., "env.n_envs": 16, ...}``."""
    return dict(_leaves(dataclasses.asdict(config)))


def to_yaml(config: TrainConfig) -> str:
    """Return every field as YAML text that `load` reads back to an equal config."""
    return yaml.safe_dump(_plain(dataclasses.asdict(config)), sort_keys=False, allow_unicode=True, width=120)


def preset_layers(method: str | None, configs: Sequence[str | Path]) -> list[Layer]:
    """Return the layers below the command line: the method's preset, then the configs in order.

    A method that is asked for by name wins over what configs say of its keys: else `--method mlp` beside the config of
    another run would train that run's method under the name of mlp.
    """
    layers = [read_layer(find_config(name)) for name in configs]
    named = [layer for layer in layers if "method" in layer.values]
    origin, asked = "", method is not None
    if method is None:
        method = TrainConfig.method
        if named:
            method, origin = str(named[-1].values["method"]), named[-1].origin["method"]
    try:
        path = method_path(method)
    except UserError as error:
        raise UserError(f"{origin}: {error}" if origin else str(error)) from None
    preset = read_layer(path)
    return [*([] if asked else [preset]), *layers, *([preset] if asked else []), Layer({"method": method})]


def read_layer(path: Path) -> Layer:
    """Read and check one YAML file.

    Raises:
        UserError: It cannot be read, or a key or type is wrong.
    """
    values, lines = read_yaml(path)
    return check_layer(values, {key: f"{path}:{line}" for key, line in lines.items()})


def check_layer(values: Mapping[str, Any], origin: dict[str, str] | None = None) -> Layer:
    """Check keys and types of nested settings against `TrainConfig`; lists become tuples.

    Raises:
        UserError: An unknown key (with the nearest, or the section it belongs to) or a wrong type.
    """
    origin = origin or {}
    return Layer(_check_section(TrainConfig, values, "", origin), origin)


def build(layers: Sequence[Layer], cls: type[ConfigT] = TrainConfig) -> ConfigT:
    """Merge layers, later ones winning, and construct the config.

    Args:
        layers: From low to high precedence.
        cls: `TrainConfig`, or a subclass of it.

    Raises:
        UserError: A value is out of range; the message names where it was set.
    """
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for layer in layers:
        for key, value in _leaves(layer.values):
            *sections, name = key.split(".")
            target = merged
            for section in sections:
                target = target.setdefault(section, {})
            target[name] = value
            origin[key] = layer.origin.get(key, "")
    try:
        if "agents" in merged:
            merged["agents"] = _expand(merged["agents"])
        return _construct(cls, merged)
    except UserError as error:
        match = re.match(r"[a-z_.]+", str(error))
        place = origin.get(match.group(), "") if match else ""
        raise UserError(f"{place}: {error}" if place else str(error)) from None


def _expand(names: Sequence[str]) -> tuple[str, ...]:
    """Return the bodies with those of the sets in their places."""
    try:
        return expand_sets(names)
    except UserError as error:
        raise UserError(f"agents: {error}") from None


def difference(new: Any, old: Any) -> dict[str, Any]:
    """Return the `TrainConfig` fields in which two configs differ, as nested values of ``new``."""
    changed: dict[str, Any] = {}
    for name, hint in _hints(TrainConfig if isinstance(new, TrainConfig) else type(new)).items():
        ours, theirs = getattr(new, name), getattr(old, name)
        if dataclasses.is_dataclass(hint):
            if section := difference(ours, theirs):
                changed[name] = section
        elif ours != theirs or type(ours) is not type(theirs):
            changed[name] = ours
    return changed


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the evaluated annotation of every field of a config dataclass."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}


def _construct(cls: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    hints = _hints(cls)
    return cls(**{k: _construct(hints[k], v) if dataclasses.is_dataclass(hints[k]) else v for k, v in values.items()})


def _check_section(cls: type, values: Any, prefix: str, origin: Mapping[str, str]) -> dict[str, Any]:
    hints = _hints(cls)
    checked: dict[str, Any] = {}
    if cls is PolicyConfig:
        values = attention_presets.expand(values)
    for name, value in values.items():
        key = f"{prefix}{name}"
        place = f"{origin[key]}: " if key in origin else ""
        if name not in hints:
            raise UserError(f"{place}{key} is not a key: {_suggest(str(name), prefix, tuple(hints))}")
        if not dataclasses.is_dataclass(hints[name]):
            try:
                checked[name] = convert(value, hints[name])
            except UserError as error:
                raise UserError(f"{place}{key} {error}") from None
        elif value is None:  # a section whose keys are all commented out
            checked[name] = {}
        elif not isinstance(value, Mapping):
            keys = ", ".join(_hints(hints[name]))
            raise UserError(f"{place}{key} is a section: indent its keys below it ({keys})")
        else:
            checked[name] = _check_section(hints[name], value, f"{key}.", origin)
    return checked


def _suggest(name: str, prefix: str, siblings: tuple[str, ...]) -> str:
    """Say where an unknown key belongs: another section, or the nearest key of this one."""
    word = name.replace("-", "_")
    for key in _field_paths(TrainConfig):
        section, _, leaf = key.rpartition(".")
        if key == word and section:
            return f"write {leaf}: indented below {section}:"
        if leaf == word and f"{section}." != prefix and word not in siblings:
            return f"{leaf} belongs " + (f"in the section {section}:" if section else "at the top level")
    return nearest(word, siblings)


def _field_paths(cls: type, prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of every setting: ``"seed"``, ``"env.n_envs"``, ..."""
    for name, hint in _hints(cls).items():
        if dataclasses.is_dataclass(hint):
            yield from _field_paths(typing.cast(type, hint), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _leaves(values: Mapping[str, Any], cls: type = TrainConfig, prefix: str = "") -> Iterator[tuple[str, Any]]:
    hints = _hints(cls)
    for name, value in values.items():
        if dataclasses.is_dataclass(hints.get(name)):  # a setting that is itself a mapping is replaced as a whole
            yield from _leaves(value, hints[name], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _plain(value: Any) -> Any:
    """Return ``value`` with tuples as lists, which YAML can hold without a tag."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def convert(value: Any, hint: Any) -> Any:
    """Return ``value`` as the annotated type ``hint``.

    An ``int`` serves as ``float``, a whole ``float`` as ``int``, a list as a tuple, and ``"3e-4"`` and ``"1e6"``, which
    YAML 1.1 reads as text, as the number that they spell; a ``bool`` is no number.

    Args:
        value: As the YAML loader or a Python caller gave it.
        hint: ``int``, ``float``, ``bool``, ``str``, ``tuple[T, ...]``, ``dict[str, T]`` or ``T | None``.

    Raises:
        UserError: Another type; the message continues a sentence that begins with the key.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return convert(value, next(a for a in arguments if a is not type(None)))
    if origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise UserError(f"wants names and values, has {short_repr(value)}: write {{name: value}}")
        return {key: item if arguments[1] is Any else convert(item, arguments[1]) for key, item in value.items()}
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise UserError(f"wants a list, has {short_repr(value)}: write [{value if _is_scalar(value) else '...'}]")
        return tuple(convert(item, arguments[0]) for item in value)
    if type(value) is hint:
        return value
    if hint is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise UserError("is too large for a number") from None
    number = value
    if isinstance(value, str) and EXPONENT_FORM.fullmatch(value):
        if hint is int:
            with contextlib.suppress(ValueError):
                return whole_number(value)
        number = float(value)
    if hint is float and type(number) is float:
        return number
    if hint is int and type(value) is float and value.is_integer() and abs(value) < 1e15:
        return int(value)  # as YAML reads 1.0e+6
    advice = ": put it in quotes" if hint is str and _is_scalar(value) else ""
    raise UserError(f"wants {_KIND[hint]}, has {_spell(value)}{advice}")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool))


def _spell(value: Any) -> str:
    """Return ``value`` as YAML spells it, shortened."""
    return yaml.safe_dump(value).split("\n")[0] if value is None or isinstance(value, bool) else short_repr(value)
