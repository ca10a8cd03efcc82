"""The batched environment: equal to single ones bit for bit, whatever the threads, and honest about ends."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

import agents
from envs import LocomotionEnv, LocomotionVectorEnv

STEPS = 200


def actions_for(env: LocomotionVectorEnv, steps: int, scale: float = 1.2) -> np.ndarray:
    return np.random.default_rng(7).uniform(-scale, scale, (steps, env.num_envs, env.model.nu)).astype(np.float32)


def test_batch_equals_single_environments() -> None:
    """Over several hundred steps with many resets: observations, rewards, ends and infos."""
    batch = LocomotionVectorEnv("centipede-4", 3, max_episode_steps=25, num_threads=2)
    singles = [LocomotionEnv("centipede-4", max_episode_steps=25) for _ in range(3)]
    obs, _ = batch.reset(seed=11)
    for i, single in enumerate(singles):
        np.testing.assert_array_equal(obs[i], single.reset(seed=11 + i)[0])
    ends = {"terminated": 0, "truncated": 0}
    for actions in actions_for(batch, STEPS):
        obs, rewards, terminated, truncated, infos = batch.step(actions)
        for i, single in enumerate(singles):
            one, reward, end, limit, info = single.step(actions[i])
            assert (reward, end, limit) == (rewards[i], terminated[i], truncated[i])
            for key, value in info.items():
                assert infos[key][i] == value, key
            if end or limit:
                assert infos["_final_obs"][i]
                np.testing.assert_array_equal(infos["final_obs"][i], one)
                assert infos["final_info"]["reward_forward"][i] == info["reward_forward"]
                one, _ = single.reset()
            else:
                assert "_final_obs" not in infos or not infos["_final_obs"][i]
            np.testing.assert_array_equal(obs[i], one)
        ends["terminated"] += int(terminated.sum())
        ends["truncated"] += int(truncated.sum())
    assert min(ends.values()) > 3


def test_threads_do_not_change_results() -> None:
    runs = []
    for threads in (1, 2, 5):
        env = LocomotionVectorEnv("centipede-3", 5, num_threads=threads)
        env.reset(seed=0)
        steps = [env.step(actions)[:4] for actions in actions_for(env, 60)]
        runs.append([np.stack(column) for column in zip(*steps, strict=True)])
        env.close()
    for run in runs[1:]:
        for one, other in zip(runs[0], run, strict=True):
            np.testing.assert_array_equal(one, other)


def test_interface() -> None:
    env = LocomotionVectorEnv("centipede-6", 4)
    obs, infos = env.reset(seed=0)
    assert (obs.shape, obs.dtype, infos) == ((4, 139), np.float32, {})
    obs, rewards, terminated, truncated, infos = env.step(np.zeros((4, 16), dtype=np.float32))
    assert (obs.shape, obs.dtype) == ((4, 139), np.float32)
    assert (rewards.shape, rewards.dtype) == ((4,), np.float64)
    assert terminated.dtype == truncated.dtype == bool
    assert set(infos) == {"reward_forward", "reward_ctrl", "reward_contact", "reward_survive", "x_position",
                          "x_velocity", "energy", "unstable"}  # fmt: skip
    assert all(value.shape == (4,) for value in infos.values())
    np.testing.assert_array_equal(sum(infos[key] for key in infos if key.startswith("reward_")), rewards)
    assert env.dt == pytest.approx(0.05)
    assert env.metadata["render_fps"] == 20
    assert env.body_envs == (env,)
    np.testing.assert_array_equal(env.body_of_env, np.zeros(4, dtype=np.int64))
    assert env.observation_space.shape == (4, 139)
    assert env.single_action_space.low.tolist() == [-1.0] * 16


def test_results_are_the_callers_to_keep() -> None:
    env = LocomotionVectorEnv("centipede-3", 2)
    env.reset(seed=0)
    first = env.step(np.zeros((2, 6)))
    kept = [first[0].copy(), first[1].copy(), {key: value.copy() for key, value in first[4].items()}]
    first[0][:] = 99.0
    second, state = env.step(np.zeros((2, 6))), env.get_state()
    assert not np.any(state["observations"] == 99.0)
    first[0][:] = kept[0]
    for key, value in kept[2].items():
        np.testing.assert_array_equal(first[4][key], value)
    assert not np.array_equal(second[0], kept[0])


def test_seeds() -> None:
    env = LocomotionVectorEnv("centipede-3", 3)
    by_int, _ = env.reset(seed=4)
    going_on, _ = env.reset()
    by_list, _ = env.reset(seed=[4, 5, 6])
    assert not np.array_equal(by_int, going_on)
    np.testing.assert_array_equal(by_int, by_list)
    with pytest.raises(ValueError, match="2 seeds for 3"):
        env.reset(seed=[1, 2])


def test_limit_truncates_with_the_last_observation() -> None:
    env = LocomotionVectorEnv("centipede-8", 2, max_episode_steps=5)
    env.reset(seed=0)
    for step in range(1, 6):
        obs, _, terminated, truncated, infos = env.step(np.zeros((2, 22)))
        assert not terminated.any()
        assert truncated.tolist() == [step == 5] * 2
    assert infos["termination_reason"].tolist() == ["", ""]
    assert infos["_final_obs"].tolist() == [True, True]
    assert not np.array_equal(infos["final_obs"], obs)
    assert env.get_state()["elapsed"].tolist() == [0, 0]


def test_no_limit() -> None:
    env = LocomotionVectorEnv("centipede-8", 1, max_episode_steps=None)
    env.reset(seed=0)
    assert not any(env.step(np.zeros((1, 22)))[3].any() for _ in range(30))


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e12, 1e7])
def test_unstable_physics_ends_the_episode(poison: float) -> None:
    env = LocomotionVectorEnv("centipede-4", 3)
    before, _ = env.reset(seed=0)
    env.physics.data[1].qvel[7] = poison
    obs, rewards, terminated, truncated, infos = env.step(np.full((3, 10), 0.1))
    assert terminated.tolist() == [False, True, False]
    assert not truncated.any()
    assert infos["unstable"].tolist() == [False, True, False]
    reason = infos["termination_reason"][1]
    assert reason.startswith("unstable: ")
    assert "mjWARN_BADQ" in reason
    assert infos["termination_reason"][0] == ""
    assert rewards[1] == 0
    for value in (obs, rewards, infos["final_obs"], *(infos[key] for key in infos if key.startswith("reward_"))):
        assert np.isfinite(value).all()
    assert np.isfinite(infos["x_velocity"]).all()
    assert np.isfinite(infos["energy"]).all()
    np.testing.assert_array_equal(infos["final_obs"][1], before[1])

    # The next episode is that of an environment that never saw the trouble.
    fresh = LocomotionVectorEnv("centipede-4", 1)
    fresh.reset(seed=1)
    start, _ = fresh.reset()
    np.testing.assert_array_equal(obs[1], start[0])
    for actions in actions_for(env, 20, scale=0.3):
        obs, rewards, *_ = env.step(actions)
        other, reward, *_ = fresh.step(actions[1:2])
        np.testing.assert_array_equal(obs[1], other[0])
        assert rewards[1] == reward[0]


@pytest.mark.parametrize("action", [np.nan, 1e200])
def test_action_that_is_no_number_ends_the_episode(action: float) -> None:
    env = LocomotionVectorEnv("centipede-3", 2)
    env.reset(seed=0)
    actions = np.zeros((2, 6))
    actions[0, 2] = action
    obs, rewards, terminated, _, infos = env.step(actions)
    assert terminated.tolist() == [True, False]
    assert infos["termination_reason"][0].startswith("unstable: ")
    assert np.isfinite(obs).all()
    assert np.isfinite(rewards).all()


def test_warnings_go_to_the_logger_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    env = LocomotionVectorEnv("centipede-3", 4, num_threads=2)
    env.reset(seed=0)
    for data in env.physics.data:
        data.qvel[:] = np.nan
    with caplog.at_level(logging.DEBUG, logger="envs.physics"):
        _, _, terminated, _, _ = env.step(np.zeros((4, 6)))
    assert terminated.all()
    assert "QVEL" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_wrong_use() -> None:
    env = LocomotionVectorEnv("centipede-3", 2)
    with pytest.raises(Exception, match="call reset"):
        env.step(np.zeros((2, 6)))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="shape"):
        env.step(np.zeros(12))
    for arguments in ({"num_envs": 0}, {"max_episode_steps": 0}, {"task": "swim"}, {"render_mode": "ansi"}):
        with pytest.raises(agents.UserError):
            LocomotionVectorEnv("centipede-3", **arguments)
    with pytest.raises(agents.UserError, match="no training task yet"):
        LocomotionVectorEnv(dataclasses.replace(agents.load("hopper"), task=""))
