"""Variations of model files: frames, meshes, stated inertias, keyframes, unnamed parts, several robots, copies."""

from __future__ import annotations

import os
from pathlib import Path

import mujoco
import numpy as np
import pytest

import agents
from agents import file_check, files
from agents.tree import find_tree, lowest
from envs import LocomotionVectorEnv

# The trunk lies in a frame that is turned by a quarter about x, so that the frame's y is up.
ROBOT = """<mujoco><compiler angle="radian"/>
<asset><mesh name="wedge" vertex="0 0 0 .3 0 0 0 .1 0 0 0 .1"/></asset>
<worldbody><frame euler="1.5707963267948966 0 0"><body name="trunk" pos="0 1 0"><freejoint/><geom size=".2"/>
  <frame pos="0 0 .3" euler="0 0 .4"><body name="front/hip" pos=".1 0 0" euler=".3 0 0">
    <inertial pos="0 0 -.2" mass="2" diaginertia=".10 .11 .02"/>
    <joint name="j1" pos="0 .1 0"/><geom type="capsule" size=".05 .2"/><site name="s1" pos="0 0 .1"/>
    <body pos="0 -.5 0"><joint name="j2" axis="1 0 0"/><geom type="box" size=".05 .05 .2" pos="0 0 .2" mass="3"/>
      <geom type="mesh" mesh="wedge" density="100" contype="0" conaffinity="0"/></body></body></frame>
  <body name="back" pos="-.2 0 0"><joint name="j3" actuatorfrcrange="-9 9"/><joint name="j4" axis="0 1 0"/>
    <geom name="bar" type="capsule" size=".05" fromto="0 0 0 0 -.6 .1"/></body></body></frame></worldbody>
<tendon><fixed name="f"><joint joint="j3" coef="1"/><joint joint="j1" coef="1"/></fixed></tendon>
<equality><joint joint1="j2" joint2="j3"/></equality>
<contact><exclude body1="front/hip" body2="back"/></contact>
<sensor><jointpos joint="j1"/><jointpos joint="j3"/></sensor>
<actuator><motor joint="j1"/><position joint="j2" kp="10" forcerange="-5 5"/><motor joint="j3" name="m3" gear="7"/>
  <motor tendon="f" name="tf"/><muscle joint="j4" name="mu" lengthrange="0 1"/></actuator>
<keyframe><key qpos="0 0 1.5 .70710678 .70710678 0 0 .1 .2 .3 .4" ctrl="1 2 3 4 0"/></keyframe></mujoco>"""
TWO = """<mujoco><worldbody>
<body name="left"><joint name="a"/><geom size=".1"/><body name="tip"><joint name="c"/><geom size=".1"/></body></body>
<body name="right"><joint name="b"/><geom size=".1"/></body></worldbody>
<actuator><motor joint="a"/><motor joint="c"/><motor joint="b"/></actuator></mujoco>"""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile files in this process, which saves the start of another."""
    monkeypatch.setattr(files, "_checked_apart", lambda path, seconds: file_check.check(path))


@pytest.fixture
def robot(tmp_path: Path) -> str:
    path = tmp_path / "bent.xml"
    path.write_text(ROBOT)
    return str(path)


def compiled(robot: str, changes: str = "") -> mujoco.MjModel:
    return agents.load(robot + changes).compile()


def test_copies_stand_alone(robot: str, tmp_path: Path) -> None:
    body = agents.load(f"{robot}+limb=1.2+remove=back")
    assert (body.name, body.task, body.root_body) == ("bent+limb=1.2+remove=back", "locomotion", None)
    source = files.copy_files(body, tmp_path / "run")
    expected = agents.model_hash(body.compile())
    os.remove(robot)
    copy = agents.from_source(source, tmp_path / "run")
    assert copy.name == body.name
    assert agents.model_hash(copy.compile()) == expected
    with pytest.raises(agents.UserError, match=r"there is no file .*bent.xml any more"):
        body.compile()


def test_limbs_scale_about_their_joints_in_frames(robot: str) -> None:
    plain, long = compiled(robot), compiled(robot, "+limb=1.5")
    tree = find_tree(plain, None, "bent")
    anchors = []
    for model in (plain, long):
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        anchors.append(data.xanchor - data.xpos[tree.root])
    np.testing.assert_allclose(anchors[1][1], anchors[0][1], atol=1e-9)  # where the trunk holds j1 and j3
    np.testing.assert_allclose(anchors[1][3], anchors[0][3], atol=1e-9)
    np.testing.assert_allclose(anchors[1][2] - anchors[1][1], 1.5 * (anchors[0][2] - anchors[0][1]), atol=1e-9)
    assert long.geom_size[1, 1] == pytest.approx(0.3)
    assert long.geom_size[2].tolist() == pytest.approx([0.05, 0.05, 0.3])
    # Its lowest point is as high as before, in the model's zero and in the keyframe, although the leg is longer.
    for before, after in ((plain.qpos0, long.qpos0), (plain.key_qpos[0], long.key_qpos[0])):
        assert lowest(long, tree.bodies, after) == pytest.approx(lowest(plain, tree.bodies, before), abs=1e-9)
    assert long.key_qpos[0, 2] > plain.key_qpos[0, 2] + 0.01


def test_stated_masses_follow_the_stretch(robot: str) -> None:
    plain, long = compiled(robot), compiled(robot, "+limb=1.5")
    # A stated inertial: mass x 1.5; its second moments are (I_y + I_z - I_x) / 2 and so on, the largest x 1.5^3.
    second = np.array([0.015, 0.005, 0.095]) * 1.5 * [1, 1, 1.5**2]
    hip = plain.body("front/hip").id
    assert long.body_mass[hip] == pytest.approx(3.0)
    np.testing.assert_allclose(np.sort(long.body_inertia[hip]), np.sort(second.sum() - second), rtol=1e-9)
    np.testing.assert_allclose(long.body_ipos[hip], np.array([0, 0.1, 0]) + 1.5 * np.array([0, -0.1, -0.2]), atol=1e-9)
    # A stated mass of a box: x 1.5; a mesh scales in all directions.
    wedge = 100 * 0.3 * 0.1 * 0.1 / 6
    assert plain.body_mass[hip + 1] == pytest.approx(3.0 + wedge, rel=1e-5)
    assert long.body_mass[hip + 1] == pytest.approx(1.5 * 3.0 + 1.5**3 * wedge, rel=1e-5)
    assert long.nmesh == 2


def test_mass_and_payload_of_stated_inertials(tmp_path: Path) -> None:
    path = tmp_path / "stated.xml"
    path.write_text("""<mujoco><worldbody><body><freejoint/><inertial pos="1 0 0" mass="4" fullinertia="3 2 2 .1 0 0"/>
        <body><joint name="j"/><geom size=".1"/></body></body></worldbody><actuator><motor joint="j"/></actuator>
        </mujoco>""")
    plain = agents.load(path).compile()
    loaded = agents.load(f"{path}+mass=2+payload=5").compile()
    assert loaded.body_mass[1] == pytest.approx(2 * 4 + 5)
    ball = 0.4 * 5 * (3 * 5 / (4 * np.pi * 1000)) ** (2 / 3)
    np.testing.assert_allclose(loaded.body_inertia[1], 2 * plain.body_inertia[1] + ball, rtol=1e-9)
    np.testing.assert_allclose(loaded.body_ipos[1], [1, 0, 0])


def test_gears_of_every_kind(robot: str) -> None:
    plain, strong = compiled(robot), compiled(robot, "+gear=2")
    motors, servo, muscle = [0, 2, 3], 1, 4
    np.testing.assert_array_equal(strong.actuator_gear[motors], 2 * plain.actuator_gear[motors])
    np.testing.assert_array_equal(strong.actuator_gear[[servo, muscle]], plain.actuator_gear[[servo, muscle]])
    np.testing.assert_array_equal(strong.actuator_gainprm[servo], 2 * plain.actuator_gainprm[servo])
    np.testing.assert_array_equal(strong.actuator_biasprm[servo], 2 * plain.actuator_biasprm[servo])
    np.testing.assert_array_equal(strong.actuator_forcerange[servo], [-10, 10])
    np.testing.assert_array_equal(strong.jnt_actfrcrange[plain.joint("j3").id], [-18, 18])
    assert strong.actuator_gainprm[muscle, 3] == 2 * plain.actuator_gainprm[muscle, 3]
    assert strong.actuator_gainprm[muscle, 2] == plain.actuator_gainprm[muscle, 2] == -1


def test_what_depends_on_a_removed_limb_goes_too(robot: str) -> None:
    plain, model = compiled(robot), compiled(robot, "+remove=back")
    assert (model.njnt, model.nsensor, model.ntendon, model.neq, model.nexclude) == (3, 1, 0, 0, 0)
    np.testing.assert_array_equal(model.actuator_trnid[:, 0], [1, 2])
    np.testing.assert_array_equal(model.key_qpos[0], plain.key_qpos[0, :9])
    np.testing.assert_array_equal(model.key_ctrl[0], [1, 2])
    env = LocomotionVectorEnv(agents.load(f"{robot}+remove=back"))
    env.reset(seed=0)
    env.step(np.zeros((1, 2)))
    env.close()


def test_names_that_do_not_fit_a_file_name_are_numbers(robot: str) -> None:
    assert agents.load(f"{robot}+remove=front/hip").name == "bent+remove=body#2"
    assert agents.load(f"{robot}+remove=body#2").name == "bent+remove=body#2"
    assert agents.load(f"{robot}+broken=j1,actuator#2").name == "bent+broken=j1,m3"
    with pytest.raises(agents.UserError, match="no actuator 'm4': did you mean 'mu' or 'm3'"):
        agents.load(f"{robot}+broken=m4")


def test_friction_counts_on_the_floor_that_the_task_adds(robot: str) -> None:
    worn = []
    for changes in ("", "+friction=0.25"):
        env = LocomotionVectorEnv(agents.load(robot + changes))
        model, data = env.model, mujoco.MjData(env.model)
        assert (model.geom_bodyid == 0).any()  # a floor was added
        data.qpos[:7] = [0, 0, 0.1, 1, 0, 0, 0]
        mujoco.mj_forward(model, data)
        worn.append({float(contact.friction[0]) for contact in data.contact if 0 in model.geom_bodyid[contact.geom]})
        env.close()
    assert worn == [{1.0}, {0.25}]


def test_one_of_several_robots(tmp_path: Path) -> None:
    path = tmp_path / "two-arms.xml"
    path.write_text(TWO)
    with pytest.raises(agents.UserError, match=r"drive 2 trees \(left, right\)"):
        agents.load(f"{path}+mass=2")
    body = agents.load(f"{path}+mass=2", root_body="left")
    assert (body.name, body.root_body) == ("two-arms-left+mass=2", "left")
    plain = agents.load(path).compile().body_mass
    np.testing.assert_allclose(body.compile().body_mass, plain * [1, 2, 2, 1])
    assert agents.from_source(body.source) == body


def test_a_file_may_have_a_name_like_a_variation(robot: str, tmp_path: Path) -> None:
    odd = tmp_path / "x+mass=2.xml"
    odd.write_text(Path(robot).read_text())
    assert agents.load(odd).source["family"] == "file"
    assert agents.load(f"{odd}+mass=2").unvaried.source["family"] == "file"
    folder = tmp_path / "a+b=c"
    folder.mkdir()
    with pytest.raises(agents.UserError, match="there is no model file"):
        agents.load(folder / "missing.xml")
