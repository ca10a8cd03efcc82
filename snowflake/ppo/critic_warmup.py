"""The update of a warm-up: a fresh critic learns the value of an actor that was trained already and does not move."""

from __future__ import annotations

import torch

from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.buffer import RolloutBuffer
from snowflake.ppo.update import critic_loss


def update_critic(
    policy: GraphActorCriticPolicy,
    buffer: RolloutBuffer,
    batch_size: int,
    n_epochs: int,
    generator: torch.Generator,
) -> dict[str, float]:
    """Run the epochs of one update on the critic's loss alone; nothing of the actor is touched.

    Args:
        policy: its critic is updated in place.
        buffer: a full rollout, with returns.
        batch_size: transitions per minibatch.
        n_epochs: passes over the rollout.
        generator: source of the minibatch permutations (on the CPU).

    Returns:
        ``value_loss``, mean over minibatches, and ``explained_variance`` of the values at collection.
    """
    losses = []
    with torch.no_grad():
        prepared = policy.prepare(buffer.flat().obs, policy.critic)
    for _ in range(n_epochs):
        for rows, batch in buffer.minibatches(batch_size, generator):
            loss = critic_loss(policy, batch, prepared.select(rows))
            policy.critic_optimizer.zero_grad()
            loss.backward()
            policy.critic_optimizer.step()
            losses.append(loss.detach())
    residual = (buffer.returns - buffer.values).var()
    explained = 1.0 - residual / buffer.returns.var().clamp_min(1e-12)
    value_loss, explained_variance = torch.stack([torch.stack(losses).mean(), explained]).tolist()
    return {"value_loss": value_loss, "explained_variance": explained_variance}
