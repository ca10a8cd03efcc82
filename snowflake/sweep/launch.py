"""Runs cells in processes of their own: on this machine, or on the nodes of a Ray cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agents.errors import UserError
from snowflake.sweep.folder import SweepFolder
from snowflake.sweep.worker import STOPPED

Told = Callable[[str, str], None]
"""Called with the name of a cell and what became of it: ``started`` or an exit code as text."""

GRACE_SECONDS = 120.0
"""How long a stopped cell may take to finish its update and save."""


def worker_command(
    folder: SweepFolder, name: str, seconds_left: float | None, module: str = "snowflake.sweep.worker"
) -> list[str]:
    """Return the command line of the cell's process; ``module`` is what it runs."""
    limit = [] if seconds_left is None else ["--time-limit", f"{max(seconds_left, 0.0):.1f}"]
    return [sys.executable, "-m", module, str(folder.path.resolve()), name, *limit]


def start(command: list[str], log: Path, directory: Path | None = None) -> subprocess.Popen:
    """Start the process of a cell; its output is appended to ``log``, and closing its standard input kills it.

    Args:
        command: Command line.
        log: File.
        directory: Working directory; this process's if None.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the sweep alone, which then stops its cells one way
        )


def run_local(
    folder: SweepFolder,
    names: Sequence[str],
    jobs: int,
    time_limit: float | None,
    told: Told,
    module: str = "snowflake.sweep.worker",
) -> dict[str, int]:
    """Run cells, at most ``jobs`` at a time, until all are tried or the time is over.

    Args:
        folder: The folder, prepared.
        names: Cells, in the order in which they are to start.
        jobs: Processes at a time.
        time_limit: Seconds after which running cells save and stop and no other starts; None for no limit.
        told: Called at start and end of each cell.
        module: What a cell's process runs.

    Returns:
        Exit code of every cell that was started.
    """
    end = None if time_limit is None else time.monotonic() + time_limit
    waiting, running, codes = list(names), {}, {}
    with first_signal() as stopped:
        while running or (waiting and not stopped() and not _over(end)):
            while waiting and len(running) < jobs and not stopped() and not _over(end):
                name = waiting.pop(0)
                told(name, "started")
                running[name] = start(worker_command(folder, name, _left(end), module), folder.log(name))
            for name, process in list(running.items()):
                if process.poll() is not None:
                    codes[name] = _code(running.pop(name))
                    told(name, str(codes[name]))
            if stopped():
                codes |= _stop_all(running, told)
            time.sleep(0.2)
    return codes


def _over(end: float | None) -> bool:
    return end is not None and time.monotonic() >= end


def _left(end: float | None) -> float | None:
    return None if end is None else end - time.monotonic()


def _code(process: subprocess.Popen) -> int:
    """Exit code of a finished process; one that SIGTERM ended outside training was stopped, too."""
    code = process.wait()
    return STOPPED if code == -signal.SIGTERM else code


def _stop_all(running: dict[str, subprocess.Popen], told: Told) -> dict[str, int]:
    """Let every cell finish its update and save; what does not end in time is killed."""
    codes = {}
    for process in running.values():
        process.terminate()
    end = time.monotonic() + GRACE_SECONDS
    for name in list(running):
        process = running.pop(name)
        try:
            process.wait(max(end - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
        codes[name] = _code(process)
        told(name, str(codes[name]))
    return codes


@contextmanager
def first_signal(
    words: str = "stopping: running cells finish their update and save (once more: kill them)",
) -> Iterator[Callable[[], bool]]:
    """Yield whether Ctrl-C or SIGTERM has come; a second one raises `KeyboardInterrupt`, which kills the cells.

    Args:
        words: Told at the first.
    """
    seen = []

    def note(number: int, frame: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        print(words, file=sys.stderr)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- Ray ----------------------------------------------------------------------------------------------------------


def run_on_ray(
    folder: SweepFolder, names: Sequence[str], threads: int, address: str, time_limit: float | None, told: Told
) -> dict[str, int]:
    """Run cells as tasks of a Ray cluster (Moritz et al. 2018), whose nodes share the folder and have Snowflake.

    Args:
        folder: The folder, prepared, on a file system that every node sees under the same path.
        names: Cells.
        threads: CPUs that a cell asks for.
        address: Address of the cluster; ``auto`` finds it, ``local`` starts one on this machine.
        time_limit: As in `run_local`.
        told: Called at the end of each cell.

    Returns:
        Exit code of every cell that was started.

    Raises:
        UserError: Ray is not installed, or there is no cluster at the address.
    """
    try:
        import ray  # type: ignore[import-not-found]  # an extra
    except ImportError:
        raise UserError("--ray-address needs Ray: pip install 'snowflake-rl[cluster]'") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(f"--ray-address {address}: {' '.join(str(error).split())[:200]}") from None
    end = None if time_limit is None else time.time() + time_limit
    # No retries: a cell that fails says why in its log, and the next sweep continues it.
    task = ray.remote(num_cpus=threads, max_retries=0)(_on_node)
    waiting = {task.remote(str(folder.path.resolve()), name, end, os.getcwd()): name for name in names}
    codes = {}
    try:
        while waiting:
            (finished,), _ = ray.wait(list(waiting), num_returns=1)
            name = waiting.pop(finished)
            try:
                code = ray.get(finished)
            except ray.exceptions.RayError as error:
                print(f"{name}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
                code = 1
            if code is not None:
                codes[name] = code
                told(name, str(code))
    finally:
        ray.shutdown()
    return codes


def _on_node(folder: str, name: str, end: float | None, directory: str) -> int | None:
    """Run a cell's process on this node; None if the time was over before it could start."""
    if end is not None and time.time() >= end:
        return None
    sweep = SweepFolder(Path(folder))
    left = None if end is None else end - time.time()
    where = Path(directory)  # where paths of body files start
    return _code(start(worker_command(sweep, name, left), sweep.log(name), where if where.is_dir() else None))
