"""The report is complete, is JSON, and finds what breaks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import agents
from envs import LocomotionVectorEnv
from snowflake.inspection.report import inspect
from snowflake.inspection.text import print_report

WILD = """<mujoco><option timestep=".02"/><worldbody><geom type="plane" size="5 5 1"/>
  <body name="base" pos="0 0 1"><freejoint/><geom size=".1"/>
    <body name="arm"><joint name="elbow"/><geom type="capsule" size=".01" fromto="0 0 0 .1 0 0"/></body>
  </body></worldbody>
  <actuator><position name="stiff" joint="elbow" kp="1e6" ctrlrange="-3 3"/></actuator></mujoco>"""


@pytest.fixture(scope="module")
def ant() -> dict:
    return inspect("ant", steps=5)


def test_every_column_action_and_node_is_in_the_report_once(ant: dict) -> None:
    env = LocomotionVectorEnv("ant", 1)
    columns = sorted(column for group in ant["observation"] for column in group["columns"])
    assert columns == list(range(env.layout.size))
    assert [row["action"] for row in ant["control_map"]] == list(range(8))
    assert [row["node"] for row in ant["nodes"]] == list(range(9))
    assert len(ant["edges"]) == 8
    assert ant["status"] == "graph"
    assert json.loads(json.dumps(ant)) == ant


def test_the_control_map_is_what_the_environment_does(ant: dict) -> None:
    model = agents.load("ant").compile()
    assert [row["low"] for row in ant["control_map"]] == model.actuator_ctrlrange[:, 0].tolist()
    assert [row["high"] for row in ant["control_map"]] == model.actuator_ctrlrange[:, 1].tolist()
    assert [row["drives"] for row in ant["control_map"]] == [[model.joint(j).name] for j in model.actuator_trnid[:, 0]]
    assert not any(row["declared"] for row in ant["control_map"])
    assert ant["stability"] == {"trials": 3, "steps": 5, "broken": 0}


def test_broken_physics_is_found_with_its_joint_and_a_time_step_that_holds(tmp_path: Path) -> None:
    (tmp_path / "wild.xml").write_text(WILD)
    report = inspect(str(tmp_path / "wild.xml"), steps=60)
    found = [finding for finding in report["findings"] if finding["code"] == "unstable"]
    assert len(found) == 1
    assert report["stability"]["broken"] == 3
    assert "mjWARN_BAD" in found[0]["message"]
    assert found[0]["advice"]
    assert list(tmp_path.iterdir()) == [tmp_path / "wild.xml"]


def test_a_file_without_actuators_is_still_shown(tmp_path: Path) -> None:
    urdf = """<robot name="r"><link name="a"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0"
      iyz="0"/></inertial></link><link name="b"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0"
      ixz="0" iyz="0"/></inertial></link><joint name="j" type="revolute"><parent link="a"/><child link="b"/>
      <limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>"""
    path = tmp_path / "two links.urdf"
    path.write_text(urdf)
    report = inspect(str(path), steps=3)
    assert (report["status"], report["robot"], report["nodes"]) == ("no actuators", None, [])
    assert report["tree"][0]["joints"][0]["range"] == [-1.0, 1.0]
    assert report["findings"][0]["code"] == "no-actuators"
    assert "URDF" in report["findings"][0]["advice"]


def test_the_text_names_everything(ant: dict) -> None:
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_report(ant, console)
    text = console.export_text()
    for name in ("hip_4", "ankle_1", "front_left_leg", "hinge_actuated", "height [m]", "contact_0-2", "findings"):
        assert name in text
    assert text.count("motor") == 8


def test_start_states_do_not_depend_on_the_drawing(ant: dict) -> None:
    again = inspect("ant", steps=5)
    assert again == ant
    assert np.isfinite(ant["sizes"]["mass"])
