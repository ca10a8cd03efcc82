"""Evaluation takes a fixed quota of every environment, and happens at environment steps, whatever their number."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from agents import load
from snowflake.evaluation.controllers import zero_action
from snowflake.evaluation.rollout import evaluate


def test_quota_gives_the_serial_mean_where_first_come_does_not(scripted_env: Any) -> None:
    """Half of the environments end at 10 steps, half at 1000. Counting the first episodes to end would see 10 only."""

    def length(seed: int) -> int:
        return 10 if seed % 2 == 0 else 1000

    def play(episodes: int, seed: int) -> Any:
        return evaluate(
            zero_action(3), "x", episodes=episodes, seed=seed, make_env=lambda n: scripted_env(n, length, 1000)
        )

    together = play(16, 0)
    serial = [play(1, seed) for seed in range(16)]
    assert together.returns.mean() == np.mean([one.returns[0] for one in serial])
    assert together.lengths.mean() == 505.0
    first_come = [length(seed) for _ in range(100) for seed in range(0, 16, 2)][:16]
    assert np.mean(first_come) == 10.0


def test_a_real_body_that_falls_from_some_of_its_starts() -> None:
    """Side by side as one after the other: the long episodes count no less for the short ones beside them."""
    settings: dict[str, Any] = {"max_episode_steps": 60, "num_threads": 1}
    together = evaluate(zero_action(16), load("centipede-6"), episodes=6, seed=1000, **settings)
    serial = [evaluate(zero_action(16), load("centipede-6"), episodes=1, seed=s, **settings) for s in range(1000, 1006)]
    assert 0 < together.fell.sum() < 6
    np.testing.assert_array_equal(together.lengths, [one.lengths[0] for one in serial])
    np.testing.assert_allclose(together.returns, [one.returns[0] for one in serial], rtol=1e-12)


def test_frequencies_are_environment_steps(tiny: Any, tmp_path: Path) -> None:
    """Every 50 steps means every 50 steps with 2 environments and with 8, up to the rollout that crosses it."""
    from snowflake.ppo.train import train

    steps = {}
    for n_envs, n_steps in ((2, 16), (8, 4)):
        config = tiny()
        evaluation = dataclasses.replace(config.evaluation, eval_freq=50, checkpoint_freq=50, eval_episodes=1)
        config = dataclasses.replace(
            config,
            total_timesteps=128,
            env=dataclasses.replace(config.env, n_envs=n_envs),
            ppo=dataclasses.replace(config.ppo, n_steps=n_steps),
            evaluation=evaluation,
        )
        run = train(config, tmp_path / f"{n_envs}-{n_steps}", progress=False)
        lines = [json.loads(line) for line in (run.path / "evaluations.jsonl").read_text().splitlines()]
        steps[n_envs, n_steps] = [line["step"] for line in lines]
        kept = [step for step in run.checkpoints() if step]
        assert kept == steps[n_envs, n_steps]
        rollout = n_envs * n_steps
        expected = [-(-due // rollout) * rollout for due in (50, 100)]  # the end of the rollout that crosses it
        assert steps[n_envs, n_steps] == expected
    assert steps[2, 16] == steps[8, 4]
