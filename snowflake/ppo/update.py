"""One PPO update: epochs of minibatches over a rollout, actor and critic each with their own optimiser."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.buffer import Minibatch, RolloutBuffer

_MINIBATCH_STATISTICS = ("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction")


@dataclass(frozen=True)
class UpdateSettings:
    """Constants of an update; see :class:`snowflake.config.PPOConfig`."""

    batch_size: int
    n_epochs: int
    clip_range: float
    ent_coef: float
    max_grad_norm: float
    target_kl: float | None


def actor_loss(
    policy: GraphActorCriticPolicy, batch: Minibatch, clip_range: float, ent_coef: float
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate objective (Schulman et al. 2017), negated, with an entropy bonus.

    Returns:
        The scalar loss and detached statistics: scalars named as in SB3, and ``ratio`` ``(B,)``.
    """
    log_prob, entropy = policy.action_log_prob(batch.obs, batch.actions)
    log_ratio = log_prob - batch.old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    policy_loss = -torch.minimum(batch.advantages * ratio, batch.advantages * clipped).mean()
    entropy_loss = -entropy.mean()
    with torch.no_grad():
        statistics = {
            "policy_gradient_loss": policy_loss.detach(),
            "entropy_loss": entropy_loss.detach(),
            "approx_kl": (ratio - 1.0 - log_ratio).mean(),
            "clip_fraction": ((ratio - 1.0).abs() > clip_range).float().mean(),
            "ratio": ratio.detach(),
        }
    return policy_loss + ent_coef * entropy_loss, statistics


def critic_loss(policy: GraphActorCriticPolicy, batch: Minibatch) -> torch.Tensor:
    """Mean squared error between the value and the lambda-return."""
    return F.mse_loss(policy.predict_values(batch.obs), batch.returns)


class PPOUpdate:
    """Runs the epochs of one update and gathers statistics on the device, read once at the end.

    Args:
        policy: updated in place.
        settings: constants.
        generator: source of the minibatch permutations (on the CPU).
    """

    def __init__(self, policy: GraphActorCriticPolicy, settings: UpdateSettings, generator: torch.Generator) -> None:
        self.policy, self.settings, self.generator = policy, settings, generator
        trainable = {
            name: [p for p in policy.actor.component_parameters(name).values() if p.requires_grad]
            for name in policy.actor.components
        }
        self.trainable = {name: parameters for name, parameters in trainable.items() if parameters}
        self.actor_parameters = [p for parameters in self.trainable.values() for p in parameters]

    def run(self, buffer: RolloutBuffer) -> dict[str, float]:
        """Update on ``buffer`` and return the statistics, by name.

        Keys: SB3's (means over minibatches), ``n_epochs`` actually run, ``grad_norm`` and ``grad_norm/COMPONENT``
        (before clipping), ``first_ratio_error`` (largest ``|ratio - 1|`` in the first minibatch), ``kl_batch``
        (KL of the finished update over the whole batch) and ``explained_variance``.
        """
        buffer.standardize_advantages()
        rows: list[torch.Tensor] = []
        first_ratio_error = torch.zeros(())
        epochs = 0
        for epoch in range(self.settings.n_epochs):
            stop = False
            for i, batch in enumerate(buffer.minibatches(self.settings.batch_size, self.generator)):
                row, ratio, stop = self._minibatch(batch)
                if epoch == 0 and i == 0:
                    first_ratio_error = (ratio - 1.0).abs().max()
                rows.append(row)
                if stop:
                    break
            epochs = epoch + 1
            if stop:
                break
        flat = buffer.flat()
        names = (*_MINIBATCH_STATISTICS, "grad_norm", *(f"grad_norm/{name}" for name in self.trainable))
        values = buffer.values.flatten()
        explained = 1.0 - (flat.returns - values).var() / flat.returns.var().clamp_min(1e-12)
        tail = torch.stack([first_ratio_error.to(rows[0].device), self._batch_kl(flat), explained])
        result = torch.cat([torch.stack(rows).mean(0), tail]).tolist()
        statistics = dict(zip((*names, "first_ratio_error", "kl_batch", "explained_variance"), result, strict=True))
        return statistics | {"n_epochs": float(epochs), "n_minibatches": float(len(rows))}

    def _minibatch(self, batch: Minibatch) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """One step of actor and critic; the statistics as one tensor, the ratios, and whether to stop."""
        settings, policy = self.settings, self.policy
        loss, statistics = actor_loss(policy, batch, settings.clip_range, settings.ent_coef)
        if settings.target_kl is not None and float(statistics["approx_kl"]) > 1.5 * settings.target_kl:
            stop, norms = True, [torch.zeros(()) for _ in self.trainable]
        else:
            stop = False
            policy.optimizer.zero_grad()
            loss.backward()
            norms = self._component_norms()
        total = torch.stack(norms).norm()
        if not stop:
            torch.nn.utils.clip_grads_with_norm_(self.actor_parameters, settings.max_grad_norm, total)
            policy.optimizer.step()
        value_loss = critic_loss(policy, batch)
        policy.critic_optimizer.zero_grad()
        value_loss.backward()
        policy.critic_optimizer.step()
        statistics["value_loss"] = value_loss.detach()
        row = torch.stack([*(statistics[name] for name in _MINIBATCH_STATISTICS), total, *norms])
        return row, statistics["ratio"], stop

    def _component_norms(self) -> list[torch.Tensor]:
        """L2 norm of the gradient of each trainable component."""
        return [
            torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            for parameters in self.trainable.values()
        ]

    @torch.no_grad()
    def _batch_kl(self, flat: Minibatch, chunk: int = 4096) -> torch.Tensor:
        """KL(old || new) over the whole batch, by the low-variance estimator ``ratio - 1 - log ratio``."""
        parts = []
        for obs, actions, old in zip(
            flat.obs.split(chunk), flat.actions.split(chunk), flat.old_log_prob.split(chunk), strict=True
        ):
            log_ratio = self.policy.action_log_prob(obs, actions)[0] - old
            parts.append(log_ratio.exp() - 1.0 - log_ratio)
        return torch.cat(parts).mean()
