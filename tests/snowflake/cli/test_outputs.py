"""A place that cannot be written to is told before torch is loaded and anything is played."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agents.errors import UserError
from snowflake.cli.evaluate import status
from snowflake.files import check_output

RUN = "pretrained:centipede-6"
CASES = (
    ("evaluate", RUN, "--output", "file/x"),
    ("transfer", RUN, "--to", "centipede-8", "--output", "file/x"),
    ("transfer", RUN, "copy", "--output", "file/x"),
    ("video", RUN, "--output", "file/x.mp4"),
    ("video", RUN, "--output", "file/x"),
    ("report", "study", "--output", "file/x"),
    ("inspect", "ant", "--output", "file/x"),
    ("transfer", RUN, "--to", "centipede-8", "--output", "taken"),
    ("transfer", "copy", "./copy/"),
    ("evaluate", RUN, "--agents", "ant"),
    ("transfer", RUN, "copy", "--to", "ant"),
    ("video", RUN, "--agents", "ant"),
)
SCRIPT = """
import json, sys
from snowflake.cli import main
for argv in json.load(sys.stdin):
    code, heavy = main(argv), {"torch", "torch_geometric", "stable_baselines3"} & set(sys.modules)
    assert code == 2 and not heavy, (argv, code, heavy)
"""


def test_places_are_tried_before_anything_is_played(tmp_path: Path) -> None:
    import shutil

    from snowflake.run import Run

    (tmp_path / "file").touch()
    (tmp_path / "taken" / "transfer.json").mkdir(parents=True)
    shutil.copytree(Run.open(RUN).path, tmp_path / "copy")
    (tmp_path / "study").mkdir()
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, input=json.dumps(CASES), capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(CASES)
    assert all("cannot be made (Not a directory)" in line for line in lines[:7]), lines
    assert "transfer.json is a folder" in lines[7]
    assert "copy and ./copy/: the same run twice, name it once" in lines[8]
    assert all("or train with --features general" in line or "centipede-6" in line for line in lines[9:]), lines
    assert sorted(tmp_path.rglob("*")) == before


def test_check_output_leaves_nothing_behind(tmp_path: Path) -> None:
    check_output(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be made"):
        check_output(tmp_path / "file")
    with pytest.raises(UserError, match=r"--output .*: cannot be made"):
        check_output(Path("/proc/x"))


def test_progress_off_a_terminal_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with status(seconds=0.0) as say:
        say("centipede-4, mean action: step 7, 0 episodes ended")
    assert capsys.readouterr().err == "centipede-4, mean action: step 7, 0 episodes ended\n"
    with status(seconds=60.0) as say:
        for step in range(5):
            say(f"step {step}")
    assert capsys.readouterr().err == ""
