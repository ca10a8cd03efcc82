"""Runs cells that are shorter than the import of torch: each in a process of its own, forked from one that has it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from agents.errors import UserError
from snowflake.locks import Busy
from snowflake.sweep.folder import SweepFolder
from snowflake.sweep.launch import Told, first_signal
from snowflake.sweep.worker import BUSY, FAILED, STOPPED, USER_ERROR

PRELOADED = ("snowflake.probe.worker", "snowflake.probe.regression", "torch._dynamo")
"""What every cell imports; the last by its optimiser."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run_forked(
    folder: SweepFolder, names: Sequence[str], jobs: int, time_limit: float | None, told: Told
) -> dict[str, int]:
    """Run cells as `snowflake.sweep.launch.run_local` does; what is stopped halfway begins anew the next time."""
    end = None if time_limit is None else time.monotonic() + time_limit
    for name in THREAD_VARIABLES:  # cells run side by side
        os.environ.setdefault(name, "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    waiting, running, codes = list(names), {}, {}
    with first_signal("stopping: running cells begin anew the next time") as stopped:
        while running or waiting:
            if stopped() or (end is not None and time.monotonic() >= end):
                for process in running.values():
                    process.terminate()
                waiting.clear()
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                told(name, "started")
                running[name] = context.Process(target=_run, args=(str(folder.path), name), daemon=True)
                running[name].start()
            for name, process in list(running.items()):
                if process.exitcode is not None:
                    codes[name] = _code(running.pop(name))
                    told(name, str(codes[name]))
            time.sleep(0.02)
    return codes


def _code(process: ForkServerProcess) -> int:
    """Exit code of a process that ended; one that a signal stopped was stopped."""
    code = process.exitcode or 0
    process.close()
    return STOPPED if code in (-signal.SIGTERM, -signal.SIGINT) else code


def _run(path: str, name: str) -> None:
    """In the forked process: run a cell, with its output in the cell's log; the exit codes are those of a sweep."""
    from snowflake.probe.worker import run_cell

    folder = SweepFolder(Path(path))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; who started this process stops it
    with folder.log(name).open("a") as log:
        sys.stdout = sys.stderr = log
        try:
            run_cell(folder, name)
            return
        except Busy:
            code = BUSY
        except UserError as error:
            code = USER_ERROR
            print(f"snowflake: error: {' '.join(str(error).splitlines())}", file=log)
        except Exception:
            code = FAILED
            traceback.print_exc(file=log)
    sys.exit(code)
