"""Gives the command line thousands of broken inputs and says which it did not take well.

Usage: ``python benchmarks/fuzz.py [--kind config|body|run|checkpoint|cli|all] [--inputs N] [--seed S] [--jobs J]``
(``make fuzz``). Each input meets ``snowflake.cli.main`` in a process of its own. It is taken well if the command works,
or answers within 10 s with exit code 2 and one line of error, and leaves nothing behind: no file that was not there, no
temporary file, nothing outside its folders. Training that was accepted is cut to one update, measuring to seconds.

Prints the counts of each kind and, of every input that was not taken well, what happened and how to see it again.
Exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import collections
import functools
import multiprocessing
import os
import platform
import shlex
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # forked processes cannot use threads that were started before
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.fuzzing import bodies, commands, configs, judge, runs, victim
from benchmarks.fuzzing.case import Maker, Verdict

KINDS: dict[str, Maker] = {
    "config": configs.make,
    "body": bodies.make,
    "run": runs.make_run,
    "checkpoint": runs.make_checkpoint,
    "cli": commands.make,
}


def main() -> int:
    """Run the series; returns the exit code."""
    options = _options()
    victim.import_all()
    kinds = list(KINDS) if options.kind == "all" else [options.kind]
    with tempfile.TemporaryDirectory(prefix="snowflake-fuzz-") as folder:
        work = options.keep or Path(folder)
        runs.make_templates(work / "templates")
        faulty: list[Verdict] = []
        print(f"\n{_machine()}\nseed {options.seed}, {options.inputs} inputs of each kind\n", flush=True)
        head = f"{'kind':<12}{'inputs':>7}{'worked':>8}{'refused':>9}{'other':>7}{'faults':>8}"
        print(f"{head}{'minutes':>9}{'slowest s':>11}", flush=True)
        for kind in kinds:
            faulty += _series(kind, options, work)
    for verdict in faulty:
        print(f"\n{_reproducer(verdict)}")
    return 1 if faulty else 0


def _series(kind: str, options: argparse.Namespace, work: Path) -> list[Verdict]:
    """Try all inputs of a kind, print its line, and return those that were not taken well."""
    begin = time.monotonic()
    indices = range(options.inputs) if options.only is None else [options.only]
    task = functools.partial(_try, kind, options.seed, work, options.keep is not None)
    counts: collections.Counter[str] = collections.Counter()
    faulty, slowest = [], 0.0
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for verdict in pool.imap_unordered(task, indices):
            counts[{0: "worked", 2: "refused"}.get(-1 if verdict.code is None else verdict.code, "other")] += 1
            slowest = max(slowest, verdict.seconds)
            if verdict.faults:
                faulty.append(verdict)
            if options.verbose:
                print(
                    f"{kind} {verdict.case.index}: {verdict.code} {verdict.seconds:.2f} s  {verdict.case.story[:80]!r}"
                )
                print(f"    {shlex.join(verdict.case.argv)[:160]}\n    {verdict.said[-300:].strip()}", flush=True)
    minutes = (time.monotonic() - begin) / 60
    row = f"{kind:<12}{len(indices):>7}{counts['worked']:>8}{counts['refused']:>9}{counts['other']:>7}"
    print(f"{row}{len(faulty):>8}{minutes:>9.1f}{slowest:>11.1f}", flush=True)
    return sorted(faulty, key=lambda verdict: verdict.case.index)


def _try(kind: str, seed: int, work: Path, keep: bool, index: int) -> Verdict:
    return judge.try_case(kind, seed, index, KINDS[kind], work, keep)


def _reproducer(verdict: Verdict) -> str:
    case = verdict.case
    again = f"python benchmarks/fuzz.py --kind {case.kind} --seed {case.seed} --only {case.index} --keep DIR"
    lines = [f"{case.kind} {case.index}: {'; '.join(verdict.faults)}", f"  input:   {case.story[:300]!r}"]
    lines += [f"  command: snowflake {shlex.join(case.argv)[:300]}", f"  again:   {again}"]
    return "\n".join(lines + [f"  | {line}" for line in verdict.said.splitlines()[-12:]])


def _machine() -> str:
    import mujoco
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
    versions = f"Python {platform.python_version()}, MuJoCo {mujoco.__version__}, PyTorch {torch.__version__}"
    return f"{versions}, {platform.system()} {platform.machine()}, {processor}, {os.cpu_count()} cores"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--inputs", type=int, default=2000, help="of each kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="inputs at a time (default: %(default)s)")
    parser.add_argument("--only", type=int, metavar="INDEX", help="this input alone")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the folders of every input in DIR")
    parser.add_argument("--verbose", action="store_true", help="tell of every input")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
