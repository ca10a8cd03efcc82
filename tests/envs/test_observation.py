"""The observation layout: every column has an owner, a feature and a unit, and holds what it says."""

from __future__ import annotations

from collections import Counter

import mujoco
import numpy as np
import pytest

import agents
from envs import LocomotionVectorEnv, paper_layout
from envs.observation import BODY, JOINT, WORLD


@pytest.mark.parametrize(("name", "size"), [("centipede-3", 81), ("centipede-6", 139), ("centipede-20", 433),
                                            ("centipede-6-crippled", 139)])  # fmt: skip
def test_size_and_lengths(name: str, size: int) -> None:
    layout = paper_layout(agents.load(name).compile())
    assert layout.size == size
    assert layout.feature_set == "paper"
    assert {len(layout.names), len(layout.features), len(layout.units)} == {size}
    assert layout.owner_kind.shape == layout.owner_id.shape == (size,)
    assert (layout.owner_kind.dtype, layout.owner_id.dtype) == (np.int8, np.int32)
    assert len(set(layout.names)) == size


def test_owners_on_centipede_6() -> None:
    model = agents.load("centipede-6").compile()
    layout = paper_layout(model)
    columns = list(
        zip(layout.features, layout.units, layout.owner_kind.tolist(), layout.owner_id.tolist(), strict=True)
    )
    assert columns[:5] == [("qpos_z", "m", JOINT, 0)] + [(f"qpos_quat_{a}", "1", JOINT, 0) for a in "wxyz"]
    assert columns[5:21] == [("qpos", "rad", JOINT, joint) for joint in range(1, 17)]
    assert columns[21:24] == [(f"qvel_{a}", "m/s", JOINT, 0) for a in "xyz"]
    assert columns[24:27] == [(f"qvel_angular_{a}", "rad/s", JOINT, 0) for a in "xyz"]
    assert columns[27:43] == [("qvel", "rad/s", JOINT, joint) for joint in range(1, 17)]
    for body in range(16):
        kind = BODY if body else WORLD
        units = ["N·m"] * 3 + ["N"] * 3
        assert columns[43 + 6 * body : 49 + 6 * body] == [
            (f"cfrc_ext_{i}", units[i], kind, body) for i in range(6)
        ]  # fmt: skip
    assert layout.names[5] == "qpos(lefthip_0)"


@pytest.mark.parametrize(
    ("name", "dropped"),
    [("ant", 2), ("humanoid", 2), ("half_cheetah", 1), ("hopper", 1), ("walker2d", 1), ("swimmer", 2)],
)
def test_absolute_position_in_the_plane_is_left_out(name: str, dropped: int) -> None:
    model = agents.load(name).compile()
    layout = paper_layout(model)
    assert layout.size == model.nq - dropped + model.nv + 6 * model.nbody
    assert Counter(layout.units)["m/s"] >= dropped  # the velocities stay


def test_fixed_base_and_ball_joint_keep_all_positions() -> None:
    model = mujoco.MjModel.from_xml_string("""
      <mujoco><worldbody><body><joint name="cart" type="slide" axis="1 0 0"/><geom size=".1"/>
        <body><joint type="ball"/><geom size=".1"/></body></body></worldbody>
      <actuator><motor joint="cart" ctrlrange="-1 1"/></actuator></mujoco>""")
    layout = paper_layout(model)
    assert layout.features[:5] == ("qpos", "qpos_quat_w", "qpos_quat_x", "qpos_quat_y", "qpos_quat_z")
    assert layout.features[5:9] == ("qvel", "qvel_angular_x", "qvel_angular_y", "qvel_angular_z")
    assert layout.names[1] == "qpos_quat_w(joint#1)"


def test_observations_hold_the_state() -> None:
    env = LocomotionVectorEnv("centipede-4", 3, num_threads=1)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    touched = np.zeros(3, dtype=bool)
    for _ in range(20):
        obs, _, _, _, _ = env.step_without_reset(rng.uniform(-1, 1, (3, 10)))
        assert (obs.shape, obs.dtype) == ((3, 97), np.float32)
        for i, data in enumerate(env.physics.data):
            contacts = np.clip(data.cfrc_ext, -1, 1).ravel()
            expected = np.concatenate([data.qpos[2:], data.qvel, contacts]).astype(np.float32)
            np.testing.assert_array_equal(obs[i], expected)
            np.testing.assert_array_equal(contacts[:6], 0)  # the world's row
            touched[i] |= np.abs(contacts).max() > 0.5
    assert touched.all()
