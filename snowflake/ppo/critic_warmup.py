"""The update of a warm-up: a fresh critic learns the value of an actor that was trained already and does not move."""

from __future__ import annotations

import torch

from snowflake.freezing import trainable_parameters
from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.buffer import RolloutBuffer
from snowflake.ppo.update import critic_loss
from snowflake.ppo.workers import Workers, add_up, gradient_tasks


def update_critic(
    policy: GraphActorCriticPolicy,
    buffer: RolloutBuffer,
    batch_size: int,
    n_epochs: int,
    generator: torch.Generator,
    workers: Workers | None = None,
) -> dict[str, float]:
    """Run the epochs of one update on the critic's loss alone; nothing of the actor is touched.

    Args:
        policy: its critic is updated in place.
        buffer: a full rollout, with returns.
        batch_size: transitions per minibatch.
        n_epochs: passes over the rollout.
        generator: source of the minibatch permutations (on the CPU).
        workers: threads that share the parts of a minibatch on the CPU; their number changes no result.

    Returns:
        ``value_loss``, mean over minibatches, and ``explained_variance`` of the values at collection.
    """
    losses = []
    flat, parameters = buffer.flat(), trainable_parameters(policy.critic)
    workers, factor = workers or Workers(1), policy.loss_factors(batch_size)[1]
    with workers.alone(policy.splits_batches):
        prepared = policy.prepare(flat.obs, policy.critic, workers)
        for _ in range(n_epochs):
            for index in buffer.minibatches(batch_size, generator):

                def part(rows: torch.Tensor, size: int = len(index)) -> tuple[torch.Tensor, ...]:
                    loss = critic_loss(policy, flat.select(rows), prepared.select(rows), size)
                    return loss * factor, loss.detach()

                rows = policy.rows_at_once(policy.critic, len(index))
                parts = workers.run(gradient_tasks(part, index, rows, parameters))
                for parameter, grad in zip(parameters, add_up(parts), strict=True):
                    parameter.grad = grad
                policy.critic_optimizer.step()
                losses.append(torch.stack([rest[0] for _, rest in parts]).sum())
    residual = (buffer.returns - buffer.values).var()
    explained = 1.0 - residual / buffer.returns.var().clamp_min(1e-12)
    value_loss, explained_variance = torch.stack([torch.stack(losses).mean(), explained]).tolist()
    return {"value_loss": value_loss, "explained_variance": explained_variance}
