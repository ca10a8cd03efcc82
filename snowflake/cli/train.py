"""``snowflake train``: parse the config, check the bodies, start a run."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

import agents
from agents.errors import UserError
from snowflake.cli.parsing import parse, parse_known
from snowflake.config import TrainConfig, loader
from snowflake.config.networks import check_networks
from snowflake.run import Run

_PROG = "snowflake train"


@dataclass(frozen=True)
class _Presets:
    """The flags that decide the defaults of all others."""

    config: tuple[str, ...] = ()
    method: str | None = None


@dataclass(frozen=True)
class TrainFlags(TrainConfig):
    """Train a policy; defaults below are those of the chosen --method and --config."""

    agents: Annotated[tuple[str, ...], arg(aliases=("--model",), metavar="NAME [NAME ...]")] = TrainConfig.agents
    config: Annotated[tuple[str, ...], arg(metavar="NAME|PATH [...]")] = ()
    """Run configs, by shipped name (demo, centipede-6) or path to a YAML; later ones win, flags win over all."""
    run: Annotated[Path | None, arg(metavar="PATH")] = None
    """Run folder to create; without it, runs/<agents>__<method>__<seed>__<time>."""

    def __post_init__(self) -> None:
        """Check nothing: the sections check each other once all sources are merged."""


def parse_train(argv: Sequence[str]) -> tuple[TrainConfig, Path]:
    """Return the config and the run folder that the arguments of ``snowflake train`` ask for.

    Raises:
        agents.errors.UserError: A flag, config or body is wrong.
    """
    presets = parse_known(_Presets, argv, _PROG)
    if "--config" in argv and not presets.config:
        raise UserError("--config names no file: give shipped names or paths of YAMLs")
    layers = loader.preset_layers(presets.method, presets.config)
    defaults = loader.build(layers, TrainFlags)
    flags = parse(TrainFlags, argv, _PROG, default=defaults)
    config = loader.build([*layers, loader.Layer(loader.difference(flags, defaults))])
    check_networks(config.policy)
    check_bodies(config.agents)
    return config, flags.run or default_run_path(config)


def check_bodies(names: Sequence[str]) -> None:
    """Tell an unknown body, or two of one name, before torch is imported."""
    given: dict[str, str] = {}
    for name in names:
        body = agents.load(name).name
        if given.setdefault(body, name) != name:
            raise UserError(f"two bodies are called {body!r} ({given[body]} and {name}): rename one of the files")


def default_run_path(config: TrainConfig) -> Path:
    """Return ``runs/<agents>__<method>__<seed>__<time>``."""
    names = (re.sub(r"\.(xml|urdf)(?=\+|$)", "", Path(name).name) for name in config.agents)
    bodies = re.sub(r"[^\w.+=-]+", "-", "+".join(names))[:80]
    return Path("runs") / f"{bodies}__{config.method}__{config.seed}__{time.strftime('%Y%m%d-%H%M%S')}"


def closing_words(run: Run) -> str:
    """What to do with a finished run."""
    others = ("centipede-8", "centipede-12") if run.features == "paper" else ("ant", "walker2d", "humanoid")
    trained = {morphology.name for morphology in run.morphologies}
    targets = " ".join(name for name in others if name not in trained)
    path = shlex.quote(str(run.path))
    lines = [f"run folder: {path}", f"measure:    snowflake evaluate {path}"]
    if run.config.policy.network != "mlp":  # which is bound to its body
        lines.append(f"transfer:   snowflake transfer {path} --to {targets}")
    lines.append(f"curves:     tensorboard --logdir {shlex.quote(str(run.path.parent))}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    config, run_path = parse_train(argv)
    Run.check_free(run_path)
    from snowflake.ppo.train import train  # here, since it takes torch seconds to load

    print(closing_words(train(config, run_path, command=["snowflake", "train", *argv])))
    return 0
