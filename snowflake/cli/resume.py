"""``snowflake resume``: continue a run from its last checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from agents.errors import UserError
from snowflake.cli.parsing import parse
from snowflake.cli.train import closing_words


@dataclass(frozen=True)
class ResumeFlags:
    """Continue a run from its last checkpoint, in the same folder."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder."""
    total_timesteps: Annotated[int | None, arg(metavar="INT")] = None
    """New total number of environment steps, counted from the start of the run; without it, the run's own."""

    def __post_init__(self) -> None:
        if self.total_timesteps is not None and self.total_timesteps < 1:
            raise UserError(f"--total-timesteps {self.total_timesteps}: must be at least 1")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(ResumeFlags, argv, "snowflake resume")
    from snowflake.run import Run

    Run.open(flags.run).find_checkpoint("last")  # a wrong folder is told here, before torch is imported
    from snowflake.ppo.train import resume

    print(closing_words(resume(flags.run, total_timesteps=flags.total_timesteps)))
    return 0
