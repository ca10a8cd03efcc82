"""The survey's checks see what they are for, and its files go where they belong."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import mujoco
import numpy as np
import pytest

from envs import LocomotionVectorEnv

ROOT = Path(__file__).resolve().parents[2]
ARM = """<mujoco><worldbody><body name="a"><joint name="j"/><geom size=".1"/>
  <body name="b" pos=".3 0 0"><joint name="k" axis="0 1 0"/><geom size=".1"/></body></body>{}</worldbody>
  <actuator><motor joint="k" ctrlrange="-1 1"/><motor joint="j" ctrlrange="-1 1"/>{}</actuator></mujoco>"""
SECOND = '<body name="c" pos="2 0 0"><joint name="l"/><geom size=".1"/></body>'


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


checks, survey = load("survey_checks"), load("survey")


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_outcomes(tmp_path: Path) -> None:
    arm = checks.survey(write(tmp_path / "arm.xml", ARM.format("", "")), None)
    assert (arm["outcome"], arm["reason"]) == ("graph", "")
    assert (arm["nodes"], arm["links"], arm["actions"]) == (3, 2, 2)
    two = write(tmp_path / "two.xml", ARM.format(SECOND, '<motor joint="l" ctrlrange="-1 1"/>'))
    assert checks.survey(two, None)["roots"] == ["a", "c"]
    assert checks.survey(two, "c")["actions"] == 1
    assert checks.survey(write(tmp_path / "part.xml", "<mujocoinclude/>"), None)["outcome"] == "not a model"
    passive = ARM.format("", "").partition("<actuator>")[0] + "</mujoco>"
    assert checks.survey(write(tmp_path / "none.xml", passive), None)["outcome"] == "no actuators"
    between = "<tendon><spatial name='t'><site site='s'/><site site='u'/></spatial></tendon></mujoco>"
    text = ARM.format(SECOND.replace("</body>", '<site name="s"/></body>'), '<motor tendon="t"/>')
    text = text.replace('<geom size=".1"/></body></body>', '<geom size=".1"/><site name="u"/></body></body>', 1)
    refused = checks.survey(write(tmp_path / "between.xml", text.replace("</mujoco>", between)), "a")
    assert refused["outcome"] == "refused"
    assert "tendon" in refused["reason"]


def test_a_wrong_action_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = LocomotionVectorEnv(write(tmp_path / "arm.xml", ARM.format("", "")), 1, features="general")
    assert checks.check_actions(env) == []
    step = LocomotionVectorEnv.step_without_reset
    monkeypatch.setattr(LocomotionVectorEnv, "step_without_reset", lambda self, actions: step(self, actions[:, ::-1]))
    assert "beyond" in checks.check_actions(env)[0]
    monkeypatch.setattr(LocomotionVectorEnv, "step_without_reset", lambda self, actions: step(self, 0 * actions))
    assert "changes nothing" in checks.check_actions(env)[0]


def test_a_column_that_does_not_follow_its_joint_is_seen(tmp_path: Path) -> None:
    env = LocomotionVectorEnv(write(tmp_path / "arm.xml", ARM.format("", "")), 1, features="general")
    moved = np.ones(env.layout.size)
    assert checks._still_columns(env, moved, np.ones(2), np.ones(2)) == []
    still = checks._still_columns(env, np.zeros(env.layout.size), np.ones(2), np.zeros(2))
    assert still == [f"joint {name!r} moved, its pos_ columns did not" for name in "jk"]
    assert len(checks._still_columns(env, moved, np.ones(2), np.zeros(2))) == 2


def test_moments_of_an_actuator() -> None:
    model = mujoco.MjModel.from_xml_string(ARM.format("", ""))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert [checks._moment_dofs(model, data, actuator) for actuator in (0, 1)] == [[1], [0]]


def test_wheels_are_unpacked_and_rows_of_other_packages_kept(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "brax-0.14.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("brax/a.xml", "<mujoco/>")
    folder = survey.unpacked("brax", tmp_path)
    assert (folder / "brax" / "a.xml").read_text() == "<mujoco/>"
    assert [path.name for path in folder.parent.iterdir()] == ["brax"]
    output = tmp_path / "out" / "survey.csv"
    survey.write_csv([survey.Row("brax", "a.xml", outcome="graph"), survey.Row("gymnasium", "b.xml")], output, ["brax"])
    survey.write_csv([survey.Row("brax", "a.xml", outcome="crashed")], output, ["brax"])
    lines = output.read_text().splitlines()
    assert lines[0].startswith("package,file,root_body,outcome,nodes")
    assert [line.split(",")[:4] for line in lines[1:]] == [
        ["gymnasium", "b.xml", "", ""],
        ["brax", "a.xml", "", "crashed"],
    ]
