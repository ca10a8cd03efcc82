"""Evaluation on the real Centipede: serial equals batched, start states are shared, figures add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import agents
from envs import LocomotionVectorEnv
from snowflake.evaluation.controllers import random_action, zero_action
from snowflake.evaluation.rollout import EpisodeBatch, evaluate

BODY = "centipede-4"
SETTINGS: dict[str, Any] = {"seed": 50, "max_episode_steps": 40, "num_threads": 2}


def push(obs: np.ndarray) -> np.ndarray:
    """A controller of each row's own observation alone: some episodes fall within the limit, some do not."""
    return np.clip(3.0 * obs[:, 5:15], -1.0, 1.0).astype(np.float32)


def test_serial_equals_batched() -> None:
    """Also where most episodes have ended and the others move to a smaller batch of environments."""
    sizes: list[int] = []

    def make_env(num_envs: int) -> LocomotionVectorEnv:
        sizes.append(num_envs)
        return LocomotionVectorEnv(BODY, num_envs, max_episode_steps=150, num_threads=2)

    batch = evaluate(push, BODY, episodes=8, seed=50, max_episode_steps=150, make_env=make_env)
    assert sizes[0] == 8
    assert len(sizes) > 2
    serial = [evaluate(push, BODY, episodes=1, seed=50 + i, max_episode_steps=150) for i in range(8)]
    joined = EpisodeBatch.concatenate(serial)
    for name, values in vars(batch).items():
        np.testing.assert_array_equal(values, getattr(joined, name), err_msg=name)
    assert len(set(batch.lengths)) > 4


def test_equal_to_a_loop_by_hand() -> None:
    """One environment stepped here until it ends gives the same return, length, distance and energy."""
    batch = evaluate(push, BODY, episodes=3, **SETTINGS)
    for i in range(3):
        env = LocomotionVectorEnv(BODY, 1, max_episode_steps=40)
        obs, _ = env.reset(seed=50 + i)
        total, energy, x, done = 0.0, 0.0, [], False
        while not done:
            obs, rewards, terminated, truncated, infos = env.step(push(obs))
            total, energy = total + rewards[0], energy + infos["energy"][0]
            # The position before the first step: displacement and velocity of a step say the same.
            x += [infos["x_position"][0] - env.dt * infos["x_velocity"][0]] if not x else []
            x.append(infos["x_position"][0])
            done = bool(terminated[0] or truncated[0])
        env.close()
        assert batch.returns[i] == total
        assert batch.energy[i] == energy
        assert batch.lengths[i] == len(x) - 1
        assert batch.fell[i] == terminated[0]
        assert batch.distance[i] == pytest.approx(x[-1] - x[0], abs=1e-9)
        assert batch.speed[i] == pytest.approx((x[-1] - x[0]) / (env.dt * (len(x) - 1)), abs=1e-9)
        mass = agents.load(BODY).compile().body_mass.sum()
        if abs(batch.distance[i]) >= 0.1:
            assert batch.cost_of_transport[i] == pytest.approx(energy / (mass * 9.81 * abs(batch.distance[i])))


def test_controllers_share_their_start_states() -> None:
    seen: dict[str, np.ndarray] = {}

    def watch(name: str, control: Any) -> Any:
        def call(obs: np.ndarray) -> np.ndarray:
            seen.setdefault(name, obs.copy())
            return control(obs)

        return call

    evaluate(watch("zero", zero_action(10)), BODY, episodes=3, seed=7, max_episode_steps=2)
    evaluate(watch("random", random_action(10, 0)), BODY, episodes=3, seed=7, max_episode_steps=2)
    evaluate(watch("more", zero_action(10)), BODY, episodes=5, seed=7, max_episode_steps=2)
    np.testing.assert_array_equal(seen["zero"], seen["random"])
    np.testing.assert_array_equal(seen["zero"], seen["more"][:3])
    assert not np.array_equal(seen["zero"][0], seen["zero"][1])


def test_random_play_falls_and_zero_action_spends_no_energy() -> None:
    random = evaluate(random_action(10, 0), BODY, episodes=8, seed=0, max_episode_steps=300)
    zero = evaluate(zero_action(10), BODY, episodes=8, seed=0, max_episode_steps=50)
    assert random.fell.mean() > 0.5
    assert random.lengths.max() <= 300
    assert (random.energy > 0).all()
    assert not zero.energy.any()
    assert not random.unstable.any()
