"""Actions reach the ends of every control range, and 0 the nominal control."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import agents
from envs.actions import ControlMap, control_kind

SHELL = """
<mujoco><worldbody><body><joint name="j"/><geom size=".1"/></body></worldbody>
<actuator>{actuators}</actuator><keyframe>{keys}</keyframe></mujoco>
"""


def control_map(*ranges: str, keys: str = "") -> ControlMap:
    actuators = "".join(f'<motor name="m{i}" joint="j" {limits}/>' for i, limits in enumerate(ranges))
    return ControlMap(mujoco.MjModel.from_xml_string(SHELL.format(actuators=actuators, keys=keys)))


def test_centipede_motors_get_the_clipped_action() -> None:
    actions = np.array([[-3.0, -1.0, -0.25, 0.0, 0.7, 2.0]])
    control = ControlMap(agents.load("centipede-3").compile()).control(actions)
    np.testing.assert_array_equal(control, [[-1.0, -1.0, -0.25, 0.0, 0.7, 1.0]])


def test_two_straight_pieces_about_the_nominal_control() -> None:
    mapped = control_map('ctrlrange="-1 3"', 'ctrlrange="2 6"', 'ctrlrange="0 1"')
    expected = {-1.0: [-1, 2, 0], -0.5: [-0.5, 3, 0.25], 0.0: [0, 4, 0.5], 0.5: [1.5, 5, 0.75], 1.0: [3, 6, 1]}
    for action, controls in expected.items():
        np.testing.assert_allclose(mapped.control(np.full((1, 3), action)), [controls])


def test_keyframe_gives_the_nominal_control() -> None:
    mapped = control_map('ctrlrange="-1 3"', 'ctrlrange="2 6"', keys='<key ctrl="2 6"/>')
    # The second lies on an end of its range, where half of the actions would do nothing: the middle takes its place.
    np.testing.assert_allclose(mapped.control(np.zeros((1, 2))), [[2, 4]])
    np.testing.assert_allclose(mapped.control(np.ones((1, 2))), [[3, 6]])


# What stands in the actuator, its kind, and the range that it gets without one of its own.
UNLIMITED = {
    '<motor joint="hinge" gear="30"/>': ("force", -1, 1),
    '<motor joint="hinge" forcerange="-8 6"/>': ("force", -8, 8),
    '<general joint="hinge" gainprm="4" forcerange="-8 8"/>': ("force", -2, 2),
    '<motor joint="weak" gear="2"/>': ("force", -1.5, 1.5),
    '<position joint="hinge" kp="9" gear="2"/>': ("position", -2, 1),
    '<position joint="turn" kp="9"/>': ("position", -np.pi, np.pi),
    '<position joint="slide" kp="9"/>': ("position", -0.2, 0.4),
    '<position tendon="cord" kp="9"/>': ("position", 0.1, 0.7),
    '<velocity joint="hinge" kv="9"/>': ("velocity", -1, 1),
    '<damper joint="hinge" ctrlrange="0 2"/>': ("force", 0, 2),
    '<intvelocity joint="hinge" kp="3" actrange="-2 4"/>': ("integrated velocity", -3, 3),
    '<muscle joint="hinge"/>': ("excitation", 0, 1),
}
ARM = """
<mujoco><compiler angle="radian"/><worldbody><body><joint name="hinge" range="-1 .5"/><joint name="turn" axis="0 1 0"/>
<joint name="weak" axis="1 0 0" actuatorfrcrange="-3 3"/><joint name="slide" type="slide" range="-.2 .4"/>
<geom size=".1"/></body></worldbody>
<tendon><fixed name="cord" limited="true" range=".1 .7"><joint joint="slide" coef="1"/></fixed></tendon>
<actuator>{actuator}</actuator></mujoco>
"""


@pytest.mark.parametrize("actuator", UNLIMITED)
def test_unlimited_controls_get_a_finite_range(actuator: str) -> None:
    model = mujoco.MjModel.from_xml_string(ARM.format(actuator=actuator))
    mapped = ControlMap(model)
    kind, low, high = UNLIMITED[actuator]
    assert control_kind(model, 0) == kind
    np.testing.assert_allclose([mapped.low, mapped.high], [[low], [high]])
    assert mapped.declared.tolist() == ["ctrlrange" not in actuator]
    np.testing.assert_allclose(mapped.control(np.array([[-1.0], [1.0]])), [[low], [high]])


@pytest.mark.parametrize(
    ("limit", "gear", "reach"),
    [("", "0 2 0", 2 * np.pi), ("", "0 3 -4", 5 * np.pi), ('range="0 0.5"', "0 2 0", 1.0), ("", "0 0 0", 1.0)],
)
def test_a_servo_on_a_ball_joint_reaches_every_turn(limit: str, gear: str, reach: float) -> None:
    text = """<mujoco><compiler angle="radian"/><worldbody><body><joint name="b" type="ball" {limit}/><geom size=".1"/>
    </body></worldbody><actuator><position joint="b" kp="9" gear="{gear} 0 0 0"/></actuator></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text.format(limit=limit, gear=gear))
    mapped = ControlMap(model)
    np.testing.assert_allclose([mapped.low, mapped.high], [[-reach], [reach]])
    vector = np.array(gear.split(), dtype=float)
    if vector.any():  # the length that MuJoCo gives to a turn of 0.3 rad about the gear is that share of the largest
        data = mujoco.MjData(model)
        mujoco.mju_axisAngle2Quat(data.qpos, vector / np.linalg.norm(vector), 0.3)
        mujoco.mj_forward(model, data)
        assert data.actuator_length[0] == pytest.approx(reach * 0.3 / (0.5 if limit else np.pi))


def test_a_servo_on_a_free_joint_is_a_plain_force() -> None:
    """MuJoCo gives it no length, so no range of positions means anything."""
    text = """<mujoco><worldbody><body><freejoint name="f"/><geom size=".1"/></body></worldbody><actuator>
    <position joint="f" gear="0 0 3 0 0 0"/></actuator></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    data.qpos[2] = 0.7
    mujoco.mj_forward(model, data)
    assert data.actuator_length[0] == 0
    np.testing.assert_allclose([ControlMap(model).low, ControlMap(model).high], [[-1], [1]])


def test_servos_with_several_controls() -> None:
    model = mujoco.MjModel.from_xml_string(
        ARM.format(actuator='<pid joint="hinge" kp="3" kv="1"/><motor joint="turn"/>')
    )
    mapped = ControlMap(model)
    assert [control_kind(model, 0, 0), control_kind(model, 0, 1), control_kind(model, 1)] == [
        "position",
        "velocity",
        "force",
    ]
    np.testing.assert_allclose([mapped.low, mapped.high], [[-1, -1, -1], [0.5, 1, 1]])


def test_keyframe_is_chosen_by_the_reset() -> None:
    model = mujoco.MjModel.from_xml_string(
        SHELL.format(actuators='<motor joint="j" ctrlrange="-1 1"/>', keys='<key ctrl=".2"/><key ctrl="-.4"/>')
    )
    nominal = [ControlMap(model, keyframe=keyframe).nominal.item() for keyframe in (-1, 0, 1)]
    assert nominal == [0.0, 0.2, -0.4]
