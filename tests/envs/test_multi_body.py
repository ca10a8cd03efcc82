"""Several bodies behind one interface: rows equal those of each body's own environment, padded."""

from __future__ import annotations

import numpy as np
import pytest

import agents
from envs import LocomotionVectorEnv, MultiBodyVectorEnv, make_vector_env

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
