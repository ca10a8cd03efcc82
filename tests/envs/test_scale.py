"""What stands, flies, hangs and floats: sizes and falls of robots that are not on the ground."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from envs import LocomotionVectorEnv
from envs.robot import find_robot
from envs.tasks.options import TaskOptions
from envs.tasks.reset import StartPose
from envs.tasks.scale import Scale, measure
from tests.envs.robots import morphology

FLOOR = '<geom type="plane" size="9 9 1"/>'
# A flat cross, 0.6 m across and 0.02 m thick, that hovers over the floor.
DRONE = """<mujoco><option {option}/><worldbody>{world}<body name="hull" pos="0 0 {z}" {extra}><freejoint/>
<geom type="box" size=".3 .3 .01" mass="1"/><site name="l" pos="0 .2 0"/><site name="r" pos="0 -.2 0"/></body>
</worldbody>{rest}<actuator><motor site="l" gear="0 0 1 0 0 0" ctrlrange="0 13"/><motor site="r" gear="0 0 1 0 0 0"
ctrlrange="0 13"/></actuator><keyframe><key qpos="0 0 {z} 1 0 0 0" ctrl="4.905 4.905"/></keyframe></mujoco>"""
WALKER = """<mujoco><worldbody>{world}<body name="trunk" pos="0 0 {z}" {extra}><freejoint/><geom size=".1"/>
<site name="top"/><body pos="0 0 -.1"><joint name="hip" axis="0 1 0"/><geom type="capsule" size=".05"
fromto="0 0 0 0 0 -.35" /></body></body></worldbody>{rest}<actuator><motor joint="hip"/></actuator></mujoco>"""


def scale_of(text: str, world: str = FLOOR, z: float = 1.0, extra: str = "", rest: str = "", option: str = "") -> Scale:
    model = mujoco.MjModel.from_xml_string(text.format(world=world, z=z, extra=extra, rest=rest, option=option))
    robot = find_robot(model)
    return measure(model, robot, StartPose(model, robot, 0 if model.nkey else -1))


def test_a_drone_is_as_large_as_its_box_and_crashes_when_it_has_lost_half_its_height() -> None:
    flying = scale_of(DRONE)
    assert (flying.support, flying.can_fall) == ("air", True)
    assert flying.length == pytest.approx(np.hypot(0.3, 0.3), rel=0.01)  # not its 1 cm of thickness
    assert flying.healthy_z_range == pytest.approx((1.0 - 0.99 / 2, 2.0))
    assert scale_of(DRONE, z=0.01).support == "ground"


def test_a_drone_ends_its_episode_when_it_drops_and_not_while_it_hovers(tmp_path: Path) -> None:
    body = morphology(tmp_path, DRONE.format(world="", z=1.0, extra="", rest="", option=""))
    for action, falls in ((0.0, False), (-1.0, True)):
        env = LocomotionVectorEnv(body, task="locomotion", task_options=TaskOptions(reset_noise_scale=0.0))
        env.reset(seed=0)
        assert env.model.ngeom == 2  # a floor was put under it, at height 0
        ends = [env.step_without_reset(np.full((1, 2), action)) for _ in range(25)]
        assert any(end[2][0] for end in ends) == falls
        reasons = {str(end[4]["termination_reason"][0]) for end in ends if "termination_reason" in end[4]}
        assert any(reason.startswith("fall") for reason in reasons) == falls


@pytest.mark.parametrize(
    ("extra", "option"),
    [('gravcomp="1"', ""), ("", 'gravity="0 0 0"'), ("", 'gravity="0 0 3"')],
)
def test_what_has_no_weight_floats_and_never_falls(extra: str, option: str) -> None:
    floating = scale_of(DRONE, extra=extra, option=option)
    assert (floating.support, floating.can_fall) == ("none", False)
    assert floating.length == pytest.approx(np.hypot(0.3, 0.3), rel=0.01)
    assert scale_of(DRONE, extra='gravcomp="0.5"').support == "air"


def test_a_robot_on_a_driven_rail_is_carried_by_it() -> None:
    rail = '<joint name="rail" type="slide" axis="0 0 1"/>'
    undriven = WALKER.replace("<freejoint/>", rail)
    driven = undriven.replace("<actuator>", '<actuator><motor joint="rail"/>')
    assert (scale_of(undriven).support, scale_of(undriven).can_fall) == ("ground", True)
    assert (scale_of(driven).support, scale_of(driven).can_fall) == ("none", False)
    thrust = undriven.replace("<actuator>", '<actuator><motor site="top" gear="0 0 1 0 0 0"/>')  # a planar drone
    assert scale_of(thrust, z=2.0).support == "air"


def test_a_walker_stands_or_drops_on_the_ground_and_hangs_where_something_ties_it() -> None:
    for z in (0.5, 0.52, 2.0):
        standing = scale_of(WALKER, z=z)
        assert (standing.support, standing.can_fall) == ("ground", True)
        assert standing.length == pytest.approx(0.5)
        assert standing.healthy_z_range[0] == pytest.approx(0.25)
    weld = '<equality><connect body1="trunk" anchor="0 0 0"/></equality>'
    cord = """<tendon><spatial limited="true" range="0 1"><site site="hook"/><site site="top"/></spatial></tendon>"""
    hook = FLOOR + '<site name="hook" pos="0 0 3"/>'
    for rest in (weld, cord):
        hanging = scale_of(WALKER, hook, z=2.0, rest=rest)
        assert (hanging.support, hanging.can_fall) == ("air", True)
        assert hanging.healthy_z_range == pytest.approx((2.0 - 1.5 / 2, 4.0))
    off = weld.replace("connect ", 'connect active="false" ')
    assert scale_of(WALKER, z=2.0, rest=off).support == "ground"
