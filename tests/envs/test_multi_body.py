"""Several bodies behind one interface: rows equal those of each body's own environment, padded."""

from __future__ import annotations

import numpy as np
import pytest

import agents
from envs import LocomotionVectorEnv, MultiBodyVectorEnv, make_vector_env
from envs.multi_body import split_environments

NAMES = ["centipede-3", "centipede-4-crippled", "centipede-4"]
SIZES = {"centipede-3": (81, 6), "centipede-4-crippled": (97, 6), "centipede-4": (97, 10)}


def test_rows_of_each_body() -> None:
    env = make_vector_env(NAMES, 7, max_episode_steps=15)
    assert isinstance(env, MultiBodyVectorEnv)
    assert env.body_of_env.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert env.body_of_env.dtype == np.int64
    assert env.single_observation_space.shape == (98,)
    assert env.single_action_space.shape == (10,)
    assert env.observation_space.shape == (7, 98)
    alone = [
        LocomotionVectorEnv(name, count, max_episode_steps=15) for name, count in zip(NAMES, (3, 2, 2), strict=True)
    ]
    obs, _ = env.reset(seed=20)
    parts = [part.reset(seed=20 + start)[0] for part, start in zip(alone, (0, 3, 5), strict=True)]
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(40):
        for k, part in enumerate(parts):
            rows = obs[env.body_of_env == k]
            np.testing.assert_array_equal(rows[:, : part.shape[1]], part)
            np.testing.assert_array_equal(rows[:, part.shape[1] : -1], 0)
            np.testing.assert_array_equal(rows[:, -1], k)
        actions = rng.uniform(-1, 1, (7, 10))
        obs, rewards, terminated, truncated, infos = env.step(actions)
        parts = []
        for k, body in enumerate(alone):
            here = env.body_of_env == k
            part, reward, end, limit, info = body.step(actions[here, : body.model.nu])
            parts.append(part)
            np.testing.assert_array_equal(rewards[here], reward)
            np.testing.assert_array_equal(terminated[here], end)
            np.testing.assert_array_equal(truncated[here], limit)
            done = end | limit
            ended += int(done.sum())
            for key in set(info) - {"final_obs", "final_info"}:
                np.testing.assert_array_equal(infos[key][here], info[key], err_msg=key)
            if done.any():
                width = info["final_obs"].shape[1]
                np.testing.assert_array_equal(infos["final_obs"][here][done, :width], info["final_obs"][done])
                assert (infos["final_obs"][here][:, -1] == k).all()
        if "_final_obs" in infos:
            np.testing.assert_array_equal(infos["_final_obs"], terminated | truncated)
            assert infos["termination_reason"].shape == infos["final_info"]["energy"].shape == (7,)
    assert ended > 7
    env.close()


def test_one_body_needs_no_index() -> None:
    env = make_vector_env(["centipede-3"], 2)
    assert isinstance(env, LocomotionVectorEnv)
    assert env.single_observation_space.shape == (81,)
    assert MultiBodyVectorEnv([env]).reset(seed=0)[0].shape == (2, 81)


def test_a_list_of_seeds_is_split() -> None:
    env = make_vector_env(["centipede-3", "centipede-4"], 4)
    by_int, _ = env.reset(seed=3)
    by_list, _ = env.reset(seed=[3, 4, 5, 6])
    np.testing.assert_array_equal(by_int, by_list)
    with pytest.raises(ValueError, match="1 seeds for 4"):
        env.reset(seed=[3])


@pytest.mark.parametrize(
    ("bodies", "num_envs", "message"),
    [
        ([], 2, "no bodies"),
        (["centipede-3", "centipede-4"], 1, "1 environments for 2 bodies"),
        (["centipede-3", "centipedes"], 2, "unknown body"),
    ],
)
def test_mistakes(bodies: list[str], num_envs: int, message: str) -> None:
    with pytest.raises(agents.UserError, match=message):
        make_vector_env(bodies, num_envs)


@pytest.mark.parametrize(
    ("num_envs", "weights", "counts"),
    [
        (16, (1, 2, 1), (4, 8, 4)),
        (6, (1, 2, 1), (2, 3, 1)),  # shares 1.5, 3, 1.5: one is left, and the earlier of two equal remainders takes it
        (10, (1, 1, 1), (4, 3, 3)),
        (10, (0.1, 0.2, 0.4), (1, 3, 6)),  # shares 1.43, 2.86, 5.71: two are left, for the remainders 0.86 and 0.71
        (5, (1, 100, 1), (1, 3, 1)),
        (6, (1, 1000, 2000), (1, 2, 3)),  # shares of the 5 beside the first: 1.67 and 3.33
        (3, (1e-9, 1, 1e9), (1, 1, 1)),
        (7, (5,), (7,)),
    ],
)
def test_environments_are_split_by_largest_remainder(num_envs: int, weights: tuple, counts: tuple) -> None:
    assert split_environments(num_envs, weights) == counts


def test_a_split_is_whole_positive_and_within_one_of_the_share() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        weights = rng.uniform(0.1, 5.0, rng.integers(1, 6)).tolist()
        num_envs = int(rng.integers(len(weights), 60))
        counts = split_environments(num_envs, weights)
        assert sum(counts) == num_envs
        assert min(counts) >= 1
        shares = num_envs * np.array(weights) / sum(weights)
        if shares.min() >= 1:
            assert np.abs(counts - shares).max() < 1
        assert counts == split_environments(num_envs, [4 * weight for weight in weights])


def test_environments_of_each_body_by_weight() -> None:
    env = make_vector_env(["centipede-3", "centipede-4"], 4, body_weights=(1, 3))
    assert env.body_of_env.tolist() == [0, 1, 1, 1]
    env.close()
    for weights, message in (((1,), "1 body weights for 2"), ((1, 0), "must be a positive"), ((1, np.nan), "positive")):
        with pytest.raises(agents.UserError, match=message):
            make_vector_env(["centipede-3", "centipede-4"], 4, body_weights=weights)
