"""Collection by whole episodes, as the official code does it: a switch for measuring its effect.

An iteration gathers whole episodes until there are ``n_steps * n_envs`` transitions or more. Every epoch shuffles all
of them and trains on the first ``n_steps * n_envs``; advantages are standardised over all.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from agents.errors import UserError
from snowflake.ppo.buffer import RolloutBuffer
from snowflake.ppo.vec_env import LocomotionVecEnv

if TYPE_CHECKING:
    from snowflake.ppo.algorithm import SnowflakePPO


class Episode(NamedTuple):
    """One whole episode of L steps: ``obs`` ``(L, D)``, ``actions`` ``(L, A)``, the rest ``(L,)``."""

    obs: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    values: torch.Tensor
    log_probs: torch.Tensor


class EpisodeBuffer(RolloutBuffer):
    """A rollout of whole episodes, one after the other in a single column: ``(T, 1, ...)`` tensors, T as it comes.

    The constructor is that of :class:`RolloutBuffer`; ``buffer_size * n_envs`` transitions are used an epoch.

    Raises:
        UserError: several bodies, whose shares of the steps whole episodes would leave to chance.
    """

    def __init__(
        self, buffer_size: int, *spaces: Any, n_envs: int = 1, body_of_env: np.ndarray | None = None, **kwargs: Any
    ) -> None:
        if body_of_env is not None and np.max(body_of_env) > 0:
            raise UserError("ppo.collection = 'whole_episodes' serves one body: set it to fixed, or name one agent")
        super().__init__(1, *spaces, n_envs=1, **kwargs)
        self.transitions_per_epoch = buffer_size * n_envs

    def fill(self, episodes: Sequence[Episode]) -> None:
        """Hold these episodes, and compute advantages and returns. No value follows the last step of an episode."""
        columns = (torch.cat(parts)[:, None] for parts in zip(*episodes, strict=True))
        self.obs, self.actions, self.rewards, self.values, self.log_probs = columns
        self.buffer_size = self.pos = len(self.rewards)
        lengths = torch.tensor([0] + [len(episode.rewards) for episode in episodes[:-1]])
        self.episode_starts = torch.zeros_like(self.rewards)
        self.episode_starts[lengths.cumsum(0)] = 1.0
        self.advantages, self.returns = torch.zeros_like(self.rewards), torch.zeros_like(self.rewards)
        self.compute_returns_and_advantage(self.rewards.new_zeros(1), self.rewards.new_ones(1))

    def order(self, generator: torch.Generator) -> torch.Tensor:
        """One epoch: the first ``transitions_per_epoch`` transitions in random order; the others wait."""
        return super().order(generator)[: self.transitions_per_epoch]


class EpisodeCollector:
    """Plays whole episodes with the algorithm's policy in all environments at once.

    An environment whose episode ended while none is left to start idles, stepped with zero actions, until the round is
    over: every episode that was started is finished and kept, so that short ones are not preferred.

    Args:
        algorithm: gives policy, generator and statistics; its ``num_timesteps`` counts the steps that are kept.
        env: its environments are reset when a round starts.
        callback: SB3's, called every step.
    """

    def __init__(self, algorithm: SnowflakePPO, env: LocomotionVecEnv, callback: BaseCallback) -> None:
        self.algorithm, self.env, self.callback = algorithm, env, callback
        self.episodes: list[Episode] = []
        self.sums: dict[str, float] = {}
        self.seconds = {"physics": 0.0, "inference": 0.0}

    def collect(self, wanted: int) -> bool:
        """Gather episodes with ``wanted`` or more transitions in all; False if a callback stops it.

        Each round asks for as many episodes as are missing at their recent mean length; one, before any has ended.
        """
        while (missing := wanted - self.transitions) > 0:
            recent = [info["l"] for info in self.algorithm.ep_info_buffer or ()]
            if not self._round(math.ceil(missing / float(np.mean(recent))) if recent else 1):
                return False
        return True

    @property
    def transitions(self) -> int:
        """Transitions gathered so far."""
        return sum(len(episode.rewards) for episode in self.episodes)

    def _round(self, count: int) -> bool:
        """Play ``count`` episodes to their ends."""
        algorithm, n = self.algorithm, self.env.num_envs
        obs = algorithm._tensor(self.env.reset())
        active, waiting = np.arange(n) < count, max(count - n, 0)
        starts, spans, steps = np.zeros(n, np.int64), [], []
        while active.any():
            row, step = self._step(obs, active)
            steps.append(row)
            algorithm.num_timesteps += int(active.sum())
            rewards, dones, infos = step.rewards, step.dones, self.env.sb3_infos(step)  # names that callbacks read
            self.callback.update_locals(locals())
            if not self.callback.on_step():
                return False
            kept = [(i, info) for i, info in step.episodes if active[i]]
            terms = {name: values[active] for name, values in step.terms.items()}
            mine = dataclasses.replace(step, terms=terms, unstable=step.unstable[active], episodes=kept)
            algorithm._record_step(mine, self.sums)
            for i, _ in kept:
                spans.append((i, starts[i], len(steps)))
                starts[i] = len(steps)
                active[i], waiting = waiting > 0, max(waiting - 1, 0)
            obs = algorithm._tensor(step.obs)
            algorithm._last_obs, algorithm._last_episode_starts = step.obs, step.dones
        columns = [torch.stack(column) for column in zip(*steps, strict=True)]
        self.episodes += [Episode(*(column[first:last, i] for column in columns)) for i, first, last in spans]
        return True

    def _step(self, obs: torch.Tensor, active: np.ndarray) -> tuple[Episode, Any]:
        """One step of all environments: what is stored of it, ``(N, ...)``, and the step itself."""
        algorithm = self.algorithm
        clock = time.perf_counter()
        with torch.no_grad():
            actions, values, log_probs, _ = algorithm.policy.act(obs, generator=algorithm.action_generator)
        played = np.where(active[:, None], actions.cpu().numpy(), np.float32(0.0))
        self.seconds["inference"] += time.perf_counter() - clock
        clock = time.perf_counter()
        step = self.env.step_batch(played)
        self.seconds["physics"] += time.perf_counter() - clock
        assert values is not None
        rewards = algorithm._bootstrap(algorithm._tensor(step.rewards), step)
        return Episode(obs, actions, rewards, values, log_probs), step


def collect_episodes(
    algorithm: SnowflakePPO, env: LocomotionVecEnv, callback: BaseCallback, buffer: EpisodeBuffer, *, nominal: bool
) -> dict[str, float] | None:
    """Fill the buffer with whole episodes.

    Args:
        algorithm: in training.
        env: its environments.
        callback: SB3's.
        buffer: to fill.
        nominal: count ``n_steps * n_envs`` steps however many were taken, as the official code does.

    Returns:
        Statistics of the rollout by tag; None if a callback stops it.
    """
    algorithm.policy.set_training_mode(False)
    callback.on_rollout_start()
    before = algorithm.num_timesteps
    collector = EpisodeCollector(algorithm, env, callback)
    if not collector.collect(buffer.transitions_per_epoch):
        return None
    buffer.fill(collector.episodes)
    if nominal:
        algorithm.num_timesteps = before + buffer.transitions_per_epoch
    count = collector.transitions
    statistics = {f"reward/{name.removeprefix('reward_')}": value / count for name, value in collector.sums.items()}
    statistics |= {f"time/fps_{name}": count / max(value, 1e-9) for name, value in collector.seconds.items()}
    statistics["rollout/transitions"] = float(count)
    callback.update_locals(locals())
    callback.on_rollout_end()
    return statistics
