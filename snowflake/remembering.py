"""What a policy has for the memory of its actor: a state between steps, and SB3's ``predict`` with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from snowflake.networks.memory import Past, State
from snowflake.prepared import Part, PreparedBatch

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy

    Base = ActorCriticPolicy
else:
    Base = object


class Remembering(Base):
    """Part of a policy with an attribute ``actor`` and a method ``act``; it comes before SB3's class."""

    actor: Any
    act: Any

    @property
    def has_memory(self) -> bool:
        """Whether actions depend on earlier steps."""
        return self.actor.memory is not None

    def initial_state(self, n: int, *, deployed: bool = False) -> State:
        """Memory of ``n`` environments before their first step: empty for a policy without.

        Args:
            n: environments.
            deployed: for acting outside of training, where ``policy.sparq: eval`` applies.
        """
        return {} if self.actor.memory is None else self.actor.memory.initial_state(n, deployed)

    def recall(self, prepared: PreparedBatch, past: Past) -> PreparedBatch:
        """Add the memory's part to what was prepared for the actor, for T steps of E environments, step after step."""

        def with_memory(part: Part) -> tuple[torch.Tensor, ...]:
            mine = past.of(part.rows)
            tensors = self.actor.recall(part.tensors, mine, part.body)
            past.put(part.rows, mine)
            return tensors

        return prepared.change(with_memory)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """Actions for observations, clipped to the action space, and the memory (SB3's signature).

        Args:
            observation: one observation ``(D,)`` or a batch ``(N, D)``.
            state: what the last call returned, a dict of arrays, which is left as it is; None at the beginning.
            episode_start: ``(N,)`` bool, whose episode starts with this observation.
            deterministic: take the mean instead of a sample.
        """
        if not self.has_memory:
            return super().predict(observation, state, episode_start, deterministic)  # type: ignore[misc]
        self.set_training_mode(False)
        obs, batched = self.obs_to_tensor(observation)
        own = {name: torch.tensor(value, device=self.device) for name, value in (state or {}).items()}
        starts = None if episode_start is None else torch.as_tensor(np.atleast_1d(episode_start))
        with torch.no_grad():
            actions, _, _, own = self.act(
                obs, own, starts, deterministic=deterministic, with_value=False, deployed=True
            )
        space: Any = self.action_space  # a Box
        clipped = np.clip(actions.cpu().numpy(), space.low, space.high)
        return clipped if batched else clipped[0], {name: tensor.cpu().numpy() for name, tensor in own.items()}
