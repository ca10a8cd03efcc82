"""``snowflake resume``: continue a run from its last checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from agents.errors import UserError
from snowflake.cli.parsing import parse
from snowflake.cli.train import closing_words
from snowflake.config.checks import check_device


@dataclass(frozen=True)
class ResumeFlags:
    """Continue a run from its last checkpoint, in the same folder."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder."""
    total_timesteps: Annotated[int | None, arg(metavar="INT")] = None
    """New total number of environment steps, counted from the start of the run; without it, the run's own."""

    device: str | None = None
    """Device to go on with: cpu, cuda, cuda:N; without it, as before. Elsewhere the run is no longer bit-exact."""
    precision: Annotated[str | None, arg(metavar="RECIPE")] = None
    """Recipe to go on with; without it, as before. Under another the run is no longer bit-exact."""
    torch_threads: int | None = None
    """Threads of the update; without it, as before. On the CPU the run stays bit-exact all the same."""
    num_threads: int | None = None
    """Physics threads; without it, as before."""

    def __post_init__(self) -> None:
        if self.total_timesteps is not None and self.total_timesteps < 1:
            raise UserError(f"--total-timesteps {self.total_timesteps}: must be at least 1")
        if self.device is not None:
            check_device(self.device)


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(ResumeFlags, argv, "snowflake resume")
    from snowflake.run import PRETRAINED, Run

    if str(flags.run).startswith(PRETRAINED):
        raise UserError(f"{flags.run} cannot be resumed, it holds an actor only: train a run of your own")
    run = Run.open(flags.run).at_precision(flags.precision)
    done = int(run.last_intact()[0].name[5:])  # a wrong folder is told here, before torch is imported
    end = run.config.total_timesteps
    if flags.total_timesteps is None and done >= end:
        print(f"{flags.run} is complete: {done:,} of {end:,} steps; --total-timesteps N goes on")
        return 0
    from snowflake.ppo.train import resume

    run = resume(
        flags.run,
        flags.total_timesteps,
        command=["snowflake", "resume", *argv],
        device=flags.device,
        precision=flags.precision,
        torch_threads=flags.torch_threads,
        num_threads=flags.num_threads,
    )
    print(closing_words(run))
    return 0
