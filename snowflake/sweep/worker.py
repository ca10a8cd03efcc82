"""The process of one cell: ``python -m snowflake.sweep.worker FOLDER CELL [--time-limit S]``.

Trains the cell's run, or continues it from its last checkpoint, measures it and writes the row. It dies with the
process that started it, whose end closes its standard input.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agents.errors import UserError
from snowflake.files import dump_json, write_atomic
from snowflake.locks import Busy
from snowflake.run import Run
from snowflake.sweep.cells import Cell
from snowflake.sweep.folder import SweepFolder

if TYPE_CHECKING:
    from snowflake.evaluation.results import Result

DONE, FAILED, USER_ERROR, BUSY, BAD_NUMBERS, STOPPED = 0, 1, 2, 3, 4, 130
"""Exit codes."""


def run_cell(folder: SweepFolder, name: str) -> None:
    """Bring a cell to its row, from wherever it stands.

    Raises:
        Busy: Another process is at it.
        UserError: The config or a body is refused, or training diverged.
        KeyboardInterrupt: A signal stopped the training, saved.
    """
    with folder.locked(name):
        if folder.done(name):
            return
        cell = Cell.read(folder.cell_file(name))
        cell.check_bodies()
        started, before = time.monotonic(), max(_trained(folder.run(name)), 0)
        try:
            run = _train(folder, cell)
            write_atomic(folder.result(name), dump_json(_measured(cell, run), indent=None))
        finally:
            folder.add_timing(name, time.monotonic() - started, _trained(folder.run(name)) - before)


def _train(folder: SweepFolder, cell: Cell) -> Run:
    from snowflake.ppo.train import resume, train

    path = folder.run(cell.name)
    done = _trained(path)
    if path.exists() and done < 0:  # killed before the first checkpoint, at step 0
        shutil.rmtree(path)
    if not path.exists():
        return train(cell.config, path, command=shlex.split(cell.command))
    return resume(path) if done < cell.config.total_timesteps else Run.open(path)


def _trained(path: Path) -> int:
    """Environment steps at the last checkpoint; -1 without one."""
    if not (path / "config.yaml").exists():
        return -1
    steps = Run.open(path).index()
    return steps.get("last", -1)


def _measured(cell: Cell, run: Run) -> dict:
    import torch

    from snowflake.sweep.row import make_row

    torch.set_num_threads(cell.config.torch_threads)
    policy = run.load_policy(cell.checkpoint)
    return make_row(cell, run, policy, _result(cell, run))


def _result(cell: Cell, run: Run) -> Result:
    from snowflake.evaluation.bodies import load_bodies
    from snowflake.evaluation.extras import Extras
    from snowflake.evaluation.report import evaluate_run, transfer_run

    options = {
        "episodes": cell.episodes,
        "seed": cell.evaluation_seed,
        "num_threads": cell.config.env.num_threads,
        "command": cell.command,
    }
    others = [b for b in load_bodies(tuple(cell.transfer)) if run.own_index(b) is None]
    if not others:
        return evaluate_run(run, cell.checkpoint, **options)
    # Flat policies too, mapped by node class and column, so that every row has the same bodies.
    return transfer_run(run, others, cell.checkpoint, extras=Extras(mlp_transfer=True), **options)


def _die_with_parent() -> None:
    """Kill this process once its standard input is closed, as it is when the process that started it ends."""

    def wait() -> None:
        while os.read(0, 1):  # sys.stdin's lock, held here, would trouble the interpreter at its end
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def _stop_after(seconds: float) -> None:
    """Send this process the signal that ends training after the current update, saved."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()


def main(argv: list[str] | None = None, run: Callable[[SweepFolder, str], None] = run_cell) -> int:
    """Run one cell with ``run``; returns one of the exit codes above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cell")
    parser.add_argument("--time-limit", type=float, default=None, metavar="SECONDS")
    flags = parser.parse_args(argv)
    _die_with_parent()
    if flags.time_limit is not None:
        _stop_after(flags.time_limit)
    try:
        run(SweepFolder(flags.folder), flags.cell)
    except Busy:
        return BUSY
    except KeyboardInterrupt:
        return STOPPED
    except UserError as error:
        print(f"snowflake: error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return error.exit_code
    return DONE


if __name__ == "__main__":
    sys.exit(main())
