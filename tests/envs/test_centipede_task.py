"""The Centipede's task against its published numbers and against a plain computation of one episode."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
import pytest

import agents
from envs import LocomotionVectorEnv
from envs.robot import find_robot
from envs.tasks.centipede import CentipedeTask
from envs.tasks.options import TaskOptions


def first_episodes(name: str, num_envs: int, act: Callable[[], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return and length of the first episode of every environment."""
    env = LocomotionVectorEnv(name, num_envs)
    env.reset(seed=0)
    returns, lengths, running = np.zeros(num_envs), np.zeros(num_envs), np.ones(num_envs, dtype=bool)
    while running.any():
        _, rewards, terminated, truncated, _ = env.step(act())
        returns += rewards * running
        lengths += running
        running &= ~(terminated | truncated)
    env.close()
    return returns, lengths


def test_uniform_random_play() -> None:
    rng = np.random.default_rng(0)
    returns, lengths = first_episodes("centipede-6", 64, lambda: rng.uniform(-1, 1, (64, 16)))
    assert returns.mean() == pytest.approx(-29, abs=9)
    assert lengths.mean() == pytest.approx(34, abs=8)


def test_normal_random_play() -> None:
    rng = np.random.default_rng(0)
    returns, _ = first_episodes("centipede-6", 64, lambda: rng.standard_normal((64, 16)))
    assert returns.mean() == pytest.approx(-143, abs=45)


def test_zero_action_stands_and_goes_nowhere() -> None:
    env = LocomotionVectorEnv("centipede-8", 8)
    env.reset(seed=0)
    x = env._task.get_state()["x"]
    ended = np.zeros(8, dtype=bool)
    for _ in range(60):
        _, rewards, terminated, _, infos = env.step_without_reset(np.zeros((8, 22)))
        ended |= terminated
    assert ended.sum() <= 3  # random play never lasts that long in most starts
    np.testing.assert_array_equal(infos["reward_ctrl"], 0)
    np.testing.assert_array_equal(infos["energy"], 0)
    assert rewards[~ended].min() > 0.5
    assert np.abs(infos["x_position"] - x)[~ended].max() < 0.5


@pytest.mark.parametrize("name", ["centipede-3", "centipede-6"])
def test_rewards_and_ends_of_a_plain_loop(name: str) -> None:
    """One episode, from the same start, by MuJoCo alone and names; actions beyond [-1, 1] are charged as they are."""
    env = LocomotionVectorEnv(name, 1)
    model = agents.load(name).compile()
    legs, data, rng = int(name.split("-")[1]), mujoco.MjData(model), np.random.default_rng(3)
    torsos = [f"torso_{k}" for k in range((legs + 1) // 2)]
    env.reset(seed=5)
    mujoco.mj_setState(model, data, env.get_state()["physics"][0], mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_kinematics(model, data)
    terminated, steps = False, 0
    while not terminated:
        action = rng.uniform(-1.5, 1.5, model.nu)
        x = data.body(torsos[-1]).xpos[0]
        data.ctrl[:] = np.clip(action, -1, 1)
        mujoco.mj_step(model, data, 5)
        mujoco.mj_rnePostConstraint(model, data)
        forward = (data.body(torsos[-1]).xpos[0] - x) / 0.05
        control = -2 / legs * np.sum(action**2)
        contact = -0.002 / legs * np.sum(np.clip(data.cfrc_ext, -1, 1) ** 2)
        place = np.array([data.body(torso).xpos for torso in torsos])
        fell = not np.all((place[:, 2] > 0.35) & (place[:, 2] < 1.15) & np.isfinite(data.qvel).all())
        fell = fell or bool(np.any(np.abs(place[1:, 1] - place[:-1, 1]) >= 0.45))
        energy = np.sum(np.abs(data.actuator_force * data.actuator_velocity)) * 0.05

        _, rewards, ended, _, infos = env.step_without_reset(action[None])
        terminated, steps = bool(ended[0]), steps + 1
        assert terminated == fell
        got = [infos[f"reward_{term}"][0] for term in ("forward", "ctrl", "contact", "survive")]
        np.testing.assert_allclose(got, [forward, control, contact, 1.0], rtol=1e-9, atol=1e-12)
        assert rewards[0] == pytest.approx(forward + control + contact + 1.0)
        assert infos["x_velocity"][0] == pytest.approx(forward)
        assert infos["x_position"][0] == data.body(torsos[-1]).xpos[0]
        assert infos["energy"][0] == pytest.approx(energy)
    assert 3 < steps < 1000
    assert infos["termination_reason"][0].startswith("fall: ")


def task(name: str) -> tuple[CentipedeTask, mujoco.MjModel]:
    morphology = agents.load(name)
    model = morphology.compile()
    return CentipedeTask(morphology, model, 1, find_robot(model), TaskOptions()), model


def torsos_at(model: mujoco.MjModel, heights: list[float], sides: list[float]) -> np.ndarray:
    xpos = np.full((model.nbody, 3), 50.0)  # where the other bodies are must not count
    for k, (height, side) in enumerate(zip(heights, sides, strict=True)):
        xpos[model.body(f"torso_{k}").id] = [0.5 * k, side, height]
    return xpos


@pytest.mark.parametrize(
    ("heights", "sides", "healthy"),
    [
        ([0.75, 0.75, 0.75], [0.0, 0.0, 0.0], True),
        ([0.36, 1.14, 0.36], [0.0, 0.0, 0.0], True),
        ([0.75, 0.35, 0.75], [0.0, 0.0, 0.0], False),
        ([0.75, 0.75, 1.15], [0.0, 0.0, 0.0], False),
        ([0.75, 0.75, 0.75], [0.0, 0.44, 0.88], True),
        ([0.75, 0.75, 0.75], [0.0, 0.0, -0.45], False),
        ([0.75, np.nan, 0.75], [0.0, 0.0, 0.0], False),
    ],
)
def test_rules_of_termination(heights: list[float], sides: list[float], healthy: bool) -> None:
    centipede, model = task("centipede-6")
    assert centipede.accepts_start(torsos_at(model, heights, sides)) == healthy


@pytest.mark.parametrize("name", ["centipede-4", "centipede-7", "centipede-20"])
def test_start_states(name: str) -> None:
    centipede, model = task(name)
    draws = [centipede.draw_start(np.random.default_rng(seed)) for seed in range(400)]
    noise = np.array([qpos for qpos, _ in draws]) - model.qpos0
    level = [5] + [i for i in range(12, model.nq, 6) if model.joint(i - 6).name.startswith("bodyupdown")]
    torsos = sum(model.body(i).name.startswith("torso") for i in range(model.nbody))
    assert len(level) == torsos
    width = np.full(model.nq, 0.1)
    width[level] = 0.1 / (torsos - 1)
    assert np.all(np.abs(noise) <= width)
    np.testing.assert_allclose(noise.std(axis=0), width / np.sqrt(3), rtol=0.15)
    np.testing.assert_allclose(np.array([qvel for _, qvel in draws]).std(axis=0), 0.1, rtol=0.2)


def test_starts_are_healthy_and_quaternions_are_unit() -> None:
    env = LocomotionVectorEnv("centipede-20", 12)
    obs, _ = env.reset(seed=0)
    for data in env.physics.data:
        assert env._task.accepts_start(data.xpos)
    np.testing.assert_allclose(np.linalg.norm(obs[:, 1:5], axis=1), 1, rtol=1e-6)
    assert len(np.unique(obs[:, 0])) == 12


def test_a_body_without_a_chain_of_torsos_is_refused() -> None:
    with pytest.raises(agents.UserError, match="chain of two torsos"):
        LocomotionVectorEnv("ant", task="centipede")
