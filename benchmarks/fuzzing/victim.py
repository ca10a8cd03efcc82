"""The process that meets one input: `snowflake.cli.main` in a fork, with long work cut short and its writes watched."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fuzzing.case import SECONDS, Case, Place

_MEMORY = 3 << 30
"""What a command may take beyond what the forking process has [bytes]."""
_ROLLOUT = 1024
"""Largest rollout that is trained on; of larger ones only the building is tried."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod")
_HARMLESS = ("/dev/", "/proc/")


def import_all() -> None:
    """Import what commands import, once, in the process that forks."""
    from importlib import import_module

    from snowflake.cli import COMMANDS

    for command in COMMANDS.values():
        import_module(command.target.partition(":")[0])
    for name in ("ppo.train", "ppo.finetune", "bench.advice", "bench.text", "evaluation.report", "evaluation.matrix"):
        import_module(f"snowflake.{name}")
    for name in ("evaluation.matrix_files", "evaluation.matrix_tables", "report.build", "report.files"):
        import_module(f"snowflake.{name}")
    for name in ("evaluation.player", "evaluation.sample_efficiency", "evaluation.extras", "evaluation.tables"):
        import_module(f"snowflake.{name}")
    import_module("torch._dynamo")  # optimisers load it at their first step
    import_module("matplotlib.font_manager")  # which, slow and new to a folder, says that it looks for fonts
    import_module("snowflake.config.study")
    import_module("snowflake.sweep.launch")
    import_module("snowflake.inspection.report")


def run(case: Case, place: Place, outside: Path) -> None:
    """Meet the input, and leave the process with the exit code.

    Args:
        case: the input.
        place: its folders.
        outside: file for the paths that were written elsewhere.
    """
    os.setsid()
    _redirect(place)
    faulthandler.enable(file=2)
    _limit_memory()
    _be_no_superuser()
    cut_short(SECONDS / 3)
    if case.index % 10:  # the others start a new interpreter, as users do
        run_in_forks()
    _watch(place, outside)
    from snowflake.cli import main

    try:
        code = main(case.argv)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _redirect(place: Place) -> None:
    os.chdir(place.here)
    for name in [name for name in os.environ if name.startswith(("SNOWFLAKE", "MUJOCO"))]:
        del os.environ[name]
    folders = dict.fromkeys(("HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"), place.home)
    folders["TMPDIR"] = place.temporary
    os.environ.update({name: str(path) for name, path in folders.items()})
    tempfile.tempdir = None  # it was settled in the parent
    sys.dont_write_bytecode = True
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(place.root / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _be_no_superuser() -> None:
    """Give up the right to read and write against permissions, so that read-only folders are what they seem."""
    if os.geteuid() == 0:
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)())


def cut_short(seconds: float) -> None:
    """End work that was accepted before it takes long: training after one small update, measuring after a while, and
    figures are empty files.

    Args:
        seconds: how long evaluations may take.
    """
    from matplotlib.figure import Figure

    from snowflake import rendering
    from snowflake.bench import advice
    from snowflake.cli import evaluate, play, sweep, video
    from snowflake.ppo.algorithm import SnowflakePPO

    def accepted(*_: Any, **__: Any) -> Any:
        raise SystemExit(0)

    learn = SnowflakePPO.learn

    def short(self: SnowflakePPO, total_timesteps: int, *args: Any, **kwargs: Any) -> SnowflakePPO:
        size, weights = self.n_steps * self.n_envs, sum(p.numel() for p in self.policy.parameters())
        if size > _ROLLOUT or weights > 100_000:
            return self
        self.n_epochs = min(self.n_epochs, 2)
        return learn(self, min(total_timesteps, size), *args, **kwargs)

    @contextlib.contextmanager
    def status(_: float = 0.0) -> Iterator[Callable[[str], None]]:
        end = time.monotonic() + seconds
        yield lambda _: accepted() if time.monotonic() > end else None

    def save(_: Figure, target: Any, *args: Any, **kwargs: Any) -> None:
        if hasattr(target, "write"):
            target.write(b"")
        else:
            Path(target).write_bytes(b"")

    changes: list[tuple[Any, str, Any]] = [
        (Figure, "savefig", save),
        (SnowflakePPO, "learn", short),
        (evaluate, "status", status),
        (advice, "advise", accepted),
        (sweep, "run", accepted),
        (play, "launch_viewer", accepted),
        (video, "_film_one", accepted),
        (video, "_film_grid", accepted),
        (rendering, "find_backend", lambda *_: "egl"),
    ]
    for owner, name, value in changes:
        assert hasattr(owner, name), name
        setattr(owner, name, value)


def run_in_forks() -> None:
    """Let model files be compiled, and reports be made, in forks of this process."""
    import types

    from agents import files
    from snowflake.inspection import worker

    for module in (files, worker):
        module.subprocess = types.SimpleNamespace(**{**vars(subprocess), "run": fork_instead})  # type: ignore[attr-defined]


def fork_instead(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Stand in for `subprocess.run` where Python runs a file or module of ours: a fork starts at once."""
    if command[0] != sys.executable:
        raise AssertionError(command)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
        given.write(str(options.get("input", "")).encode())
        given.seek(0)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for number, file in enumerate((given, out, err)):
                    os.dup2(file.fileno(), number)
                os.chdir(options.get("cwd") or ".")
                sys.stdin = open(0, closefd=False)  # noqa: SIM115
                code = _in_child(list(command[2:]))
                sys.stdout.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        end, status = time.monotonic() + options["timeout"], None
        while status is None:
            number, state = os.waitpid(child, os.WNOHANG)
            status = state if number else None
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise subprocess.TimeoutExpired(list(command), options["timeout"])
            time.sleep(0.002)
        results = []
        for file in (out, err):
            file.seek(0)
            data = file.read()
            results.append(data.decode(errors="replace") if options.get("text") else data)
        return subprocess.CompletedProcess(list(command), os.waitstatus_to_exitcode(status), *results)


def _in_child(arguments: list[str]) -> int:
    """Run `agents/file_check.py PATH`, or the module that makes reports."""
    from agents import file_check
    from snowflake.inspection import worker

    if arguments[0] == file_check.__file__:
        print(json.dumps(file_check.check(arguments[1])))
        return 0
    assert arguments == ["-m", "snowflake.inspection.worker"], arguments
    return worker.main()


def _watch(place: Place, outside: Path) -> None:
    """Note every file outside the case's folders that this process opens for writing, makes, renames or removes."""
    root, log = os.path.realpath(place.root) + os.sep, os.open(outside, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(path: Any, event: str) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        full = os.path.realpath(os.fsdecode(path))
        if not full.startswith((root, *_HARMLESS)):
            os.write(log, f"{event} {full}\n".encode())

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES) or event in _CHANGES:
            note(arguments[0], event)

    sys.addaudithook(hook)
