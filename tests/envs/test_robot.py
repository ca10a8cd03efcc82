"""Which part of a model is the robot, and what its controls act on."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from agents import UserError
from envs.robot import Robot, display_name, element_name, find_robot, transmission
from tests.envs.robots import ROBOTS, TWO_ROBOTS

ROOT = -1
# root body, moving body of every body, joints merged in the root, joints with nodes, attachments
EXPECTED: dict[str, tuple[int, list[int], list[int], list[int], tuple[tuple[int, ...], ...]]] = {
    "plain": (1, [-1, 1, 2, 2, 4, 4], [0], [1, 2], ((2,), (1,))),
    "box before": (2, [-1, -1, 2, 3, 3, 5, 5], [1], [2, 3], ((3,), (2,))),
    "box after": (1, [-1, 1, 2, 2, 4, 4, -1], [0], [1, 2], ((2,), (1,))),
    "mocap": (2, [-1, -1, 2, 3, 3, 5, 5], [0], [1, 2], ((2,), (1,))),
    "planar root": (1, [-1, 1, 2, 2, 4, 4], [0, 1, 2], [3, 4], ((4,), (3,))),
    "ball joint": (1, [-1, 1, 2, 2, 4, 5, 5], [0], [1, 2, 3], ((3,), (1,), (2,))),
    "passive ball": (2, [-1, -1, 2, 3, 3, 5, 6, 6], [1], [2, 3, 4], ((4,), (2,))),
    "slide joint": (1, [-1, 1, 2, 2, 4, 5, 6, 6], [0], [1, 2, 3, 4], ((1,), (2,), (3,))),
    "several joints a body": (1, [-1, 1, 2, 2, 4, 5, 5], [0], [1, 2, 3, 4, 5], ((3,), (1,))),
    "fixed base": (1, [-1, 1, 2, 3], [], [0, 1], ((1,), (0,))),
    "several actuators a joint": (1, [-1, 1, 2, 3], [], [0, 1], ((1,), (1,), (0,), (1,), (0,), (0,), (1,))),
    "several controls an actuator": (1, [-1, 1, 2, 3], [], [0, 1], ((0,), (0,), (1,))),
    "orientation servo": (1, [-1, 1, 2, 2, 4, 5, 5], [0], [1, 2, 3], ((1,), (2,), (2,), (2,), (3,))),
    "fixed tendon": (1, [-1, 1, 2, 3], [], [0, 1], ((0, 1),)),
    "spatial tendon": (1, [-1, 1, 2, 3], [], [0, 1], ((ROOT, 0, 1),)),
    "muscle": (1, [-1, 1, 2, 3], [], [0, 1], ((ROOT, 0, 1), (1,))),
    "site": (1, [-1, 1, 2, 2, 4, 4], [0], [1, 2], ((ROOT,), (1,))),
    "joint in parent": (1, [-1, 1, 2, 2, 4, 5, 5], [0], [1, 2, 3], ((2,), (1,))),
    "adhesion": (1, [-1, 1, 2, 2, 4, 4], [0], [1, 2], ((1,), (2,))),
    "slider-crank": (1, [-1, 1, 2, 3], [], [0, 1], ((ROOT, 1), (1,))),
    "drone": (1, [-1, 1], [0], [], ((ROOT,), (ROOT,))),
    "pendulum": (1, [-1, 1], [], [0], ((0,),)),
    "tendon to the world": (1, [-1, 1], [], [0], ((0,),)),
}


def find(xml: str, root_body: str | None = None) -> Robot:
    return find_robot(mujoco.MjModel.from_xml_string(xml), root_body, "body 'x'")


def test_every_model_is_expected_to_be_something() -> None:
    assert set(EXPECTED) == set(ROBOTS)


@pytest.mark.parametrize("name", ROBOTS)
def test_robots(name: str) -> None:
    robot = find(ROBOTS[name])
    root, moving, merged, nodes, attachments = EXPECTED[name]
    assert robot.root_body == root
    assert robot.moving_body.tolist() == moving
    assert robot.bodies.tolist() == [body for body, carrier in enumerate(moving) if carrier >= 0]
    assert robot.root_joints.tolist() == merged
    assert robot.node_joints.tolist() == nodes
    assert robot.attachments == attachments
    assert robot.controls.tolist() == list(range(len(attachments)))


def test_an_actuator_may_own_several_controls() -> None:
    assert find(ROBOTS["several controls an actuator"]).actuators.tolist() == [0, 0, 1]
    assert find(ROBOTS["orientation servo"]).actuators.tolist() == [0, 1, 1, 1, 2]


def test_the_tree_is_chosen_where_several_are_actuated() -> None:
    with pytest.raises(
        UserError, match=r"body 'x' has 2 actuated trees.* 'left', 'body#2': choose one with --root-body"
    ):
        find(TWO_ROBOTS)
    left, right = find(TWO_ROBOTS, "left"), find(TWO_ROBOTS, "body#2")
    assert (left.controls.tolist(), left.attachments) == ([1], ((0,),))
    assert (right.controls.tolist(), right.attachments) == ([0, 2], ((1,), (2,)))
    assert right.bodies.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("root_body", "message"),
    [("tip", "part of 'body#2'"), ("lefd", "did you mean 'left'"), ("floor", "no root body 'floor'")],
)
def test_wrong_root_bodies(root_body: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        find(TWO_ROBOTS, root_body)


def test_a_prop_is_no_root_body() -> None:
    with pytest.raises(UserError, match="no actuator acts on the root body 'box': choose from 'torso'"):
        find(ROBOTS["box after"], "box")


BAD = {
    "body 'x' has no actuator": "<mujoco><worldbody><body><joint/><geom size='.1'/></body></worldbody></mujoco>",
    r"actuator 'glue' \(body\) acts on nothing that moves": """<mujoco><worldbody><body><joint name="j"/>
<geom size=".1"/></body><body name="post"><geom size=".1"/></body></worldbody><actuator><motor joint="j"/>
<adhesion name="glue" body="post" ctrlrange="0 1"/></actuator></mujoco>""",
    r"actuator 'rope' \(spatial tendon\) acts between the separate trees 'a' and 'b'": """<mujoco><worldbody>
<body name="a"><joint/><geom size=".1"/><site name="a"/></body><body name="b" pos="1 0 0"><joint/><geom size=".1"/>
<site name="b"/></body></worldbody><tendon><spatial name="t"><site site="a"/><site site="b"/></spatial></tendon>
<actuator><motor name="rope" tendon="t"/></actuator></mujoco>""",
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_no_robot_is_refused_by_name(message: str) -> None:
    with pytest.raises(UserError, match=message):
        find(BAD[message], "a" if "rope" in message else None)


def test_advice_for_an_actuator_between_trees_is_one_that_works() -> None:
    """--root-body helps only to a tree that no such actuator acts on."""
    rope = next(text for message, text in BAD.items() if "rope" in message)
    with pytest.raises(UserError, match="so put one body into the other in the file, or remove this actuator") as told:
        find(rope)
    assert "--root-body" not in str(told.value)
    third = rope.replace("</worldbody>", '<body name="c"><joint name="c"/><geom size=".1"/></body></worldbody>')
    third = third.replace("</actuator>", '<motor joint="c"/></actuator>')
    with pytest.raises(UserError, match="'a', 'b', 'c': choose 'c' with --root-body"):
        find(third)
    assert find(third, "c").attachments == ((2,),)
    with pytest.raises(UserError, match="acts between the separate trees"):
        find(third, "a")


def test_names_that_are_no_utf8_are_as_good_as_none() -> None:
    """A file in Latin-1 without saying so: MuJoCo keeps the bytes, and its bindings cannot decode them."""
    xml = ROBOTS["fixed base"].replace("shoulder", "Schulter").encode().replace(b"Schulter", b"Schult\xfcr")
    model = mujoco.MjSpec.from_file("robot.xml", include={"robot.xml": xml}).compile()
    with pytest.raises(UnicodeDecodeError):
        mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, 0)
    joint = mujoco.mjtObj.mjOBJ_JOINT
    assert (element_name(model, joint, 0), display_name(model, joint, 0)) == ("", "joint#0")
    assert display_name(model, joint, 1) == "elbow"


def test_transmissions_in_words() -> None:
    model = mujoco.MjModel.from_xml_string(ROBOTS["muscle"])
    assert [transmission(model, actuator) for actuator in range(2)] == ["spatial tendon", "joint"]
    model = mujoco.MjModel.from_xml_string(ROBOTS["fixed tendon"])
    assert transmission(model, 0) == "fixed tendon"


def test_names_mean_nothing() -> None:
    xml = ROBOTS["muscle"]
    for number, name in enumerate(("upper", "lower", "shoulder", "elbow", "cord", "hand", "pulley")):
        xml = xml.replace(f'"{name}"', f'"{97 - number}"')
    xml = xml.replace('<body name="base"', "<body")
    renamed, plain = find(xml), find(ROBOTS["muscle"])
    for field in ("bodies", "moving_body", "root_joints", "node_joints", "controls", "actuators"):
        np.testing.assert_array_equal(getattr(renamed, field), getattr(plain, field))
    assert renamed.attachments == plain.attachments


def test_robots_are_read_only() -> None:
    robot: Any = find(ROBOTS["plain"])
    with pytest.raises(ValueError, match="read-only"):
        robot.controls[0] = 1
