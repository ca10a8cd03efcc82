"""A body whose every number is known beforehand, results built on it, and runs of one update."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from snowflake.config import EnvConfig, EvaluationConfig, PolicyConfig, PPOConfig, TrainConfig
from snowflake.evaluation.results import LABELS, BodyResult, Result
from snowflake.evaluation.rollout import EpisodeBatch
from snowflake.run import Run


class ScriptedEnv:
    """A batched environment that follows a script and resets in the step that ends an episode.

    The episode of seed ``s`` lasts ``length(s)`` steps, by a fall if that is below the limit. Every step of it gives
    reward ``s + 1``, moves 0.01 (s + 1) m and costs 2 J; after the reset every number is absurd, so that counting
    any of it shows.
    """

    dt = 0.05
    mass = 4.0

    def __init__(self, num_envs: int, length: Any, limit: int) -> None:
        self.num_envs, self.length, self.limit = num_envs, length, limit
        self.model = SimpleNamespace(body_subtreemass=np.array([self.mass]))
        self.steps = 0
        self.closed = False

    def reset(self, seed: list[int]) -> tuple[np.ndarray, dict[str, Any]]:
        self.seeds = np.asarray(seed)
        self.ends = np.minimum([self.length(s) for s in seed], self.limit)
        return self._obs(), {}

    def _obs(self) -> np.ndarray:
        return np.stack([self.seeds, np.full(self.num_envs, self.steps)], 1).astype(np.float32)

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        assert actions.shape == (self.num_envs, 3)
        self.steps += 1
        alive = self.steps <= self.ends
        done = (self.steps == self.ends) | ~alive
        fell = done & (self.ends < self.limit)
        infos = {
            "x_velocity": np.where(alive, 0.01 * (self.seeds + 1) / self.dt, -1e6),
            "energy": np.where(alive, 2.0, 1e6),
            "unstable": fell & (self.seeds == 1),
        }
        return self._obs(), np.where(alive, self.seeds + 1.0, 1e6), fell, done & ~fell, infos

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def scripted_env() -> type[ScriptedEnv]:
    return ScriptedEnv


def make_batch(offset: float, episodes: int = 6, seed: int = 1000, distance: float = 2.0) -> EpisodeBatch:
    """A batch with returns around ``offset``; the first episode falls, the second went nowhere."""
    returns = offset + np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, 6.0])[:episodes]
    lengths = np.full(episodes, 100)
    lengths[0] = 40
    moved = np.full(episodes, distance)
    moved[1:2] = 0.0
    fell = np.zeros(episodes, bool)
    fell[0] = True
    energy = np.full(episodes, 50.0)
    cost = np.where(moved == 0.0, np.nan, energy / (4.0 * 9.81 * np.where(moved == 0.0, 1.0, np.abs(moved))))
    return EpisodeBatch(
        seed + np.arange(episodes), returns, lengths, moved, moved / (lengths * 0.05), fell, energy, cost, fell.copy()
    )


@pytest.fixture
def batch() -> Any:
    return make_batch


def make_result(kind: str = "evaluation", bodies: tuple[str, ...] = ("centipede-6",)) -> Result:
    """A finished result: the policy is far above zero action and random on the first body, and worse on each next."""
    found = []
    for k, name in enumerate(bodies):
        offsets = dict(zip(LABELS, (900.0 / (k + 1), 700.0 / (k + 1), 150.0, -30.0), strict=True))
        ways = {way: make_batch(offset, distance=offset / 100.0) for way, offset in offsets.items()}
        found.append(BodyResult(name, k > 0, "ab" * 32, 22.93, ways))
    return Result(kind, "runs/demo", "best", 100_000, 6, 1000, 1000, tuple(found), {"command": "snowflake"}, ("note",))


@pytest.fixture
def result() -> Any:
    return make_result


def tiny_config(agents: tuple[str, ...] = ("centipede-4",), **policy: Any) -> TrainConfig:
    """A run of one update, evaluated once."""
    return TrainConfig(
        agents=agents,
        total_timesteps=64,
        torch_threads=1,
        env=EnvConfig(n_envs=4, max_episode_steps=30, num_threads=1),
        policy=PolicyConfig(hidden_size=8, propagation_steps=2, **policy),
        ppo=PPOConfig(n_steps=16, batch_size=32, n_epochs=1),
        evaluation=EvaluationConfig(eval_freq=64, eval_episodes=3, checkpoint_freq=64),
    )


@pytest.fixture(scope="session")
def run(tmp_path_factory: Any) -> Run:
    from snowflake.ppo.train import train

    return train(tiny_config(), tmp_path_factory.mktemp("runs") / "tiny", progress=False)


@pytest.fixture(scope="session")
def flat(tmp_path_factory: Any) -> Run:
    from snowflake.ppo.train import train

    return train(tiny_config(network="mlp"), tmp_path_factory.mktemp("runs") / "flat", progress=False)


@pytest.fixture(scope="session")
def two_bodies(tmp_path_factory: Any) -> Run:
    from snowflake.ppo.train import train

    config = tiny_config(("centipede-4", "centipede-3"), critic="graph")
    return train(config, tmp_path_factory.mktemp("runs") / "two", progress=False)


@pytest.fixture
def tiny() -> Any:
    return tiny_config
