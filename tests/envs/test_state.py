"""What is saved is all there is: continuing from it is the same run, bit for bit."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from envs import LocomotionEnv, LocomotionVectorEnv, MultiBodyVectorEnv, make_vector_env

Batched = LocomotionVectorEnv | MultiBodyVectorEnv


def play(env: Batched, steps: int, seed: int) -> list[tuple]:
    rng = np.random.default_rng(seed)
    return [env.step(rng.uniform(-1, 1, env.action_space.shape)) for _ in range(steps)]


def assert_same(one: list[tuple], other: list[tuple]) -> None:
    for left, right in zip(one, other, strict=True):
        for a, b in zip(left[:4], right[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        assert set(left[4]) == set(right[4])
        for key in set(left[4]) - {"final_info"}:
            np.testing.assert_array_equal(left[4][key], right[4][key], err_msg=key)


@pytest.mark.parametrize("bodies", [["centipede-4"], ["centipede-3", "centipede-4"]])
def test_state_continues_the_run(bodies: list[str]) -> None:
    env = make_vector_env(bodies, 4, max_episode_steps=30)
    env.reset(seed=0)
    play(env, 17, seed=1)
    state = env.get_state()
    stored = {key: value.copy() for key, value in state.items() if key != "rng"}
    rng = json.loads(json.dumps(state["rng"]))
    expected = play(env, 60, seed=2)  # across many resets
    assert sum(int((step[2] | step[3]).sum()) for step in expected) >= 4
    for key, value in stored.items():
        np.testing.assert_array_equal(state[key], value, err_msg="a state changes after it was taken")

    other = make_vector_env(bodies, 4, max_episode_steps=30)
    other.reset(seed=99)
    play(other, 5, seed=3)
    other.set_state({**stored, "rng": rng})
    assert_same(play(other, 60, seed=2), expected)

    env.set_state(state)  # and backwards in the same environment
    assert_same(play(env, 60, seed=2), expected)


def test_state_goes_into_an_environment_that_was_never_reset() -> None:
    env = LocomotionVectorEnv("centipede-3", 2)
    env.reset(seed=0)
    play(env, 5, seed=1)
    other = LocomotionVectorEnv("centipede-3", 2)
    other.set_state(env.get_state())
    assert_same(play(other, 60, seed=2), play(env, 60, seed=2))


def test_state_of_another_kind_is_refused() -> None:
    env = LocomotionVectorEnv("centipede-3", 2)
    env.reset(seed=0)
    for name, count in (("centipede-3", 3), ("centipede-4", 2)):
        with pytest.raises(ValueError, match="environments"):
            LocomotionVectorEnv(name, count).set_state(env.get_state())


def test_single_environment_copies_and_pickles_mid_episode() -> None:
    env = LocomotionEnv("centipede-4", max_episode_steps=20)
    env.reset(seed=3)
    rng = np.random.default_rng(0)
    for action in rng.uniform(-1, 1, (7, 10)):
        env.step(action)
    others = [copy.deepcopy(env), pickle.loads(pickle.dumps(env)), LocomotionEnv("centipede-4", max_episode_steps=20)]
    others[2].set_state(env.get_state())
    for action in rng.uniform(-1, 1, (40, 10)):
        obs, reward, terminated, truncated, _ = env.step(action)
        start = env.reset()[0] if terminated or truncated else None
        for other in others:
            again = other.step(action)
            np.testing.assert_array_equal(again[0], obs)
            assert again[1:4] == (reward, terminated, truncated)
            if start is not None:
                np.testing.assert_array_equal(other.reset()[0], start)


def test_state_mends_diverged_physics_and_brings_the_last_observations() -> None:
    env = LocomotionVectorEnv("centipede-4", 2)
    env.reset(seed=0)
    last = play(env, 3, seed=1)[-1][0]
    state = env.get_state()
    for data in env.physics.data:
        data.qvel[:] = np.nan
    assert env.step_without_reset(np.zeros((2, 10)))[2].all()
    env.set_state(state)
    _, _, terminated, _, infos = env.step_without_reset(np.zeros((2, 10)))
    assert not terminated.any()
    assert not infos["unstable"].any()

    other = LocomotionVectorEnv("centipede-4", 2)
    other.set_state(state)
    other.physics.data[0].qvel[:] = np.nan
    infos = other.step(np.zeros((2, 10)))[4]
    np.testing.assert_array_equal(infos["final_obs"][0], last[0])
