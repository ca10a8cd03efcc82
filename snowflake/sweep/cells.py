"""From a study to its cells: one training run each, with everything that it needs to be run anywhere."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import agents
from agents.errors import UserError
from snowflake.config import TrainConfig, loader
from snowflake.config.body_sets import expand_sets
from snowflake.config.study import StudyConfig

MAX_BODIES_NAME = 80
"""Longest part of a cell's name that spells its bodies out."""


@dataclass(frozen=True)
class Cell:
    """One training run of a study, and how it is measured.

    Attributes:
        name: ``VARIANT__BODIES__seedN``, unique in the study.
        study: Name of the study.
        variant: Name of the variant.
        overrides: The variant's settings, as the study gives them.
        config: The resolved training config.
        transfer: Bodies that the policy is also played on.
        checkpoint: Which checkpoint is measured.
        episodes: Episodes per body and way to act.
        evaluation_seed: Seed of the first start state.
        command: The command that runs this cell alone.
    """

    name: str
    study: str
    variant: str
    overrides: dict[str, Any]
    config: TrainConfig
    transfer: tuple[str, ...]
    checkpoint: str
    episodes: int
    evaluation_seed: int
    command: str

    def to_yaml(self) -> str:
        """Return the cell as YAML text, for `Cell.read`; config values as `config.yaml` of a run folder has them."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["config"] = yaml.safe_load(loader.to_yaml(self.config))
        values["overrides"] = _plain(self.overrides)
        return yaml.safe_dump(_plain(values), sort_keys=False, allow_unicode=True, width=120)

    @classmethod
    def read(cls, path: Path) -> Cell:
        """Read what `to_yaml` wrote."""
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        config = loader.build([loader.check_layer(values.pop("config"))])
        return cls(config=config, transfer=tuple(values.pop("transfer")), **values)


def cells_of(study: StudyConfig, source: str) -> tuple[Cell, ...]:
    """Resolve every cell of a study, the seeds of one variant and body last, so that partial results compare.

    Torch and physics get one thread each where the study leaves it open: cells run side by side, and their numbers are
    then the same on every machine.

    Args:
        study: The study.
        source: What the user called it, name or path, for the cells' commands.

    Raises:
        UserError: A setting is out of range, or a body is unknown.
    """
    cells = []
    study = dataclasses.replace(study, agents=tuple(expand_sets(entry) for entry in study.agents))
    for name in (name for entry in study.agents for name in entry):
        agents.load(name)
    for seed in study.seeds:
        for bodies in study.agents:
            for variant, settings in study.variants.items():
                cells.append(_cell(study, source, variant, settings, bodies, seed))
    return tuple(cells)


def _cell(
    study: StudyConfig, source: str, variant: str, settings: dict[str, Any], bodies: tuple[str, ...], seed: int
) -> Cell:
    overrides = {**settings, "agents": list(bodies), "seed": seed}
    if study.total_timesteps is not None:
        overrides = {"total_timesteps": study.total_timesteps, **overrides}
    try:
        config = loader.resolve(settings.get("method"), study.config, overrides)
    except UserError as error:
        raise UserError(f"variant {variant} of study {study.name}: {error}") from None
    config = dataclasses.replace(
        config,
        torch_threads=config.torch_threads or 1,
        env=dataclasses.replace(config.env, num_threads=config.env.num_threads or 1),
    )
    name = f"{variant}__{_bodies_name(config.agents)}__seed{seed}"
    return Cell(
        name=name,
        study=study.name,
        variant=variant,
        overrides=settings,
        config=config,
        transfer=study.transfer,
        checkpoint=study.checkpoint,
        episodes=study.episodes,
        evaluation_seed=study.evaluation_seed,
        command=f"snowflake sweep {shlex.quote(source)} --only {name}",
    )


def _bodies_name(names: tuple[str, ...]) -> str:
    """Return the bodies as part of a file name: spelt out, or the first, their number and a hash."""
    short = "+".join(agents.load(name).name for name in names)
    if len(short) <= MAX_BODIES_NAME:
        return short
    digest = hashlib.sha256("+".join(names).encode()).hexdigest()[:8]
    return f"{agents.load(names[0]).name[:40]}+{len(names) - 1}-more-{digest}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value
