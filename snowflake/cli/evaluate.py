"""``snowflake evaluate``: measure a trained policy on its own bodies; the flags and the ending of ``transfer`` too."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from agents.errors import UserError
from snowflake.cli.parsing import parse
from snowflake.files import check_no_file

if TYPE_CHECKING:
    from snowflake.evaluation.results import Result
    from snowflake.run import Run


PROGRESS_SECONDS = 15.0
"""Least time between two lines about the progress, where standard error is no terminal [s]."""


@dataclass(frozen=True, kw_only=True)
class EvaluationFlags:
    """Flags of every command that measures a trained policy."""

    checkpoint: Annotated[
        str | None, arg(metavar="best|last|STEP", help_behavior_hint="(default: best, else last)")
    ] = None
    """Which checkpoint."""
    episodes: int = 20
    """Episodes per body and way to act."""
    seed: int = 1000
    """Seed of the first start state; every way to act starts from SEED, SEED + 1, ..."""
    num_threads: int = 0
    """Threads of physics and torch; 0 takes the run's setting, or every core that the process may use."""
    precision: Annotated[str | None, arg(metavar="RECIPE", help_behavior_hint="(default: as trained)")] = None
    """Recipe that computes the policy's linear layers: fp32, bf16, fp8-amax, ..."""
    output: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: the run folder)")] = None
    """Folder of the results."""
    json: bool = False
    """Print the JSON instead of the tables."""

    def __post_init__(self) -> None:
        if self.checkpoint not in (None, "best", "last") and not str(self.checkpoint).isdecimal():
            raise UserError(f"--checkpoint {self.checkpoint}: write best, last or a number of steps")
        for flag, value, low, high in (
            ("episodes", self.episodes, 1, 100_000),
            ("seed", self.seed, 0, 2**31 - 1),
            ("num-threads", self.num_threads, 0, 1024),
        ):
            if not low <= value <= high:
                raise UserError(f"--{flag} {value}: must lie between {low} and {high}")
        check_no_file(self.output)


@dataclass(frozen=True, kw_only=True)
class EvaluateFlags(EvaluationFlags):
    """Measure a trained policy, beside zero action and random play, on the bodies it was trained on."""

    run: Annotated[Positional[str], arg(metavar="RUN")]
    """Run folder, or pretrained:NAME for a policy that ships with the package."""
    agents: Annotated[
        tuple[str, ...],
        arg(aliases=("--model",), metavar="NAME [NAME ...]", help_behavior_hint="(default: the run's own)"),
    ] = ()
    """Bodies; one that the run was not trained on is played zero-shot."""


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(EvaluateFlags, argv, "snowflake evaluate")
    from snowflake.evaluation.choice import choose_bodies
    from snowflake.evaluation.files import files_of, output_folder
    from snowflake.evaluation.fit import check_fit
    from snowflake.files import check_output

    run = find_run(flags.run, flags)
    bodies = choose_bodies(run, flags.agents) or None
    check_fit(run, bodies or ())
    check_output(output_folder(run.path, flags.output)[0], files_of("evaluation"))
    set_threads(run, flags)
    from snowflake.evaluation.report import evaluate_run

    with progress() as told:
        result = evaluate_run(
            run,
            flags.checkpoint,
            episodes=flags.episodes,
            seed=flags.seed,
            agents=bodies,
            num_threads=flags.num_threads or run.config.env.num_threads,
            command=shlex.join(["snowflake", "evaluate", *argv]),
            told=told,
        )
    finish(result, run, flags)
    return 0


def find_run(path: str, flags: EvaluationFlags) -> Run:
    """Open a run and check that checkpoint and recipe are there, before torch is imported.

    Raises:
        UserError: There is no such run, checkpoint or recipe.
    """
    from snowflake.run import Run

    run = Run.open(path).at_precision(flags.precision)
    run.find_checkpoint(flags.checkpoint)
    return run


def set_threads(run: Run, flags: EvaluationFlags) -> None:
    """Set torch's threads: with another number than in training sums may round differently in the last bits."""
    import torch

    from envs.physics import available_cores

    torch.set_num_threads(flags.num_threads or run.config.torch_threads or available_cores())


@contextlib.contextmanager
def status(seconds: float = PROGRESS_SECONDS) -> Iterator[Callable[[str], None]]:
    """Yield a function that says how far the work is: in place on a terminal, else as a line now and then.

    Args:
        seconds: Least time between two lines.
    """
    from rich.console import Console

    console = Console(file=sys.stderr)
    if console.is_terminal:
        with console.status("loading") as shown:
            yield shown.update
        return
    last = time.monotonic()

    def say(text: str) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= seconds:
            last = now
            print(text, file=sys.stderr, flush=True)

    yield say


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, str, int, int], None]]:
    """Yield a function that says which episodes are running: body, way to act, control step, episodes ended."""
    with status() as say:
        yield lambda body, way, step, ended: say(f"{body}, {way}: step {step}, {ended} episodes ended")


def finish(result: Result, run: Run, flags: EvaluationFlags) -> None:
    """Write the files, then print the tables (or the JSON) and where the files are."""
    from snowflake.evaluation.files import to_json
    from snowflake.evaluation.report import write_result
    from snowflake.evaluation.tables import print_result

    paths, note = write_result(result, run, flags.output)
    if flags.json:
        sys.stdout.write(to_json(result))
    else:
        print_result(result)
    # Kept off standard output, which with --json is to hold JSON alone.
    if note is not None:
        print(note, file=sys.stderr)
    print(written(paths), file=sys.stderr)


def written(paths: Sequence[Path]) -> str:
    """Say where the JSON, CSV and PNG of one name are, and any file of another."""
    stem = paths[0].with_suffix("")
    others = [str(path) for path in paths if path.with_suffix("") != stem]
    return ", ".join([f"wrote {stem}.json, .csv and .png", *others])
