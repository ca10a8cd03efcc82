"""``snowflake sweep``: train and measure every cell of a study, on this machine or on a Ray cluster."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from agents.errors import UserError, nearest
from snowflake.cli.parsing import parse

if TYPE_CHECKING:
    from snowflake.sweep.cells import Cell
    from snowflake.sweep.folder import SweepFolder


@dataclass(frozen=True)
class SweepFlags:
    """Train every variant of a study on all its bodies with all its seeds; what is done already is not run again."""

    study: Annotated[Positional[str], arg(metavar="STUDY")]
    """Study, by shipped name or path of a YAML."""
    output: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/<name of the study>)")] = None
    """Folder of the sweep; an existing one is continued."""
    jobs: Annotated[int, arg(help_behavior_hint="(default: one a core)")] = 0
    """Cells at a time on this machine."""
    ray_address: Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="(optional)")] = None
    """Run the cells on the Ray cluster at this address (auto finds it, local starts one here); DIR must lie on a file
    system that its nodes share."""
    time_limit: Annotated[float | None, arg(metavar="MINUTES", help_behavior_hint="(default: none)")] = None
    """Stop cleanly after this many minutes, with all running cells saved; the same command goes on later."""
    only: Annotated[tuple[str, ...] | None, arg(metavar="CELL [CELL ...]", help_behavior_hint="(default: all)")] = None
    """Cells to run, by name; --list shows the names."""
    list: bool = False
    """Show the cells and how far they are, and run nothing."""

    def __post_init__(self) -> None:
        if not 0 <= self.jobs <= 1024:
            raise UserError(f"--jobs {self.jobs}: must lie between 0 and 1024")
        if self.jobs and self.ray_address is not None:
            raise UserError("--jobs is for this machine alone: leave it out, the cluster's CPUs decide")
        if self.only is not None and not self.only:
            raise UserError("--only names no cell: --list shows the names")
        if self.time_limit is not None and not 0 < self.time_limit < 1e6:
            raise UserError(f"--time-limit {self.time_limit:g}: give minutes, above 0")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(SweepFlags, argv, "snowflake sweep")
    from snowflake.config.study import find_study, read_study
    from snowflake.sweep.cells import cells_of
    from snowflake.sweep.folder import SweepFolder

    path = find_study(flags.study)
    study = read_study(path)
    cells = chosen(cells_of(study, flags.study), flags.only)
    folder = SweepFolder(flags.output or Path("runs") / study.name)
    if not flags.list:
        folder.prepare(cells, path.read_text(encoding="utf-8"))
        codes = run(folder, cells, flags)
        problems = [
            f"{name}: {folder.last_words(name)}" for name, code in codes.items() if code in (1, 2, 4) or code < 0
        ]
        print("\n".join(["", *table(folder, cells), "", *(f"failed: {line}" for line in problems)]))
        print(f"figures and tables:  snowflake report {folder.path}")
        if problems:
            return 1
        return 0 if all(folder.done(cell.name) for cell in cells) else 130
    print("\n".join(table(folder, cells)))
    return 0


def chosen(cells: tuple[Cell, ...], only: tuple[str, ...] | None) -> tuple[Cell, ...]:
    """Return the cells whose names are in ``only``, or all.

    Raises:
        UserError: There is no cell of a name.
    """
    names = tuple(cell.name for cell in cells)
    for name in only or ():
        if name not in names:
            raise UserError(f"--only {name}: the study has no such cell: {nearest(name, names)}")
    return tuple(cell for cell in cells if not only or cell.name in only)


def run(folder: SweepFolder, cells: tuple[Cell, ...], flags: SweepFlags) -> dict[str, int]:
    """Run what is not done; returns the exit code of each cell that was tried."""
    from envs.physics import available_cores
    from snowflake.sweep.launch import run_local, run_on_ray

    names = [cell.name for cell in cells if not folder.done(cell.name)]
    skipped = len(cells) - len(names)
    print(f"{len(cells)} cells, {skipped} done before; folder {folder.path}", file=sys.stderr)
    seconds = None if flags.time_limit is None else 60 * flags.time_limit
    begin = time.monotonic()

    def told(name: str, what: str) -> None:
        state = folder.state(name)
        saved = "stopped, too early to save" if state == "not started" else f"stopped at {state}"
        words = {"started": "started", "0": "done", "130": saved, "3": "is being run elsewhere"}
        minutes = (time.monotonic() - begin) / 60
        print(f"{minutes:7.1f} min  {name}: {words.get(what, 'failed')}", file=sys.stderr, flush=True)

    if not names:
        return {}
    threads = max(cell.config.torch_threads for cell in cells)
    if flags.ray_address is not None:
        return run_on_ray(folder, names, threads, flags.ray_address, seconds, told)
    return run_local(folder, names, flags.jobs or max(1, available_cores() // threads), seconds, told)


def table(folder: SweepFolder, cells: tuple[Cell, ...]) -> list[str]:
    """One line a cell: its name, how far it is, and what came out."""
    width = max(len(cell.name) for cell in cells)
    lines = [f"{'cell':<{width}}  {'state':<14}  mean action return"]
    for cell in cells:
        returns = ""
        if folder.done(cell.name):
            bodies = folder.read_result(cell.name)["final"]["bodies"]
            values = [body["policies"]["mean_action"]["returns"] for body in bodies]
            returns = ", ".join(f"{sum(v) / len(v):.0f}" for v in values)
        lines.append(f"{cell.name:<{width}}  {folder.state(cell.name):<14}  {returns}")
    return lines
