"""``snowflake transfer``: measure a trained policy, without training, on bodies that it never saw."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from agents.errors import UserError
from snowflake.cli.evaluate import EvaluationFlags, finish, open_run, progress
from snowflake.cli.parsing import parse


@dataclass(frozen=True, kw_only=True)
class TransferFlags(EvaluationFlags):
    """Play a policy zero-shot on other bodies, beside zero action and random play; its own bodies come first."""

    to: Annotated[
        tuple[str, ...], arg(aliases=("--agents",), metavar="NAME [NAME ...]", help_behavior_hint="(required)")
    ] = ()
    """Bodies to transfer to, for example centipede-8 centipede-12 centipede-6-crippled."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.to:
            raise UserError("--to is missing: name bodies, for example --to centipede-8 centipede-12")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(TransferFlags, argv, "snowflake transfer")
    from snowflake.evaluation.bodies import load_bodies

    bodies = load_bodies(flags.to)
    run = open_run(flags)
    from snowflake.evaluation.report import transfer_run

    with progress() as told:
        result = transfer_run(
            run,
            bodies,
            flags.checkpoint,
            episodes=flags.episodes,
            seed=flags.seed,
            num_threads=flags.num_threads or run.config.env.num_threads,
            command=shlex.join(["snowflake", "transfer", *argv]),
            told=told,
        )
    finish(result, run, flags)
    return 0
