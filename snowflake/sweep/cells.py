"""From a study to its cells: one training run each, with everything that it needs to be run anywhere."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

import yaml

import agents
from agents.errors import UserError
from snowflake.config import TrainConfig, loader
from snowflake.config.body_sets import expand_sets
from snowflake.config.networks import check_networks
from snowflake.config.study import StudyConfig
from snowflake.evaluation.bodies import load_bodies
from snowflake.files import read_text

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
        models: Hash of the compiled model of every body that is trained on, by name.
        transfer: Bodies that the policy is also played on; their hashes, by the names that the study gives them.
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
    models: dict[str, str]
    transfer: dict[str, str]
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
        values = yaml.safe_load(read_text(path))
        config = loader.build([loader.check_layer(values.pop("config"))])
        return cls(config=config, **values)

    def check_bodies(self) -> None:
        """Require that the bodies are still those that the cell was made for.

        Raises:
            UserError: A file was changed since.
        """
        for name, known in (*zip(self.config.agents, self.models.values(), strict=True), *self.transfer.items()):
            if agents.model_hash(agents.load(name).compile()) != known:
                raise UserError(
                    f"body {name!r} is not the one that cell {self.name} was made for: put the file back, or run the "
                    "study into another --output"
                )


def cells_of(study: StudyConfig, source: str) -> tuple[Cell, ...]:
    """Resolve every cell of a study, the seeds of one variant and body last, so that partial results compare.

    Torch and physics get one thread each where the study leaves it open: cells run side by side, and their numbers are
    then the same on every machine.

    Args:
        study: The study.
        source: What the user called it, name or path, for the cells' commands.

    Raises:
        UserError: A setting is out of range, a body is unknown, or two cells would have one name.
    """
    entries = [expand_sets(entry) for entry in study.agents]
    hashes = {name: agents.model_hash(agents.load(name).compile()) for name in dict.fromkeys(chain(*entries))}
    targets = {name: agents.model_hash(agents.load(name).compile()) for name in expand_sets(study.transfer)}
    load_bodies(tuple(targets))  # a body without a task, or two of one name
    cells: dict[str, Cell] = {}
    for seed, bodies, (variant, settings) in product(study.seeds, entries, study.variants.items()):
        cell = _cell(study, source, variant, settings, bodies, seed, hashes, targets)
        if cell.name in cells:
            raise UserError(
                f"two cells of study {study.name} would be called {cell.name}: name each list of bodies once, and "
                "rename files that share a name"
            )
        cells[cell.name] = cell
    return tuple(cells.values())


def _cell(
    study: StudyConfig,
    source: str,
    variant: str,
    settings: dict[str, Any],
    bodies: tuple[str, ...],
    seed: int,
    hashes: dict[str, str],
    targets: dict[str, str],
) -> Cell:
    overrides = {**settings, "agents": list(bodies), "seed": seed}
    if study.total_timesteps is not None:
        overrides = {"total_timesteps": study.total_timesteps, **overrides}
    try:
        config = loader.resolve(settings.get("method"), study.config, overrides)
        check_networks(config.policy, config.ppo)
        config.policy.check_bodies(config.agents)
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
        models={agents.load(name).name: hashes[name] for name in config.agents},
        transfer=targets,
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
