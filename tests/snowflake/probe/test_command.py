"""The command: mistakes at once, a killed probe goes on, nothing runs twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from snowflake.cli import main
from snowflake.cli.probe import parse_probe
from snowflake.config.probe_variants import NAMES

ROOT = Path(__file__).resolve().parents[3]
TINY = ("probe", "stability", "--quick", "--variants", "none", "qk", "--seeds", "1", "--updates", "20", "--layers", "1")
TINY += ("--lr-min", "0.001", "--lr-max", "0.1", "--ratio", "100", "--refine", "1")

CASES = (
    ((), "say snowflake probe stability"),
    (("stabilty",), "snowflake probe stabilty: did you mean 'stability'?"),
    (("stability", "--variants", "qkx"), "variants names 'qkx', which is none: did you mean 'qk'"),
    (("stability", "--variants", "qk:x"), "policy.attention.softcap = 'x' is not a choice"),
    (("stability", "--variants"), "variants is empty"),
    (("stability", "--variants", "qk", "qk"), "variants names something twice"),
    (("stability", "--objective", "sac"), "objective = 'sac' is not a choice"),
    (("stability", "--lr-max", "1e-4"), "lr_max = 0.0001 must exceed lr_min = 0.0003"),
    (("stability", "--lr-min", "nan"), "lr_min = nan is out of range"),
    (("stability", "--ratio", "1"), "ratio = 1.0 is out of range"),
    (("stability", "--ratio", "1.01"), "has over 200 rates: raise ratio"),
    (("stability", "--heads", "7"), "policy.attention.heads = 7 does not divide policy.hidden_size = 48"),
    (("stability", "--seeds", "0"), "seeds = 0 is out of range"),
    (("stability", "--agents", "hoper"), "did you mean 'hopper'"),
    (("stability", "--jobs", "-1"), "--jobs -1: must lie between"),
    (("stability", "--time-limit", "0"), "--time-limit 0: give minutes"),
    (("stability", "--output", "/proc/x"), "cannot write /proc/x"),
    (("stability", "--config", "nix.yaml"), "nix.yaml"),
    (("stability", "--quik",), "unknown option --quik: did you mean '--quick'"),
)  # fmt: skip


def test_mistakes_are_told_before_torch_is_loaded() -> None:
    script = """
import json, sys
from snowflake.cli import main
for argv in json.load(sys.stdin):
    code, heavy = main(["probe", *argv]), {"torch", "stable_baselines3", "matplotlib"} & set(sys.modules)
    assert code == 2 and not heavy, (argv, code, heavy)
"""
    asked = json.dumps([argv for argv, _ in CASES])
    done = subprocess.run([sys.executable, "-c", script], input=asked, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("snowflake: error: ")]
    assert done.returncode == 0, done.stderr
    assert len(lines) == len(CASES)
    for line, (argv, words) in zip(lines, CASES, strict=True):
        assert words in line, argv


def test_quick_changes_the_defaults_and_flags_win() -> None:
    quick = parse_probe(["stability", "--seeds", "7", "--quick"]).probe
    assert (quick.objective, quick.variants, quick.seeds) == ("bc", NAMES, 7)
    assert parse_probe(["stability"]).probe.objective == "ppo"


def test_help_shows_every_setting(capsys: pytest.CaptureFixture) -> None:
    assert main(["probe", "--help"]) == 0
    text = capsys.readouterr().out
    for flag in ("--objective", "--variants", "--lr-min", "--refine", "--quick", "--output"):
        assert flag in text


def results(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "results").glob("*.json")}


def without_provenance(folder: Path) -> dict:
    result = json.loads((folder / "stability.json").read_text())
    result.pop("provenance")
    return result


def hurt(folder: Path, kill: signal.Signals) -> int:
    """Start a probe in a process of its own, and hurt it once a run is done; returns its exit code."""
    argv = [sys.executable, "-m", "snowflake.cli", *TINY, "--jobs", "1", "--output", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 300
    while not results(folder) and process.poll() is None:
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    process.send_signal(kill)
    return process.wait(300)


@pytest.mark.parametrize("kill", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_probe_that_was_hurt_ends_as_an_undisturbed_one(
    kill: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    calm, other = tmp_path / "calm", tmp_path / "hurt"
    assert hurt(other, kill) == (130 if kill == signal.SIGINT else -kill)
    stamps = {path.name: path.stat().st_mtime_ns for path in (other / "results").glob("*.json")}
    codes, outputs = [], []
    for folder in (calm, other):
        codes.append(main([*TINY, "--jobs", "1", "--output", str(folder)]))
        captured = capsys.readouterr()
        outputs.append(captured.out.replace(str(folder), ""))
    assert len(stamps) < len(results(calm)), "it was done before it could be hurt"
    assert f"{len(stamps)} done before" in captured.err
    assert codes[0] == codes[1]
    assert codes[0] in (0, 3)
    assert outputs[0] == outputs[1]
    assert "max stable lr" in outputs[0]
    assert results(other) == results(calm)
    assert all((other / "results" / name).stat().st_mtime_ns == stamp for name, stamp in stamps.items())
    assert without_provenance(other) == without_provenance(calm)
    assert (other / "stability.csv").read_bytes() == (calm / "stability.csv").read_bytes()
    assert not list(other.rglob(".tmp-*"))


def test_other_settings_do_not_mix_and_a_longer_grid_continues(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from snowflake.probe.cells import CellMaker
    from snowflake.sweep.folder import SweepFolder

    folder = SweepFolder(tmp_path / "out")
    flags = parse_probe([*TINY[1:], "--output", str(folder.path)])
    folder.prepare(CellMaker(flags.probe).cells(flags.probe.variants, [0.001, 0.1]), "")
    assert main([*TINY, "--output", str(folder.path), "--layers", "2"]) == 2
    assert "was started with other settings" in capsys.readouterr().err
    longer = parse_probe([*TINY[1:], "--lr-max", "10", "--seeds", "2", "--refine", "3"]).probe
    folder.prepare(CellMaker(longer).cells(longer.variants, [0.001, 0.1, 10.0]), "")
    assert len(list(folder.path.glob("cells/*.yaml"))) == 2 * 2 * 3


def test_a_run_that_fails_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from snowflake.probe.cells import CellMaker
    from snowflake.probe.pool import run_forked
    from snowflake.sweep.folder import SweepFolder

    folder = SweepFolder(tmp_path / "out")
    flags = parse_probe([*TINY[1:], "--output", str(folder.path)])
    cells = CellMaker(flags.probe).cells(["qk"], [0.001])
    folder.prepare(cells, "")
    file = folder.cell_file(cells[0].name)
    file.write_text(file.read_text().replace("samples: 32", "samples: many"))
    told = []
    codes = run_forked(folder, [cells[0].name], 1, None, lambda name, what: told.append(what))
    assert codes == {cells[0].name: 1}
    assert told == ["started", "1"]
    assert "TypeError" in folder.log(cells[0].name).read_text()
    assert not folder.done(cells[0].name)
