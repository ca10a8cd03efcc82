"""Runs one case in a process of its own and says what it did wrong."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import stat
import sys
import time
from pathlib import Path

from benchmarks.fuzzing import victim
from benchmarks.fuzzing.case import SECONDS, WALL_SECONDS, Case, Maker, Place, Verdict, generator

DOCUMENTED = {"inspect": (0, 1)}
"""Exit codes of a command that was not refused, besides 0: `snowflake inspect` says 1 of a model without a graph."""
NOT_FINITE = 4
"""Exit code of training that met numbers that are not finite; what it had done stays."""
_START = "snowflake: error: "
_TRACE = "Traceback (most recent call last)"


def try_case(kind: str, seed: int, index: int, maker: Maker, work: Path, keep: bool = False) -> Verdict:
    """Make an input, let the command meet it, and judge.

    Args:
        kind: of input.
        seed: of the series.
        index: place in the series.
        maker: makes the input.
        work: folder of the series, with ``templates/``.
        keep: leave the folders of the case.
    """
    place = Place(work / f"{kind}-{index}", work / "templates")
    _clear(place.root)
    for folder in (place.here, place.temporary, place.home):
        folder.mkdir(parents=True)
    case = Case(kind, seed, index, *maker(generator(kind, seed, index), place))
    before = snapshot(place.here)
    code, seconds = _meet(case, place)
    said = (place.root / "stderr").read_text(errors="replace")
    faults = [*_of_ending(case, code, said), *_of_files(case, place, before, code)]
    if not keep:
        _clear(place.root)
    return Verdict(case, code, seconds, faults, said[-3000:])


def _meet(case: Case, place: Place) -> tuple[int | None, float]:
    """Fork a process for a case and wait for it; returns its exit code, minus the signal that ended it, or None."""
    sys.stdout.flush()
    sys.stderr.flush()
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            victim.run(case, place, place.root / "outside")
        finally:
            os._exit(99)
    status = None
    while status is None and time.monotonic() - begin < WALL_SECONDS and _cpu_seconds(child) < SECONDS:
        number, state = os.waitpid(child, os.WNOHANG)
        status = state if number else None
        time.sleep(0.005)
    if status is None:
        os.kill(child, signal.SIGABRT)  # it says where it is
        time.sleep(0.2)
    seconds = time.monotonic() - begin
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # with what it started
    if status is None:
        os.waitpid(child, 0)
    return None if status is None else os.waitstatus_to_exitcode(status), seconds


def _cpu_seconds(process: int) -> float:
    """Return what a process, its threads and the processes that it waited for have computed [s]."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def _of_ending(case: Case, code: int | None, said: str) -> list[str]:
    command = case.argv[0] if case.argv else ""
    if code is None:
        return [f"hangs: no answer in {SECONDS:g} s of computing or {WALL_SECONDS:g} s in all"]
    if code < 0:
        return [f"dies of {signal.Signals(-code).name}"]
    if _TRACE in said:
        return ["traceback"]
    if code == 2:
        lines = said.splitlines()
        if len(lines) != 1:
            return [f"{len(lines)} lines of error"]
        return [] if lines[0].startswith(_START) and len(lines[0]) > len(_START) else ["a line that is no error"]
    if code == NOT_FINITE:  # the table of components comes before
        return [] if said.splitlines()[-1].startswith(_START) else ["no error at the end"]
    return [] if code in DOCUMENTED.get(command, (0,)) else [f"exit code {code}"]


def _of_files(case: Case, place: Place, before: dict[str, str], code: int | None) -> list[str]:
    faults = []
    after = snapshot(place.here)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if code == 2 and changed:
        faults.append(f"leaves behind or changes {', '.join(changed[:5])}")
    tops = tuple(f"{top}/" for top in case.writes)
    if stray := [path for path in changed if not f"{path}/".startswith(tops)]:
        faults.append(f"writes outside its folder: {', '.join(stray[:5])}")
    if halves := [path for path in after if ".tmp-" in path and path not in before]:
        faults.append(f"leaves a temporary file: {', '.join(halves[:5])}")
    if code is not None and (rest := snapshot(place.temporary)):
        faults.append(f"leaves temporary files: {', '.join(list(rest)[:5])}")
    outside = place.root / "outside"
    if outside.exists() and (paths := outside.read_text(errors="replace").splitlines()):
        faults.append(f"writes elsewhere: {', '.join(paths[:3])}")
    return faults


def snapshot(folder: Path) -> dict[str, str]:
    """Return what lies in a folder, by relative path: a digest of files, the target of links, the kind of the rest."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(root, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                state = f"link to {os.readlink(path)}"
            elif stat.S_ISREG(mode):
                state = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
            else:
                state = f"kind {stat.S_IFMT(mode)}"
            found[os.path.relpath(path, folder)] = state
    return found


def _clear(root: Path) -> None:
    if root.exists():
        for folder, _, _ in os.walk(root):
            os.chmod(folder, 0o755)
        shutil.rmtree(root)
