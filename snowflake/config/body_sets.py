"""Body sets: files that name bodies in splits, such as train and test, so that two users compare the same thing.

``set:NAME/SPLIT`` stands for the bodies of a split wherever bodies are named; NAME is a shipped set
(``configs/bodies``) or the path of a YAML. ``set:NAME/SPLIT+mass=1.5`` changes each of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from agents.errors import UserError, nearest
from snowflake.config.files import config_root, read_yaml

PREFIX = "set:"
_SPLIT = re.compile(r"(?P<set>.+?)/(?P<split>[^/+]+)(?P<changes>(\+[a-z]+=.*)?)")


def set_names() -> tuple[str, ...]:
    """Return the names of the shipped sets, sorted: ``("ants", "centipedes", ...)``."""
    return tuple(sorted(path.stem for path in (config_root() / "bodies").glob("*.yaml")))


def read_set(name: str) -> dict[str, tuple[str, ...]]:
    """Return the splits of a set: ``{"train": ("centipede-4", ...), "test": (...)}``.

    Args:
        name: Shipped name, or path of a YAML whose keys are splits and whose values are lists of bodies.

    Raises:
        UserError: There is no such set, or the file holds something else.
    """
    names, path = set_names(), Path(name)
    if name in names:
        path = config_root() / "bodies" / f"{name}.yaml"
    elif path.suffix not in (".yaml", ".yml"):
        raise UserError(f"there is no body set {name!r}: {nearest(name, names)}")
    values, lines = read_yaml(path)
    for split, bodies in values.items():
        place = f"{path}:{lines[split]}"
        if not isinstance(bodies, list) or not bodies or not all(isinstance(body, str) for body in bodies):
            raise UserError(f"{place}: split {split!r} must be a list of bodies: write [centipede-4, centipede-6]")
        if twice := [body for body in bodies if bodies.count(body) > 1]:
            raise UserError(f"{place}: split {split!r} names {twice[0]!r} twice: name each body once")
        if nested := [body for body in bodies if body.startswith(PREFIX)]:
            raise UserError(f"{place}: {nested[0]!r} is a set in a set: name its bodies")
    return {split: tuple(bodies) for split, bodies in values.items()}


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
        splits = read_set(text)
        raise UserError(f"{name!r} names no split: write {PREFIX}{text}/SPLIT with one of {', '.join(splits)}")
    splits = read_set(match["set"])
    if match["split"] not in splits:
        hint = nearest(match["split"], tuple(splits))
        raise UserError(f"body set {match['set']!r} has no split {match['split']!r}: {hint}")
    return tuple(body + match["changes"] for body in splits[match["split"]])
