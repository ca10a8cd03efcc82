"""Rollout storage on the training device, and generalised advantage estimation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces


class Minibatch(NamedTuple):
    """Transitions of one minibatch; ``obs`` ``(B, D)``, ``actions`` ``(B, A)``, the rest ``(B,)``, all float32."""

    obs: torch.Tensor
    actions: torch.Tensor
    old_log_prob: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor

    def select(self, index: torch.Tensor) -> Minibatch:
        """The transitions of an index (n,) int64 on the CPU, in its order."""
        index = index.to(self.obs.device, non_blocking=True)
        return Minibatch(*(a.index_select(0, index) for a in self))


class RolloutBuffer:
    """``(n_steps, n_envs, ...)`` tensors, allocated once on the device that trains.

    The constructor is SB3's. Times are counted as SB3 does: ``episode_starts[t]`` says that step ``t`` is the first
    of an episode.

    Args:
        buffer_size: steps per environment, T.
        observation_space: Box ``(D,)``.
        action_space: Box ``(A,)``.
        device: where the tensors live.
        gae_lambda: lambda of generalised advantage estimation (Schulman et al. 2016).
        gamma: discount.
        n_envs: environments, N.
        body_of_env: ``(N,)`` index of the body of each environment; advantages are standardised per body.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Box,
        action_space: spaces.Box,
        device: torch.device | str = "cpu",
        gae_lambda: float = 1.0,
        gamma: float = 0.99,
        n_envs: int = 1,
        body_of_env: np.ndarray | None = None,
    ) -> None:
        self.buffer_size, self.n_envs = buffer_size, n_envs
        self.gae_lambda, self.gamma = gae_lambda, gamma
        self.device = torch.device(device)
        shape = (buffer_size, n_envs)
        self.obs = torch.zeros(*shape, *observation_space.shape, device=self.device)
        self.actions = torch.zeros(*shape, *action_space.shape, device=self.device)
        self.rewards, self.episode_starts, self.values, self.log_probs, self.advantages, self.returns = (
            torch.zeros(shape, device=self.device) for _ in range(6)
        )
        bodies = np.zeros(n_envs, np.int64) if body_of_env is None else np.asarray(body_of_env)
        self.envs_of_body = [
            torch.as_tensor(np.flatnonzero(bodies == k), device=self.device) for k in range(int(bodies.max()) + 1)
        ]
        self.memory: dict[str, torch.Tensor] = {}
        """Memory of the policy before the first step; empty for a policy without."""
        self.pos = 0

    @property
    def full(self) -> bool:
        """Whether every step is filled."""
        return self.pos == self.buffer_size

    def reset(self, memory: dict[str, torch.Tensor] | None = None) -> None:
        """Start filling anew, with a copy of the policy's memory."""
        self.memory = {name: tensor.clone() for name, tensor in (memory or {}).items()}
        self.pos = 0

    def add(
        self,
        obs: torch.Tensor,
        actions: torch.Tensor,
        rewards: torch.Tensor,
        episode_starts: torch.Tensor,
        values: torch.Tensor,
        log_probs: torch.Tensor,
    ) -> None:
        """Store one step of all environments."""
        t = self.pos
        self.obs[t], self.actions[t], self.rewards[t] = obs, actions, rewards
        self.episode_starts[t], self.values[t], self.log_probs[t] = episode_starts, values, log_probs
        self.pos += 1

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: torch.Tensor) -> None:
        """Fill ``advantages`` and ``returns`` (lambda-returns) backwards in time.

        Args:
            last_values: ``(N,)`` value of the observation after the last step.
            dones: ``(N,)`` whether the last step ended an episode.
        """
        gamma, lam = self.gamma, self.gae_lambda
        advantage = torch.zeros_like(last_values)
        next_values, alive = last_values, 1.0 - dones.to(last_values.dtype)
        for t in range(self.buffer_size - 1, -1, -1):
            delta = self.rewards[t] + gamma * next_values * alive - self.values[t]
            advantage = delta + gamma * lam * alive * advantage
            self.advantages[t] = advantage
            next_values, alive = self.values[t], 1.0 - self.episode_starts[t]
        torch.add(self.advantages, self.values, out=self.returns)

    def standardize_advantages(self) -> None:
        """Bring each body's advantages to mean 0 and standard deviation 1, over the whole batch.

        A body whose advantages are all equal, up to rounding, gets 0: they tell no action from another, and their
        rounding errors must not be blown up to 1.
        """
        for columns in self.envs_of_body:
            part = self.advantages[:, columns]
            centred, spread = part - part.mean(), part.std(correction=0)
            told_apart = spread > 1e-6 * part.abs().max()
            self.advantages[:, columns] = torch.where(told_apart, centred / (spread + 1e-8), 0.0)

    def flat(self) -> Minibatch:
        """The whole batch, ``(n_steps * n_envs, ...)``."""
        arrays: list[Any] = [self.obs, self.actions, self.log_probs, self.advantages, self.returns]
        return Minibatch(*(a.flatten(0, 1) for a in arrays))

    def minibatches(self, batch_size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        """One pass in random order: the rows of each minibatch, int64 on the CPU; the last may be smaller."""
        return self.order(generator).split(batch_size)

    def order(self, generator: torch.Generator) -> torch.Tensor:
        """The rows of one pass, in random order, int64 on the CPU."""
        return torch.randperm(self.returns.numel(), generator=generator)


class ReturnScaler:
    """Running standard deviation of the discounted return, by which rewards are divided when that is on.

    Args:
        n_envs: environments, N.
        gamma: discount.
    """

    def __init__(self, n_envs: int, gamma: float) -> None:
        self.gamma = gamma
        self.discounted = np.zeros(n_envs)
        self.mean, self.m2, self.count = 0.0, 0.0, 0

    def __call__(self, rewards: np.ndarray, dones: np.ndarray) -> np.ndarray:
        """Add a step's ``rewards`` ``(N,)`` to the statistics and return them scaled."""
        # What is not finite is told before the update; here it would stay for ever.
        self.discounted = self.discounted * self.gamma + np.where(np.isfinite(rewards), rewards, 0.0)
        n = self.count + len(rewards)
        delta = self.discounted.mean() - self.mean
        self.m2 += ((self.discounted - self.discounted.mean()) ** 2).sum() + delta**2 * self.count * len(rewards) / n
        self.mean += delta * len(rewards) / n
        self.count = n
        self.discounted[dones] = 0.0
        return rewards / np.sqrt(max(self.m2 / n, 1e-4))

    def state(self) -> dict[str, Any]:
        """JSON-able state."""
        return {"discounted": self.discounted.tolist(), "mean": self.mean, "m2": self.m2, "count": self.count}

    def load(self, state: dict[str, Any]) -> None:
        """Restore :meth:`state`."""
        self.discounted = np.array(state["discounted"])
        self.mean, self.m2, self.count = float(state["mean"]), float(state["m2"]), int(state["count"])
