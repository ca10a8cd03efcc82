"""``snowflake finetune``: go on training a policy on other bodies, and compare it with training from scratch."""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

import agents
from agents.errors import UserError
from snowflake.cli.parsing import parse
from snowflake.cli.train import TrainFlags, batch_note, closing_words, default_run_path
from snowflake.config import TrainConfig, loader
from snowflake.config.files import find_config
from snowflake.config.networks import check_networks, component_names

if TYPE_CHECKING:
    from snowflake.run import Run

_PROG = "snowflake finetune"


@dataclass(frozen=True, kw_only=True)
class FinetuneFlags(TrainFlags):
    """Go on training the actor of RUN on other bodies, with a fresh critic.

    What no flag says is as in RUN, whatever default is shown below.
    """

    source: Annotated[Positional[str], arg(metavar="RUN", help_behavior_hint="(required)")] = ""
    """Run folder, or pretrained:NAME for a policy that ships with the package."""
    agents: Annotated[
        tuple[str, ...], arg(aliases=("--model",), metavar="NAME [NAME ...]", help_behavior_hint="(required)")
    ] = ()
    """Bodies to train on."""
    checkpoint: Annotated[
        str | None, arg(metavar="best|last|STEP", help_behavior_hint="(default: best, else last)")
    ] = None
    """Which checkpoint of RUN."""
    train: Annotated[tuple[str, ...], arg(metavar="all|same|COMPONENT [...]")] = ("same",)
    """Actor components that learn, the others stay as they are: all, same (as in RUN), or names."""
    reset_log_std: Annotated[float | None, arg(metavar="VALUE")] = None
    """New log standard deviation of the actions: a policy that has converged explores little."""
    from_scratch: bool = False
    """Train the same config with new weights: the run to compare with."""
    compare: Annotated[Path | None, arg(metavar="RUN2")] = None
    """Print steps to reach given returns beside those of RUN2, trained from scratch; without --agents, of RUN as is."""
    returns: Annotated[tuple[float, ...], arg(metavar="RETURN [...]")] = ()
    """Returns to reach with --compare; 25, 50, 75 and 90 % of RUN2's best evaluation if none."""


def parse_finetune(argv: Sequence[str]) -> tuple[FinetuneFlags, TrainConfig, tuple[agents.Morphology, ...]]:
    """Return the flags, and the config and bodies to train; no bodies if runs are to be compared only.

    Raises:
        agents.errors.UserError: A flag, config, body or run is wrong.
    """
    from snowflake.ppo.finetune import base_settings, check_bodies, check_fits, check_train, check_warmup, load_bodies
    from snowflake.run import Run

    asked = parse(FinetuneFlags, argv, _PROG)
    _check(asked)
    source = Run.open(asked.source)
    source.find_checkpoint(asked.checkpoint)
    if not asked.agents:
        return asked, source.config, ()
    bodies = load_bodies(source, asked.agents)
    check_bodies(source, bodies)
    if components := component_names("actor", source.config.policy.network):
        check_train(asked.train, components)
    layers = [loader.Layer(base_settings(source, bodies) | {"agents": asked.agents})]
    layers += [loader.read_layer(find_config(name)) for name in asked.config]
    defaults = loader.build(layers, FinetuneFlags)
    flags = parse(FinetuneFlags, argv, _PROG, default=dataclasses.replace(defaults, source=asked.source))
    changes = {**loader.difference(flags, defaults), "agents": asked.agents}
    config = loader.build([*layers, loader.Layer(changes)])
    check_fits(source, config)
    check_networks(config.policy, config.ppo)
    config.policy.check_bodies(config.agents)
    if not flags.from_scratch:
        check_warmup(config)
    return flags, config, bodies


def _check(flags: FinetuneFlags) -> None:
    """Check what the command asks for, before anything is opened."""
    if not flags.source:
        raise UserError("RUN is missing: snowflake finetune RUN --agents NAME, where RUN is a run folder")
    if not flags.agents and flags.compare is None:
        raise UserError("--agents is missing: name the bodies to train on, for example --agents centipede-8")
    if flags.from_scratch and flags.reset_log_std is not None:
        raise UserError("--from-scratch carries nothing over: leave out --reset-log-std, or say --log-std-init")
    if flags.from_scratch and flags.compare is not None:
        raise UserError(
            "--compare is for the finetuned run, --from-scratch makes the run to compare it with: leave one out"
        )
    if flags.reset_log_std is not None and not -20.0 <= flags.reset_log_std <= 2.0:
        raise UserError(f"--reset-log-std {flags.reset_log_std:g}: must lie between -20 and 2")
    if wrong := [value for value in flags.returns if not math.isfinite(value)]:
        raise UserError(f"--returns {wrong[0]}: give finite numbers")
    if flags.returns and flags.compare is None:
        raise UserError("--returns says what to reach with --compare RUN2, which is missing")
    if flags.checkpoint not in (None, "best", "last") and not str(flags.checkpoint).isdigit():
        raise UserError(f"--checkpoint {flags.checkpoint}: write best, last or a number of steps")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags, config, bodies = parse_finetune(argv)
    from snowflake.evaluation.sample_efficiency import open_reference
    from snowflake.run import Run

    if not bodies:
        run = Run.open(flags.source)
        _report(run, flags)
        return 0
    label = "scratch" if flags.from_scratch else "finetune"
    run_path = flags.run or default_run_path(dataclasses.replace(config, method=f"{config.method}-{label}"))
    Run.check_free(run_path)
    if flags.compare is not None:  # before hours of training, not after
        open_reference(flags.compare, bodies, config, flags.returns)
    if note := batch_note(config):
        print(note, file=sys.stderr)
    from snowflake.ppo.finetune import finetune

    run = finetune(
        flags.source,
        config,
        run_path,
        bodies,
        checkpoint=flags.checkpoint,
        train=flags.train,
        reset_log_std=flags.reset_log_std,
        from_scratch=flags.from_scratch,
        command=["snowflake", "finetune", *argv],
    )
    print(closing_words(run))
    if flags.compare is not None:
        _report(run, flags)
    elif not flags.from_scratch:
        print(f"compare:    snowflake finetune {shlex.quote(str(run.path))} --compare RUN_FROM_SCRATCH")
    return 0


def _report(run: Run, flags: FinetuneFlags) -> None:
    """Print the comparison with the run from scratch and write it beside the run."""
    from snowflake.evaluation import sample_efficiency

    assert flags.compare is not None
    scratch = sample_efficiency.open_reference(flags.compare, run.morphologies, run.config, flags.returns)
    result = sample_efficiency.compare(run, scratch, flags.returns)
    print(sample_efficiency.text(result))
    print(f"wrote {sample_efficiency.write(result, run.path)}")
