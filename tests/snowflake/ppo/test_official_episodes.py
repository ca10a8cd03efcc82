"""Collection by whole episodes and nominal step counting, switches of the official preset."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import CallbackList

from agents.errors import UserError
from snowflake.config import PPOConfig
from snowflake.ppo.algorithm import SnowflakePPO
from snowflake.ppo.buffer import RolloutBuffer
from snowflake.ppo.episodes import Episode, EpisodeBuffer
from snowflake.ppo.train import build, resume, train
from tests.snowflake.ppo.helpers import tiny_config
from tests.snowflake.ppo.test_train import StopAt, assert_same, final_tensors

WHOLE = {"collection": "whole_episodes", "n_steps": 16, "batch_size": 8, "n_epochs": 2, "timelimit_bootstrap": False}
NET = {"hidden_size": 8, "propagation_steps": 1}


def config(ppo: dict | None = None, limit: int = 5, n_envs: int = 3, **changes):
    env = {"n_envs": n_envs, "max_episode_steps": limit}
    return tiny_config("nervenet", policy=NET, env=env, ppo=WHOLE | (ppo or {}), **changes)


def collected(algorithm: SnowflakePPO, rounds: int = 1) -> EpisodeBuffer:
    algorithm._setup_learn(10_000)
    callback = CallbackList([])
    callback.init_callback(algorithm)
    for _ in range(rounds):
        assert algorithm.collect_rollouts(algorithm.env, callback, algorithm.rollout_buffer, 16)
    return algorithm.rollout_buffer


def test_episodes_are_whole_and_enough_and_no_more_than_asked_for() -> None:
    algorithm = build(config())
    buffer = collected(algorithm)
    starts = np.flatnonzero(buffer.episode_starts[:, 0].numpy())
    lengths = np.diff([*starts, len(buffer.rewards)])
    ended = [info["l"] for info in algorithm.ep_info_buffer]
    assert lengths.tolist() == ended
    assert set(lengths) <= {1, 2, 3, 4, 5}
    assert buffer.transitions_per_epoch == 48 <= lengths.sum() < 48 + 3 * 5
    assert algorithm.num_timesteps == lengths.sum()
    # returns are those of the episodes, so that the rows belong together
    returns = [float(part.sum()) for part in np.split(buffer.rewards[:, 0].numpy(), starts[1:])]
    assert returns == pytest.approx([info["r"] for info in algorithm.ep_info_buffer], abs=1e-4)


def test_what_is_stored_is_what_the_policy_did() -> None:
    algorithm = build(config())
    flat = collected(algorithm, rounds=2).flat()
    with torch.no_grad():
        log_prob, _ = algorithm.policy.action_log_prob(flat.obs, flat.actions)
        values = algorithm.policy.predict_values(flat.obs)
    torch.testing.assert_close(log_prob, flat.old_log_prob, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(values, algorithm.rollout_buffer.values[:, 0], atol=1e-5, rtol=1e-5)


def test_advantages_stop_at_the_end_of_an_episode_by_hand() -> None:
    one = torch.ones(1)
    first = Episode(torch.zeros(2, 1), torch.zeros(2, 1), torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.0]), one)
    second = Episode(torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([4.0]), torch.tensor([3.0]), one)
    box = build(config()).observation_space
    buffer = EpisodeBuffer(1, box, box, "cpu", gae_lambda=0.5, gamma=0.9, n_envs=3)
    buffer.fill([first._replace(log_probs=torch.zeros(2)), second])
    last = 2.0 - 1.0
    wanted = [1.0 + 0.9 * 1.0 - 0.5 + 0.45 * last, last, 4.0 - 3.0]
    assert buffer.advantages[:, 0].tolist() == pytest.approx(wanted)
    assert buffer.returns[:, 0].tolist() == pytest.approx([wanted[0] + 0.5, 2.0, 4.0])


def test_an_epoch_uses_the_first_of_all_in_random_order() -> None:
    buffer = collected(build(config(limit=50)))
    count = len(buffer.rewards)
    assert count > 48
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:48]
    used = torch.cat([buffer.flat().select(rows).returns for rows in buffer.minibatches(8, generator)])
    assert torch.equal(used, buffer.flat().returns[order])
    buffer.standardize_advantages()
    assert float(buffer.advantages.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(buffer.advantages.std(correction=0)) == pytest.approx(1.0, abs=1e-4)


def test_nominal_counting_counts_less_than_was_taken() -> None:
    real = build(config(limit=50))
    nominal = build(config({"step_accounting": "nominal"}, limit=50))
    taken = [len(collected(algorithm).rewards) for algorithm in (real, nominal)]
    assert taken[0] == taken[1] > 48
    assert (real.num_timesteps, nominal.num_timesteps) == (taken[0], 48)
    assert torch.equal(real.rollout_buffer.obs, nominal.rollout_buffer.obs)


def test_off_by_default_and_refused_where_it_does_nothing() -> None:
    assert (PPOConfig().collection, PPOConfig().step_accounting) == ("fixed", "real")
    assert type(build(tiny_config("nervenet", policy=NET)).rollout_buffer) is RolloutBuffer
    with pytest.raises(UserError, match="nominal' differs from real only with"):
        PPOConfig(step_accounting="nominal")
    with pytest.raises(UserError, match="scale_returns works with"):
        PPOConfig(collection="whole_episodes", scale_returns=True)
    with pytest.raises(UserError, match="serves one body"):
        build(tiny_config("nervenet", ("centipede-4", "centipede-6"), ppo=WHOLE))


def test_a_run_stopped_and_resumed_is_bit_equal(tmp_path) -> None:
    ppo = {"step_accounting": "nominal", "diagnostics_every": 2}
    settings = config(ppo, limit=30, total_timesteps=192, evaluation={"checkpoint_freq": 48})
    whole = train(settings, tmp_path / "whole", progress=False)
    assert whole.index()["last"] == 192
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "cut", callbacks=[StopAt(144)], progress=False)
    assert_same(final_tensors(whole), final_tensors(resume(tmp_path / "cut", progress=False)))
