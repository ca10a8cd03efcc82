"""Start poses: which one, inside the limits, out of the floor, with noise on the robot alone."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from agents.errors import UserError
from envs.robot import find_robot
from envs.tasks.geometry import Geometry
from envs.tasks.reset import StartPose, find_keyframe

WORLD = """<mujoco><option timestep="0.005"/><worldbody>{world}</worldbody>
<actuator><motor joint="knee" ctrlrange="-1 1" ctrllimited="true"/></actuator>{rest}</mujoco>"""
FLOOR = '<geom type="plane" size="5 5 1" pos="0 0 {z}"/>'
LEGGED = """<body name="base" pos="0 0 {z}" euler="0 0 30">{root}<geom type="box" size=".2 .1 .05"/>
<body pos="0 0 -.1"><joint name="hip" type="ball" range="0 20"/><geom type="sphere" size=".03"/>
<body><joint name="knee" axis="0 1 0" range="10 60" limited="true"/>
<geom type="capsule" size=".02" fromto="0 0 0 0 0 -.3"/>
<body pos="0 0 -.3"><joint name="toe" type="slide" axis="0 0 1" range="-.01 .02"/><geom type="sphere" size=".02"/>
</body></body></body></body>"""
PROP = '<body name="ball" pos="1 0 2"><freejoint/><geom type="sphere" size=".1"/></body>'
KEYS = """<keyframe><key name="low" qpos="{ball}0 0 .1 2 0 0 0 0.5 .5 .5 .5 .3 0" ctrl=".3"/>
<key name="high" qpos="{ball}0 0 .9 1 0 0 0 1 0 0 0 2 1" qvel="{zeros}0 0 0 0 0 0 0 0 0 0 .5" ctrl="-.3"/></keyframe>"""


def compiled(root: str = "<freejoint/>", z: float = 1.0, floor: str = FLOOR.format(z=0), keys: bool = False):
    rest = KEYS.format(ball="1 0 2 3 0 0 0 ", zeros="0 0 0 0 0 0 ") if keys else ""
    text = WORLD.format(world=floor + PROP + LEGGED.format(root=root, z=z), rest=rest)
    return mujoco.MjModel.from_xml_string(text)


def start(model: mujoco.MjModel, reset: str = "auto") -> StartPose:
    return StartPose(model, find_robot(model), find_keyframe(model, reset, "it"))


def test_which_keyframe() -> None:
    bare, keyed = compiled(), compiled(keys=True)
    assert [find_keyframe(bare, reset) for reset in ("auto", "qpos0")] == [-1, -1]
    resets = ("auto", "qpos0", "keyframe", "keyframe:low", "keyframe:high", "keyframe:1")
    assert [find_keyframe(keyed, reset) for reset in resets] == [0, -1, 0, 0, 1, 1]
    with pytest.raises(UserError, match=r"no keyframe 'hihg': did you mean 'high'"):
        find_keyframe(keyed, "keyframe:hihg")
    with pytest.raises(UserError, match="body 'it' has no keyframe: choose qpos0"):
        find_keyframe(bare, "keyframe", "it")


def test_the_robot_is_moved_into_its_limits_and_the_rest_stays() -> None:
    model = compiled(keys=True)
    high, zero = start(model, "keyframe:high"), start(model, "qpos0")
    knee, toe = (model.joint(name).qposadr[0] for name in ("knee", "toe"))
    assert high.qpos[[knee, toe]] == pytest.approx([np.deg2rad(60), 0.02])
    assert zero.qpos[[knee, toe]] == pytest.approx([np.deg2rad(10), 0.0])
    assert high.qvel[-1] == 0.5
    low = start(model, "keyframe:low")
    hip = model.joint("hip").qposadr[0]
    turn = np.zeros(3)
    mujoco.mju_quat2Vel(turn, low.qpos[hip : hip + 4], 1.0)
    np.testing.assert_allclose(turn, np.deg2rad(20) * np.ones(3) / np.sqrt(3), rtol=1e-9)  # 120 degrees before
    np.testing.assert_allclose(low.qpos[:7], [1, 0, 2, 1, 0, 0, 0])
    np.testing.assert_allclose(np.linalg.norm(low.qpos[10:14]), 1)


@pytest.mark.parametrize(
    "floor",
    [
        FLOOR.format(z=0.3),
        '<body mocap="true"><geom type="sphere" size=".01"/></body>' + FLOOR.format(z=-3) + FLOOR.format(z=0.3),
        '<geom type="box" size="5 5 .1" pos="0 0 .2"/>',
    ],
)
def test_the_robot_is_lifted_out_of_the_floor(floor: str) -> None:
    for root in ("<freejoint/>", '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 -1"/>'):
        model = compiled(root, z=0.2 if "plane" in floor else 0.6, floor=floor)
        pose = start(model)
        assert pose.geometry.lowest(pose.data) == pytest.approx(0.3, abs=1e-3)
        assert pose.floor == pytest.approx(0.3, abs=1e-3)
        for seed in range(5):
            pose.data.qpos[:] = pose.draw(np.random.default_rng(seed), 0.5)[0]
            mujoco.mj_kinematics(model, pose.data)
            assert pose.geometry.lowest(pose.data) > 0.3 - (1e-9 if "plane" in floor else 0.2)


def test_a_robot_above_the_floor_or_fixed_in_height_stays_where_it_is() -> None:
    model = compiled(z=2.0)
    np.testing.assert_array_equal(start(model).qpos[7:10], model.qpos0[7:10])
    model = compiled('<joint type="slide" axis="1 0 0"/>', z=0.1)
    pose = start(model)
    assert pose.geometry.lowest(pose.data) < -0.2
    assert pose.floor == 0.0
    model = compiled(z=2.0, floor="")
    pose = start(model)
    assert pose.floor == pytest.approx(pose.geometry.lowest(pose.data))


def test_noise() -> None:
    model = compiled(keys=True)
    pose = start(model, "qpos0")
    noise, draws = 0.1, [pose.draw(np.random.default_rng(seed), 0.1) for seed in range(400)]
    qpos, qvel = np.array([draw[0] for draw in draws]), np.array([draw[1] for draw in draws])
    np.testing.assert_array_equal(qpos[:, :10], np.tile(pose.qpos[:10], (400, 1)))  # the prop, the root's place
    np.testing.assert_array_equal(qvel[:, :9], 0)
    np.testing.assert_allclose(np.linalg.norm(qpos[:, 10:14], axis=1), 1)
    knee, toe = qpos[:, -2], qpos[:, -1]
    half = np.deg2rad(25) * noise
    assert knee.min() == np.deg2rad(10)  # at the limit, where half of the noise is cut off
    assert np.deg2rad(10) + 0.9 * half < knee.max() <= np.deg2rad(10) + half
    assert 0.9 * 0.0015 < np.abs(toe).max() <= 0.0015
    np.testing.assert_allclose(qvel.std(axis=0)[-2:], [half, 0.0015], rtol=0.1)
    np.testing.assert_allclose(qvel.std(axis=0)[9:12], 0.1, rtol=0.1)
    again = pose.draw(np.random.default_rng(0), 0.1)
    np.testing.assert_array_equal(again[0], qpos[0])
    still = pose.draw(np.random.default_rng(0), 0.0)
    np.testing.assert_allclose(still[0], pose.qpos, atol=1e-15)
    np.testing.assert_array_equal(still[1], 0)


@pytest.mark.parametrize(
    "geom",
    [
        'type="sphere" size=".1"',
        'type="capsule" size=".05 .2"',
        'type="ellipsoid" size=".1 .2 .05"',
        'type="cylinder" size=".1 .2"',
        'type="box" size=".1 .2 .05"',
        'type="mesh" mesh="wedge"',
    ],
)
def test_lowest_point(geom: str) -> None:
    """Against MuJoCo's distance to the plane."""
    text = (
        '<mujoco><asset><mesh name="wedge" vertex="0 0 0 .3 0 0 0 .2 0 0 0 .1 .05 .05 .05"/></asset><worldbody>'
        f'<geom type="plane" size="1 1 1"/><body><freejoint/><geom {geom}/><body pos=".1 0 .2"><joint name="j"/>'
        '<geom type="sphere" size=".01"/></body></body></worldbody><actuator><motor joint="j"/></actuator></mujoco>'
    )
    model = mujoco.MjModel.from_xml_string(text)
    data, geometry = mujoco.MjData(model), Geometry(model, find_robot(model))
    rng = np.random.default_rng(0)
    for _ in range(20):
        data.qpos[:3], data.qpos[3:7] = [0, 0, 1], rng.standard_normal(4)
        mujoco.mj_normalizeQuat(model, data.qpos)
        mujoco.mj_kinematics(model, data)
        distance = mujoco.mj_geomDistance(model, data, 0, 1, 5.0, None)
        assert geometry.lowest(data, np.array([1])) == pytest.approx(distance, abs=1e-6)
        assert geometry.lowest(data) <= distance + 1e-9
