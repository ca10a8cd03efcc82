"""The tasks of Gymnasium's bodies against Gymnasium's own v5 environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

import agents
import envs
from agents.errors import UserError
from envs import LocomotionVectorEnv
from envs.tasks.options import TaskOptions

BODIES = {
    "ant": "Ant-v5",
    "half_cheetah": "HalfCheetah-v5",
    "hopper": "Hopper-v5",
    "humanoid": "Humanoid-v5",
    "swimmer": "Swimmer-v5",
    "walker2d": "Walker2d-v5",
}
STATE = mujoco.mjtState.mjSTATE_INTEGRATION
STEPS = 120


def theirs(body: str, **keywords: Any) -> Any:
    return gymnasium.make(BODIES[body], **keywords).unwrapped


def copy_state(source: LocomotionVectorEnv, env: int, target: Any) -> None:
    state = source.physics.get_state()[env]
    mujoco.mj_resetData(target.model, target.data)
    mujoco.mj_setState(target.model, target.data, state, STATE)
    mujoco.mj_forward(target.model, target.data)


@pytest.mark.parametrize("body", BODIES)
def test_same_physics_rewards_and_terminations(body: str) -> None:
    """In step with the v5 environment, restarted from our start whenever it ends; actions beyond the range too."""
    ours, other = LocomotionVectorEnv(body, 2, max_episode_steps=None), theirs(body)
    rng = np.random.default_rng(1)
    assert ours.dt == other.dt
    ours.reset(seed=3)
    copy_state(ours, 1, other)
    high, ends = ours.model.actuator_ctrlrange[0, 1], 0
    for step in range(STEPS):
        actions = rng.uniform(-1, 1, (2, ours.model.nu)) * (1.2 if step % 3 == 0 else 0.8)
        expected = other.step(high * actions[1])  # MuJoCo clips what is beyond the range, v5 charges it as it is
        _, rewards, terminated, _, infos = ours.step(actions)
        terms = {name: value for name, value in expected[4].items() if name.startswith("reward_")}
        assert set(terms) == {name for name in infos if name.startswith("reward_")}
        for name, value in terms.items():
            np.testing.assert_allclose(infos[name][1], value, rtol=1e-6, atol=1e-9, err_msg=f"{name}, step {step}")
        np.testing.assert_allclose(rewards[1], expected[1], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(infos["x_velocity"][1], expected[4]["x_velocity"], rtol=1e-6, atol=1e-9)
        assert terminated[1] == expected[2]
        if terminated[1]:
            ends += 1
            assert infos["termination_reason"][1].startswith("fall: the root's ")
            copy_state(ours, 1, other)
    assert (ends > 0) == (body not in ("half_cheetah", "swimmer"))
    ours.close()


@pytest.mark.parametrize("body", BODIES)
def test_same_starts(body: str) -> None:
    """Seed for seed; Gymnasium leaves noise on the length of quaternions."""
    ours, other = LocomotionVectorEnv(body, 1), theirs(body)
    ours.reset(seed=11)
    other.reset(seed=11)
    mujoco.mj_normalizeQuat(other.model, other.data.qpos)
    np.testing.assert_allclose(ours.physics.qpos[0], other.data.qpos, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours.physics.qvel[0], other.data.qvel, rtol=0, atol=1e-12)


@pytest.mark.parametrize("body", ["ant", "humanoid", "hopper"])
@pytest.mark.parametrize("end", [0, 1])
def test_same_ends_at_the_edges_of_the_healthy_range(body: str, end: int) -> None:
    ours, other = LocomotionVectorEnv(body, 1), theirs(body)
    ours.reset(seed=0)
    index = 1 if body == "hopper" else 2
    edge = other._healthy_z_range[end] if np.isfinite(other._healthy_z_range[end]) else 90.0
    for z in (np.nextafter(edge, -1e3), edge, np.nextafter(edge, 1e3)):
        ours.physics.qpos[0] = other.data.qpos[:] = ours.model.qpos0
        ours.physics.qpos[0, index] = other.data.qpos[index] = z
        ours.physics.qvel[0] = other.data.qvel[:] = 0
        outcome = ours._task.step(ours.physics, np.zeros((1, ours.model.nu)))
        assert any(mask[0] for mask in outcome.failures.values()) != other.is_healthy


def test_hopper_ends_at_wild_velocities_and_pitches() -> None:
    ours, other = LocomotionVectorEnv("hopper", 1), theirs("hopper")
    ours.reset(seed=0)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        qpos, qvel = ours.model.qpos0 + rng.normal(0, 0.3, 6), rng.normal(0, 50, 6)
        ours.physics.qpos[0] = other.data.qpos[:] = qpos
        ours.physics.qvel[0] = other.data.qvel[:] = qvel
        outcome = ours._task.step(ours.physics, np.zeros((1, 3)))
        seen |= {reason for reason, mask in outcome.failures.items() if mask[0]}
        assert any(mask[0] for mask in outcome.failures.values()) != other.is_healthy
    assert len(seen) == 3


def test_options_are_the_keywords_of_v5() -> None:
    keywords: dict[str, Any] = {
        "forward_reward_weight": 2.0,
        "ctrl_cost_weight": 0.3,
        "contact_cost_weight": 1e-3,
        "healthy_reward": 0.25,
        "healthy_z_range": (0.3, 0.9),
        "terminate_when_unhealthy": False,
        "reset_noise_scale": 0.02,
        "frame_skip": 3,
    }
    ours = LocomotionVectorEnv("ant", 1, task_options=TaskOptions(**keywords))
    other = theirs("ant", **keywords)
    ours.reset(seed=5)
    copy_state(ours, 0, other)
    rng = np.random.default_rng(0)
    for _ in range(60):
        action = rng.uniform(-1, 1, (1, 8))
        expected = other.step(action[0])
        _, rewards, terminated, _, _ = ours.step_without_reset(action)
        np.testing.assert_allclose(rewards[0], expected[1], rtol=1e-6, atol=1e-9)
        assert not terminated[0]


@pytest.mark.parametrize(
    ("body", "task", "options", "message"),
    [
        ("ant", None, TaskOptions(command=True), "task.command is no setting of the task 'ant-v5'"),
        ("ant", None, TaskOptions(reset="qpos0"), "task.reset is no setting"),
        ("half_cheetah", None, TaskOptions(healthy_z_range=(0.1, 1.0)), "task.healthy_z_range is no setting"),
        ("hopper", None, TaskOptions(contact_cost_weight=0.1), "task.contact_cost_weight is no setting"),
        ("centipede-4", None, TaskOptions(healthy_reward=2.0), "task.healthy_reward is no setting .* fixed"),
        ("walker2d", "hopper-v5", TaskOptions(), "is for the body 'hopper', not 'walker2d'"),
    ],
)
def test_what_does_not_fit_is_refused(body: str, task: str | None, options: TaskOptions, message: str) -> None:
    with pytest.raises(UserError, match=message):
        LocomotionVectorEnv(body, task=task, task_options=options)


def test_ids() -> None:
    for body, key in BODIES.items():
        assert agents.load(body).task == f"{body}-v5"
        vector = gymnasium.make_vec(f"Snowflake/{key.removesuffix('-v5')}-v0", num_envs=2)
        assert isinstance(vector, envs.LocomotionVectorEnv)
        assert (vector.morphology.name, vector.max_episode_steps) == (body, 1000)
        vector.close()
