"""``snowflake inspect``: exit codes, one line for a mistake, JSON for scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from snowflake.cli import main

TWO = """<mujoco><worldbody><body name="a"><joint name="j"/><geom size=".1"/></body>
  <body name="b" pos="1 0 0"><joint name="k"/><geom size=".1"/></body></worldbody>
  <actuator><motor joint="j" ctrlrange="-1 1"/><motor joint="k" ctrlrange="-1 1"/></actuator></mujoco>"""


def test_json_and_drawing(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "off")  # the picture beside the graph is tested elsewhere
    file = tmp_path / "zwei Körper.xml"
    file.write_text(TWO, encoding="utf-8")
    argv = ["inspect", str(file), "--root-body", "b", "--json", "--steps", "3", "--output", str(tmp_path / "out")]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["robot"]["root_body"] == "b"
    assert [row["drives"] for row in report["control_map"]] == [["k"]]
    assert err.startswith("wrote ")
    drawings = list((tmp_path / "out").iterdir())
    assert [path.suffix for path in drawings] == [".png"]
    assert drawings[0].read_bytes().startswith(b"\x89PNG")


def test_a_refused_model_is_shown_with_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two.xml").write_text(TWO)
    assert main(["inspect", str(tmp_path / "two.xml")]) == 1
    out, err = capsys.readouterr()
    assert "--root-body" in out
    assert err == ""


def test_mistakes_are_one_line_before_torch(tmp_path: Path) -> None:
    (tmp_path / "part.xml").write_text("<mujocoinclude><geom/></mujocoinclude>")
    script = """
import sys, snowflake.cli
for argv in (
    ["inspect", "part.xml"], ["inspect", "antt"], ["inspect"],
    ["inspect", "ant", "--steps", "-1"],
    ["inspect", "ant", "--output", "part.xml"], ["video", "nowhere"], ["video", "nowhere", "--seconds", "0"],
    ["video", "nowhere", "--steps", "3", "--seconds", "1"], ["video", "nowhere", "--width", "33"], ["play", "nowhere"],
    ["play", "nowhere", "--agents", "ant", "hopper"], ["play", "nowhere", "--deterministic", "--stochastic"],
):
    code = snowflake.cli.main(argv)
    assert code == 2, argv
    heavy = {"torch", "stable_baselines3", "matplotlib", "OpenGL"} & set(sys.modules)
    assert not heavy, (argv, heavy)
print("done")
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                          env=_environment())  # fmt: skip
    assert done.stdout == "done\n", done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 12
    assert all(line.startswith("snowflake: error: ") for line in lines)
    assert "fragment" in lines[0]


def _environment() -> dict[str, str]:
    import os

    root = str(Path(__file__).resolve().parents[3])
    # A backend that may not work here must not matter to commands that draw nothing.
    return {**os.environ, "PYTHONPATH": root, "MUJOCO_GL": "osmesa"}
