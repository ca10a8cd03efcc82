"""A study: variants x bodies x seeds of one training config, for ``snowflake sweep``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from agents.errors import UserError, nearest
from snowflake.config.checks import check_choice, check_range
from snowflake.config.files import config_root, find_file, read_yaml
from snowflake.config.loader import check_layer, convert

_NAME = re.compile(r"[\w.+-]{1,60}")


@dataclass(frozen=True)
class StudyConfig:
    """What `snowflake sweep` trains: every variant on every entry of `agents` with every seed."""

    name: str
    """Name of the study, and of its folder below runs/."""
    config: tuple[str, ...] = ()
    """Run configs below everything else, as for train --config."""
    total_timesteps: int | None = None
    """Environment steps of every cell; the configs' if not given."""
    agents: tuple[tuple[str, ...], ...] = (("centipede-6",),)
    """One entry a cell: the bodies that are trained together."""
    seeds: tuple[int, ...] = (0,)
    """Seeds; one cell each."""
    variants: dict[str, dict[str, Any]] = field(default_factory=lambda: {"snowflake": {"method": "snowflake"}})
    """Settings by the name of the variant, nested as in a run config; `method` picks the preset."""
    transfer: tuple[str, ...] = ()
    """Bodies that every trained policy is also played on, without training."""
    checkpoint: str = "last"
    """Which checkpoint is measured: last, or best (by the evaluations during training)."""
    episodes: int = 20
    """Episodes per body and way to act."""
    evaluation_seed: int = 1000
    """Seed of the first start state."""

    def __post_init__(self) -> None:
        for what, names in (("name", [self.name]), ("variants", list(self.variants))):
            for name in names:
                if not _NAME.fullmatch(name):
                    raise UserError(f"{what} {name!r}: use up to 60 letters, digits, '.', '_', '+' and '-'")
        for what, entries in (("agents", self.agents), ("seeds", self.seeds), ("variants", tuple(self.variants))):
            if not entries:
                raise UserError(f"{what} is empty: give at least one")
            if len(set(entries)) < len(entries):
                raise UserError(f"{what} names something twice: name each once")
        check_choice("", "checkpoint", self.checkpoint, ("last", "best"))
        check_range("", "episodes", self.episodes, 1, 100_000)
        check_range("", "evaluation_seed", self.evaluation_seed, 0, 2**31 - 1)


def study_names() -> tuple[str, ...]:
    """Return the names of the shipped studies, sorted."""
    return tuple(sorted(path.stem for path in (config_root() / "studies").glob("*.yaml")))


def find_study(name: str) -> Path:
    """Return the file of a study given by shipped name or by path.

    Raises:
        UserError: Neither; the message names the nearest shipped ones.
    """
    return find_file(name, "study", config_root() / "studies", study_names())


def read_study(path: Path) -> StudyConfig:
    """Read a study; keys, types and the settings of every variant are checked.

    Raises:
        UserError: The file cannot be read, or a key, type or value is wrong; one line with file and line.
    """
    values, lines = read_yaml(path)
    origin = {key: f"{path}:{line}" for key, line in lines.items()}
    hints = get_type_hints(StudyConfig)
    checked: dict[str, Any] = {"name": path.stem}
    for key, value in values.items():
        place = origin[key]
        if key not in hints:
            raise UserError(f"{place}: {key} is not a key of a study: {nearest(key, tuple(hints))}")
        try:
            checked[key] = _CONVERT[key](value) if key in _CONVERT else convert(value, hints[key])
        except UserError as error:
            raise UserError(f"{place}: {key} {error}") from None
    checked["variants"] = {
        name: _variant(name, settings, origin)
        for name, settings in checked.get("variants", {"snowflake": {"method": "snowflake"}}).items()
    }
    try:
        return StudyConfig(**checked)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _variant(name: str, settings: Any, origin: Mapping[str, str]) -> dict[str, Any]:
    """Check the settings of a variant as a run config; return them nested, tuples for lists."""
    prefix = f"variants.{name}."
    if not isinstance(settings, Mapping):
        raise UserError(f"{origin[prefix[:-1]]}: variant {name} is a section: indent its settings below it")
    own = {key.removeprefix(prefix): place for key, place in origin.items() if key.startswith(prefix)}
    for key in ("agents", "seed"):
        if key in settings:
            raise UserError(f"{own[key]}: {key} belongs to the study, not to a variant: cells differ in it already")
    return check_layer(settings, own).values


def _agents(value: Any) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list):
        raise UserError("wants a list of bodies, or of lists of bodies that are trained together")
    return tuple(convert([entry] if isinstance(entry, str) else entry, tuple[str, ...]) for entry in value)


def _variants(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError("is a section: indent the names of the variants below it, their settings below each")
    return dict(value)


_CONVERT = {"agents": _agents, "variants": _variants}
