"""Actions reach the ends of every control range, and 0 the nominal control."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import agents
from envs.actions import ControlMap

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


def test_actuator_without_range_is_named() -> None:
    with pytest.raises(agents.UserError, match="'m1' has no control range"):
        control_map('ctrlrange="-1 1"', "")
