"""One episode per start state: no bias to short ones, serial equals batched, figures by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from snowflake.evaluation.controllers import random_action, zero_action
from snowflake.evaluation.rollout import EpisodeBatch, evaluate


def half_short(seed: int) -> int:
    return 10 if seed % 2 == 0 else 1000


def scripted(scripted_env: Any, episodes: int, seed: int = 0, limit: int = 1000, **keywords: Any) -> EpisodeBatch:
    return evaluate(
        keywords.pop("controller", zero_action(3)),
        "unused",
        episodes=episodes,
        seed=seed,
        max_episode_steps=limit,
        make_env=lambda n: scripted_env(n, half_short, limit),
        **keywords,
    )


def test_short_episodes_do_not_crowd_out_long_ones(scripted_env: Any) -> None:
    """Half of the start states last 10 steps, half 1000: each counts once, as one after the other would."""
    batch = scripted(scripted_env, 8)
    serial = [scripted(scripted_env, 1, seed=s) for s in range(8)]
    assert batch.lengths.tolist() == [10, 1000] * 4
    assert batch.lengths.mean() == np.mean([s.lengths[0] for s in serial]) == 505.0
    joined = EpisodeBatch.concatenate(serial)
    for name, values in vars(batch).items():
        np.testing.assert_array_equal(values, getattr(joined, name), err_msg=name)


def test_figures_by_hand(scripted_env: Any) -> None:
    batch = scripted(scripted_env, 3)
    assert batch.seeds.tolist() == [0, 1, 2]
    assert batch.returns.tolist() == [10 * 1.0, 1000 * 2.0, 10 * 3.0]
    np.testing.assert_allclose(batch.distance, [10 * 0.01, 1000 * 0.02, 10 * 0.03])
    np.testing.assert_allclose(batch.speed, [0.01 / 0.05, 0.02 / 0.05, 0.03 / 0.05])
    assert batch.fell.tolist() == [True, False, True]
    assert batch.energy.tolist() == [20.0, 2000.0, 20.0]
    np.testing.assert_allclose(batch.cost_of_transport[1:], [2000 / (4 * 9.81 * 20), 20 / (4 * 9.81 * 0.3)])
    assert batch.steps == 1020


def test_no_cost_of_transport_without_transport(scripted_env: Any) -> None:
    """Below 0.1 m the figure does not exist: null in JSON, never infinite, and backward counts as far."""
    batch = scripted(scripted_env, 1, limit=5)  # 0.05 m
    assert np.isnan(batch.cost_of_transport[0])
    assert batch.to_dict()["cost_of_transport"] == [None]
    assert batch.to_dict()["fell"] == [False]
    assert batch.to_dict()["lengths"] == [5]
    backward = scripted(scripted_env, 1, seed=-3)  # seed -3: -0.02 m a step, 1000 steps
    assert backward.distance[0] == pytest.approx(-20.0)
    assert backward.cost_of_transport[0] == pytest.approx(2000 / (4 * 9.81 * 20))


def test_many_episodes_run_in_turns_of_64(scripted_env: Any) -> None:
    sizes: list[int] = []
    envs: list[Any] = []

    def make_env(num_envs: int) -> Any:
        sizes.append(num_envs)
        envs.append(scripted_env(num_envs, lambda s: 3 + s % 5, 100))
        return envs[-1]

    seen: list[tuple[int, int]] = []
    batch = evaluate(
        zero_action(3),
        "unused",
        episodes=150,
        seed=7,
        max_episode_steps=100,
        make_env=make_env,
        progress=lambda step, ended: seen.append((step, ended)),
    )
    assert sizes == [64, 64, 22]
    assert all(env.closed for env in envs)
    assert batch.seeds.tolist() == list(range(7, 157))
    assert batch.lengths.tolist() == [3 + s % 5 for s in range(7, 157)]
    assert seen[-1] == (7, 150)
    assert [ended for _, ended in seen] == sorted(ended for _, ended in seen)
    assert len(seen) == 3 * 7  # each turn stops when its last episode has ended, not at the limit


def test_ended_rows_keep_their_last_observation_and_the_batch_its_size(scripted_env: Any) -> None:
    class Watch:
        def __init__(self) -> None:
            self.begun, self.seen = 0, []

        def begin(self) -> None:
            self.begun += 1

        def __call__(self, obs: np.ndarray) -> np.ndarray:
            self.seen.append(obs.copy())
            return np.zeros((len(obs), 3), np.float32)

    watch = Watch()
    scripted(scripted_env, 2, limit=20, controller=watch)
    assert watch.begun == 1
    assert len(watch.seen) == 20
    assert {obs.shape for obs in watch.seen} == {(2, 2)}
    assert watch.seen[-1][0, 1] == 9  # the observation before the step that ended the episode
    assert watch.seen[-1][1, 1] == 19


def test_the_env_is_closed_after_an_error(scripted_env: Any) -> None:
    env = scripted_env(2, half_short, 50)

    def broken(obs: np.ndarray) -> np.ndarray:
        raise RuntimeError("broken controller")

    with pytest.raises(RuntimeError, match="broken controller"):
        evaluate(broken, "unused", episodes=2, seed=0, make_env=lambda n: env)
    assert env.closed


def test_bad_number_of_episodes() -> None:
    with pytest.raises(ValueError, match="episodes"):
        evaluate(zero_action(3), "centipede-4", episodes=0, seed=0)


def test_random_action_is_uniform_seeded_and_private() -> None:
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    first, again, other = random_action(5, 3), random_action(5, 3), random_action(5, 4)
    obs = np.zeros((4000, 2), np.float32)
    a = first(obs)
    np.testing.assert_array_equal(a, again(obs))
    assert not np.array_equal(a, other(obs))
    assert not np.array_equal(a, first(obs))
    assert a.dtype == np.float32
    assert a.min() >= -1.0
    assert a.max() <= 1.0
    assert abs(a.mean()) < 0.02
    assert a.var() == pytest.approx(1 / 3, abs=0.01)
    np.testing.assert_array_equal(before, np.random.get_state()[1])
