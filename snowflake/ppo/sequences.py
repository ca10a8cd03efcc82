"""Minibatches of whole environments, for policies with memory: time is not cut."""

from __future__ import annotations

import torch
from torch import Tensor

from snowflake.networks.memory import Past
from snowflake.ppo.buffer import RolloutBuffer


class Sequences:
    """A rollout as one sequence per environment, and the memory as it stood before the first step.

    What the update computes from it is what the rollout computed: keys and values, or the hidden state, of steps before
    the rollout are taken as they were, made by older weights, and get no gradient.

    Args:
        buffer: full, with the memory at its start.
    """

    def __init__(self, buffer: RolloutBuffer) -> None:
        assert buffer.memory
        self.steps, self.n_envs = buffer.buffer_size, buffer.n_envs
        starts = buffer.episode_starts.bool()
        done = buffer.actions[:-1].clamp(-1.0, 1.0)
        before = torch.cat([buffer.memory["action"][None], done]).masked_fill(starts[..., None], 0.0)
        self._past = Past(buffer.memory, starts, before)

    def minibatches(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """One pass in random order.

        Args:
            batch_size: transitions wanted; a minibatch has as many whole environments as fit, one at least.
            generator: source of the order.

        Returns:
            The rows of each minibatch in the flat batch, (E, T) int64 on the CPU; the last may have fewer environments.
        """
        order = torch.randperm(self.n_envs, generator=generator)
        return tuple(self.rows(part) for part in order.split(max(1, batch_size // self.steps)))

    def rows(self, envs: Tensor) -> Tensor:
        """Rows of environments (E,) int64 in the flat batch, (E, T) int64."""
        return envs[:, None] + self.n_envs * torch.arange(self.steps)

    def past(self, rows: Tensor) -> Past:
        """What a minibatch, (E, T) as from `rows`, remembers; its transitions then go step after step: ``rows.t()``."""
        if len(rows) == self.n_envs and bool((rows[:, 0] == torch.arange(self.n_envs)).all()):
            return self._past
        return self._past.of(rows.t().flatten().to(self._past.starts.device))
