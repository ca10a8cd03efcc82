"""``snowflake train``: parse the config, check the bodies, start a run."""

from __future__ import annotations

import itertools
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

import agents
from agents.errors import UserError
from snowflake.body_files import check_names
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
    preset: str | None = None
    attn_variant: str | None = None

    def shorthand(self) -> loader.Layer:
        """Return the settings that the names of a published system and of a stability method stand for."""
        policy: dict[str, Any] = {} if self.preset is None else {"preset": self.preset}
        if self.attn_variant is not None:
            policy["attention"] = {"variant": self.attn_variant}
        return loader.check_layer({"policy": policy})


@dataclass(frozen=True)
class TrainFlags(TrainConfig):
    """Train a policy; defaults below are those of the chosen --method and --config."""

    agents: Annotated[tuple[str, ...], arg(aliases=("--model",), metavar="NAME [NAME ...]")] = TrainConfig.agents
    config: Annotated[tuple[str, ...], arg(metavar="NAME|PATH [...]")] = ()
    """Run configs, by shipped name (demo, centipede-6) or path to a YAML; later ones win, flags win over all."""
    run: Annotated[Path | None, arg(metavar="PATH")] = None
    """Run folder to create; without it, runs/<agents>__<method>__<seed>__<time>."""
    preset: Annotated[str | None, arg(metavar="NAME")] = None
    """Published limb transformer whose settings to start from: amorpheus, metamorph, metamorph_star, modumorph,
    bot_hard or bot_mix (docs/attention.md says what each leaves out)."""
    attn_variant: Annotated[str | None, arg(metavar="NAME")] = None
    """Stability method: none, soft_temp, soft_cap, soft_clip, layerscale, qk, qk_cap, qkv or qk_fc."""

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
    layers = [*loader.preset_layers(presets.method, presets.config), presets.shorthand()]
    defaults = loader.build(layers, TrainFlags)
    flags = parse(TrainFlags, argv, _PROG, default=defaults)
    config = loader.build([*layers, loader.Layer(loader.difference(flags, defaults))])
    check_config(config)
    return config, flags.run or default_run_path(config)


def check_config(config: TrainConfig) -> None:
    """Tell all that can be told before torch is imported, which takes seconds.

    Raises:
        agents.errors.UserError: A network, component or body is unknown, or they do not go together.
    """
    check_networks(config.policy, config.ppo)
    check_names([agents.load(name) for name in config.agents], config.agents)
    config.policy.check_bodies(config.agents)


def default_run_path(config: TrainConfig) -> Path:
    """Return ``runs/<agents>__<method>__<seed>__<time>``."""
    names = (re.sub(r"\.(xml|urdf)(?=\+|$)", "", Path(name).name) for name in config.agents)
    bodies = re.sub(r"[^\w.+=-]+", "-", "+".join(names))[:80]
    return Path("runs") / f"{bodies}__{config.method}__{config.seed}__{time.strftime('%Y%m%d-%H%M%S')}"


def closing_words(run: Run) -> str:
    """What to do with a finished run."""
    path = shlex.quote(str(run.path))
    lines = [f"run folder: {path}", f"measure:    snowflake evaluate {path}"]
    if run.config.policy.network != "mlp":  # which is bound to its body
        lines.append(f"transfer:   snowflake transfer {path} --to {' '.join(new_bodies(run))}")
    lines.append(f"curves:     tensorboard --logdir {shlex.quote(str(run.path.parent))}")
    return "\n".join(lines)


def new_bodies(run: Run) -> tuple[str, str]:
    """Names of two bodies that the policy of a run can play and was never trained on."""
    known = {*run.earlier_bodies, *(morphology.name for morphology in run.morphologies)}
    first = ("centipede-8", "centipede-12") if run.features == "paper" else ("ant", "walker2d", "humanoid", "hopper")
    more = (f"centipede-{legs}" for legs in itertools.count(4, 2))
    names = (name for name in itertools.chain(first, (n for n in more if n not in first)) if name not in known)
    return next(names), next(names)


def batch_note(config: TrainConfig) -> str | None:
    """One line where minibatches do not divide a rollout; None where they do, or rollouts have no fixed length."""
    size, total = config.ppo.batch_size, config.ppo.n_steps * config.env.n_envs
    if config.policy.memory != "none":
        envs = min(max(1, size // config.ppo.n_steps), config.env.n_envs)
        if envs * config.ppo.n_steps == size:
            return None
        return (
            f"note: --memory {config.policy.memory} takes whole environments as minibatches, {envs} of --n-steps "
            f"{config.ppo.n_steps}: {envs * config.ppo.n_steps} transitions for --batch-size {size}"
        )
    if total % size == 0 or config.ppo.collection != "fixed":
        return None
    rollout = f"n_steps x n_envs = {config.ppo.n_steps} x {config.env.n_envs} = {total}"
    rest = f"the last minibatch of each epoch has {total % size} transitions"
    return f"note: --batch-size {size} does not divide {rollout}: {rest}"


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    config, run_path = parse_train(argv)
    Run.check_free(run_path)
    if note := batch_note(config):
        print(note, file=sys.stderr)
    from snowflake.ppo.train import train  # here, since it takes torch seconds to load

    print(closing_words(train(config, run_path, command=["snowflake", "train", *argv])))
    return 0
