"""``snowflake probe stability``: the largest stable learning rate of each way to write attention."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from agents.errors import UserError, nearest
from snowflake.cli.parsing import parse
from snowflake.config.probe import ProbeConfig
from snowflake.files import dump_json

if TYPE_CHECKING:
    from snowflake.probe.cells import ProbeCell
    from snowflake.probe.row import ProbeRow
    from snowflake.sweep.folder import SweepFolder

OPEN = 3
"""Exit code where the grid brackets no variant's limit, or not all."""

_PROG = "snowflake probe stability"


@dataclass(frozen=True)
class ProbeFlags:
    """Find the largest stable learning rate of each way to write attention; what is done already is not run again.

    Exit code 0: measured; 3: the grid does not bracket every limit, and the last lines say how to extend it.
    """

    probe: ProbeConfig = field(default_factory=ProbeConfig)
    quick: bool = False
    """Regression on a coarse grid: minutes on two cores. Other flags change it; their defaults are shown by --quick
    --help."""
    output: Annotated[Path, arg(metavar="DIR")] = Path("runs/stability")
    """Folder of the probe; an existing one is continued."""
    jobs: Annotated[int, arg(help_behavior_hint="(default: one a core)")] = 0
    """Runs at a time."""
    time_limit: Annotated[float | None, arg(metavar="MINUTES", help_behavior_hint="(default: none)")] = None
    """Stop cleanly after this many minutes; the same command goes on later."""

    def __post_init__(self) -> None:
        if not 0 <= self.jobs <= 1024:
            raise UserError(f"--jobs {self.jobs}: must lie between 0 and 1024")
        if self.time_limit is not None and not 0 < self.time_limit < 1e6:
            raise UserError(f"--time-limit {self.time_limit:g}: give minutes, above 0")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse_probe(argv)
    from snowflake.probe.cells import CellMaker
    from snowflake.sweep.folder import SweepFolder

    CellMaker(flags.probe)  # what is wrong with variants, bodies or settings, before anything runs
    folder = SweepFolder(flags.output)
    from snowflake.probe.files import write_all
    from snowflake.probe.stability import measure
    from snowflake.probe.text import advice, table

    runner = Runner(folder, flags)
    rows, complete = measure(flags.probe, runner)
    if not rows:
        raise UserError(f"no run came to its end{runner.why()}") if runner.failed else KeyboardInterrupt
    found = write_all(folder.path, flags.probe, rows, complete, shlex.join(["snowflake", "probe", *argv]))
    print("\n".join(["", *table(flags.probe, found), ""]))
    print(f"figures, stability.json, stability.csv:  {folder.path}")
    if runner.failed:
        print(f"failed{runner.why()}", file=sys.stderr)
        return 1
    if not complete:
        print("stopped before the end: the same command goes on", file=sys.stderr)
        return 130
    hints = advice(flags.probe, found)
    print("\n".join(hints), file=sys.stderr, end="\n" if hints else "")
    return OPEN if hints else 0


def parse_probe(argv: Sequence[str]) -> ProbeFlags:
    """Read the flags; ``--quick`` changes the defaults of the others.

    Raises:
        UserError: The kind of probe or a flag is wrong.
    """
    kind, *rest = argv or [""]
    if kind in ("-h", "--help"):
        kind, rest = "stability", ["--help"]
    if kind != "stability":
        raise UserError(f"snowflake probe {kind}: {nearest(kind, ('stability',))}" if kind else f"say {_PROG}")
    base = ProbeConfig.quick() if "--quick" in rest else ProbeConfig()
    return parse(ProbeFlags, rest, _PROG, default=ProbeFlags(base))


class Runner:
    """Runs the cells of a round in processes of their own, and reads the rows of those that are done.

    Args:
        folder: Where they lie.
        flags: How many at a time, and for how long.
    """

    def __init__(self, folder: SweepFolder, flags: ProbeFlags) -> None:
        self.folder, self.jobs = folder, flags.jobs
        self.settings = dump_json(asdict(flags.probe))
        self.begin = time.monotonic()
        self.seconds = None if flags.time_limit is None else 60.0 * flags.time_limit
        self.failed: list[str] = []

    def __call__(self, cells: list[ProbeCell]) -> list[ProbeRow]:
        """Run what is not done; returns the rows that are there afterwards."""
        from envs.physics import available_cores
        from snowflake.probe.pool import run_forked
        from snowflake.probe.row import read_row
        from snowflake.sweep.launch import run_local

        folder = self.folder
        folder.prepare(cells, self.settings)
        names = [cell.name for cell in cells if not folder.done(cell.name)]
        print(f"{len(cells)} runs, {len(cells) - len(names)} done before; folder {folder.path}", file=sys.stderr)
        left = None if self.seconds is None else self.seconds - (time.monotonic() - self.begin)
        self.done, self.total = 0, len(names)
        jobs = self.jobs or available_cores()
        if cells[0].objective == "bc":
            codes = run_forked(folder, names, jobs, left, self._told)
        else:
            codes = run_local(folder, names, jobs, left, self._told, module="snowflake.probe.worker")
        self.failed += [name for name, code in codes.items() if code in (1, 2) or code < 0]
        return [read_row(folder.result(cell.name)) for cell in cells if folder.done(cell.name)]

    def why(self) -> str:
        """The failed runs, with the last line of each one's log."""
        return "".join(f": {name}: {self.folder.last_words(name)}" for name in self.failed[:3])

    def _told(self, name: str, what: str) -> None:
        if what == "started":
            return
        self.done += 1
        minutes = (time.monotonic() - self.begin) / 60
        words = {"0": "done", "130": "stopped", "3": "is being run elsewhere"}.get(what, "failed")
        print(f"{minutes:7.1f} min  {self.done}/{self.total}  {name}: {words}", file=sys.stderr, flush=True)
