"""The fuzzer: a short series of every kind finds nothing, and its judge sees every fault that there may be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fuzzing import bodies, commands, configs
from benchmarks.fuzzing.case import Maker, Place, generator

ROOT = Path(__file__).resolve().parents[2]
# What a command might do with an input, and what the judge is to say of it.
_ACTS = """
def works(argv): Path("out").mkdir(); Path("out/a").write_text("a"); return 0
def refuses(argv): print("snowflake: error: no", file=sys.stderr); return 2
def raises(argv): raise KeyError("x")
def talks(argv): print("well\\nsnowflake: error: no", file=sys.stderr); return 2
def mumbles(argv): print("no", file=sys.stderr); return 2
def odd_code(argv): return 3
def dies(argv): os.kill(os.getpid(), signal.SIGSEGV)
def computes(argv):
    while True: pass
def leaves(argv): Path("out").mkdir(); refuses(argv); return 2
def changes(argv): Path("given").write_text("other"); refuses(argv); return 2
def strays(argv): Path("elsewhere").write_text("a"); return 0
def halves(argv): Path("out").mkdir(); Path("out/.tmp-a").write_text("a"); return 0
def forgets(argv): tempfile.mkdtemp(); return 0
def escapes(argv): Path(argv[0]).write_text("a"); return 0
"""
_FAULTS = {
    "works": [],
    "refuses": [],
    "raises": ["traceback"],
    "talks": ["2 lines of error"],
    "mumbles": ["a line that is no error"],
    "odd_code": ["exit code 3"],
    "dies": ["dies of SIGSEGV"],
    "computes": ["hangs: no answer in 0.5 s of computing or 60 s in all"],
    "leaves": ["leaves behind or changes out"],
    "changes": ["leaves behind or changes given", "writes outside its folder: given"],
    "strays": ["writes outside its folder: elsewhere"],
    "halves": ["leaves a temporary file: out/.tmp-a"],
    "forgets": ["leaves temporary files: "],
    "escapes": ["writes elsewhere: open "],
}
_SCRIPT = f"""
import json, os, signal, sys, tempfile
from pathlib import Path
import snowflake.cli
from benchmarks.fuzzing import judge, victim
{_ACTS}
def make(rng, place):
    (place.here / "given").write_text("a")
    return (sys.argv[2],), "", ("out",)
judge.SECONDS = 0.5
victim.cut_short = lambda seconds: None
found = {{}}
for name in {list(_FAULTS)!r}:
    snowflake.cli.main = globals()[name]
    found[name] = judge.try_case("cli", 0, 10, make, Path(sys.argv[1])).faults
print(json.dumps(found))
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run Python at the root of the checkout: forks of this process would take its threads for granted."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800
    )


def test_the_judge_sees_every_fault(tmp_path: Path) -> None:
    done = run("-c", _SCRIPT, str(tmp_path / "work"), str(tmp_path / "escaped"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name, expected in _FAULTS.items():
        assert len(found[name]) == len(expected), (name, found[name])
        for said, start in zip(found[name], expected, strict=True):
            assert said.startswith(start), (name, said)


@pytest.mark.parametrize("count", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_a_short_series_of_every_kind(count: int) -> None:
    done = run("benchmarks/fuzz.py", "--inputs", str(count), "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    for kind in ("config", "body", "run", "checkpoint", "cli"):
        inputs, worked, refused, other, faults = map(int, rows[kind][1:6])
        assert (inputs, faults) == (count, 0)
        assert worked + refused + other == count
        assert refused > 0


@pytest.mark.parametrize("maker", [configs.make, bodies.make, commands.make])
def test_kind_seed_and_index_decide_an_input(maker: Maker, tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    for name in ("graph", "two", "mlp"):
        (tmp_path / "templates" / name).mkdir()
    made = []
    for index in (5, 5, 6):
        place = Place(tmp_path / "case", tmp_path / "templates")
        place.here.mkdir(parents=True)
        made.append((maker(generator("kind", 1, index), place), files(place.here)))
        (tmp_path / "case").rename(tmp_path / f"case-{len(made)}")
    assert made[0] == made[1]
    assert made[0] != made[2]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
