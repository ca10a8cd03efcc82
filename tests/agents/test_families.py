"""The families of hoppers, walkers, cheetahs, ants and legged robots: sizes, masses, stance, refusals."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest

import agents
from agents import planar
from agents.tree import lowest
from envs import LocomotionVectorEnv

# name -> hinges, actuators, and bodies without the world
SIZES = {
    "hopper-2": (1, 1, 2), "hopper-4": (3, 3, 4), "hopper-9": (8, 8, 9), "walker-3": (2, 2, 3), "walker-6": (5, 5, 6),
    "walker-7": (6, 6, 7), "cheetah-3": (2, 2, 3), "cheetah-7": (6, 6, 7), "cheetah-8": (7, 7, 8),
    "ant-3": (6, 6, 7), "ant-4": (8, 8, 9), "ant-9": (18, 18, 19), "quadruped": (12, 12, 13),
    "quadruped-position": (12, 12, 13), "hexapod": (18, 18, 19), "hexapod-position": (18, 18, 19),
}  # fmt: skip
STANDING = ("cheetah-7", "ant-3", "ant-4", "ant-8", "quadruped", "quadruped-position", "hexapod", "hexapod-position")


@pytest.mark.parametrize("name", SIZES)
def test_sizes_and_stance(name: str) -> None:
    env = LocomotionVectorEnv(name)
    model, free = env.model, not name.startswith(("hopper", "walker", "cheetah"))
    hinges = int((model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE).sum())
    assert (hinges - (not free), model.nu, model.nbody - 1) == SIZES[name]  # a planar root turns about a hinge too
    assert len(env.robot.node_joints) == SIZES[name][0]
    assert env.layout.feature_set == "general"
    assert env.morphology.task == "locomotion"
    height = lowest(model, env.robot.bodies, model.qpos0)
    assert abs(height) < 0.002
    assert env._task.scale.can_fall
    assert env._task.scale.can_travel
    limits = model.jnt_range[model.jnt_limited != 0]
    assert ((limits[:, 0] < 0) & (limits[:, 1] > 0)).all()  # nothing starts at an end
    env.close()


def test_mass_of_a_hopper_in_closed_form() -> None:
    def capsule(radius: float, length: float) -> float:
        return math.pi * radius**2 * (length + 4 / 3 * radius)

    links = 3 * capsule(planar.LINK_RADIUS, (1.05 - planar.ANKLE_HEIGHT) / 3)
    foot = capsule(planar.FOOT_RADIUS, planar.TOE - planar.HEEL)
    expected = planar.DENSITY * (capsule(planar.TORSO_RADIUS, 0.40) + links + foot)
    assert agents.load("hopper-5").compile().body_mass.sum() == pytest.approx(expected, rel=1e-9)


def test_links_of_a_walker_are_shared_by_its_legs() -> None:
    names = [body.name for body in agents.load("walker-6").spec().bodies][2:]
    assert names == ["right_link_1", "right_link_2", "right_foot", "left_link_1", "left_foot"]


@pytest.mark.parametrize("name", STANDING)
def test_stands_a_second_without_action(name: str) -> None:
    env = LocomotionVectorEnv(name, 2)
    env.reset(seed=0)
    start = env.physics.xpos[:, 1, 2].copy()
    for _ in range(math.ceil(1.0 / env.dt)):
        _, _, terminated, _, infos = env.step(np.zeros((2, env.model.nu)))
        assert not terminated.any()
        assert not infos["unstable"].any()
    assert (env.physics.xpos[:, 1, 2] > 0.8 * start).all()
    env.close()


@pytest.mark.parametrize("name", ["hopper-4", "walker-7", "walker-33", "cheetah-9", "ant-5", "hexapod"])
def test_random_actions_keep_the_physics_stable(name: str) -> None:
    env = LocomotionVectorEnv(name, 2)
    env.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(40):
        assert not env.step(rng.uniform(-1, 1, (2, env.model.nu)))[4]["unstable"].any()
    env.close()


def test_servos_hold_the_angle_that_they_are_told() -> None:
    model = agents.load("quadruped-position").compile()
    data = mujoco.MjData(model)
    joint = model.joint("knee_left_0")
    data.ctrl[model.actuator("knee_left_0").id] = 0.5
    mujoco.mj_forward(model, data)
    force = data.qfrc_actuator[joint.dofadr[0]]
    assert force == pytest.approx(min(150.0 * 0.5, 40.0))
    assert agents.load("quadruped").compile().actuator_biastype.max() == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hopper-1", "between 2 and 33"),
        ("walker-2", "between 3 and 33"),
        ("cheetah-34", "between 3 and 33"),
        ("ant-2", "N legs must lie between 3 and 64"),
        ("ant-100000000000", "between 3 and 64"),
        ("walker-07", "did you mean"),
        ("quadruped-servo", "'quadruped-position'"),
    ],
)
def test_impossible_sizes(name: str, message: str) -> None:
    with pytest.raises(agents.UserError, match=message) as caught:
        agents.load(name)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_gymnasiums_bodies_keep_their_names() -> None:
    assert [agents.load(name).source["family"] for name in ("ant", "hopper")] == ["gymnasium"] * 2
    assert [agents.load(name).source["family"] for name in ("ant-4", "hopper-4")] == ["ant", "hopper"]


@pytest.mark.parametrize(
    "source",
    [{"family": "hopper", "arguments": {"legs": 4}}, {"family": "ant", "arguments": {"legs": True}},
     {"family": "ant", "arguments": {"legs": 2}}, {"family": "legged", "arguments": {"legs": 5}},
     {"family": "hopper", "arguments": {}}],
)  # fmt: skip
def test_broken_sources(source: dict) -> None:
    with pytest.raises(agents.UserError):
        agents.from_source(source)
