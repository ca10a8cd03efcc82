"""One PPO update: epochs of minibatches over a rollout, actor and critic each with their own optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from agents.errors import UserError
from snowflake.freezing import trainable_parameters
from snowflake.policy import GraphActorCriticPolicy
from snowflake.prepared import PreparedBatch
from snowflake.ppo.buffer import Minibatch, RolloutBuffer

_MINIBATCH_STATISTICS = (
    "policy_gradient_loss",
    "value_loss",
    "entropy_loss",
    "weight_decay_loss",
    "approx_kl",
    "clip_fraction",
)


@dataclass(frozen=True)
class UpdateSettings:
    """Constants of an update; see :class:`snowflake.config.PPOConfig`."""

    batch_size: int
    n_epochs: int
    clip_range: float
    ent_coef: float
    max_grad_norm: float
    target_kl: float | None
    weight_decay: float = 0.0
    weight_decay_components: tuple[str, ...] = ()
    mlp_update: str = "correct"


def actor_loss(
    policy: GraphActorCriticPolicy,
    batch: Minibatch,
    clip_range: float,
    ent_coef: float,
    *,
    prepared: PreparedBatch | None = None,
    descend: bool = False,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate objective (Schulman et al. 2017), negated, with an entropy bonus.

    Args:
        policy: gives the log-probabilities.
        batch: transitions, advantages standardised.
        clip_range: bound on ``|ratio - 1|``.
        ent_coef: weight of the entropy.
        prepared: what the actor prepared of the observations, where that is known already.
        descend: the loss is the objective itself, summed: what the official code minimises for its flat policy.

    Returns:
        The scalar loss and detached statistics: scalars named as in SB3, and ``ratio`` ``(B,)``.
    """
    if prepared is None:
        prepared = policy.prepare(batch.obs, policy.actor)
    log_prob, entropy = policy.action_log_prob_of(prepared, batch.actions)
    log_ratio = log_prob - batch.old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    objective = torch.minimum(batch.advantages * ratio, batch.advantages * clipped)
    policy_loss = -objective.mean()
    entropy_loss = -entropy.mean()
    with torch.no_grad():
        statistics = {
            "policy_gradient_loss": policy_loss.detach(),
            "entropy_loss": entropy_loss.detach(),
            "approx_kl": (ratio - 1.0 - log_ratio).mean(),
            "clip_fraction": ((ratio - 1.0).abs() > clip_range).float().mean(),
            "ratio": ratio.detach(),
        }
    return (objective.sum() if descend else policy_loss) + ent_coef * entropy_loss, statistics


def critic_loss(
    policy: GraphActorCriticPolicy, batch: Minibatch, prepared: PreparedBatch | None = None
) -> torch.Tensor:
    """Mean squared error between the value and the lambda-return; ``prepared`` by the critic, if it is known."""
    if prepared is None:
        prepared = policy.prepare(batch.obs, policy.critic)
    return F.mse_loss(policy.value_of(prepared), batch.returns)


def decayed_parameters(policy: GraphActorCriticPolicy, names: tuple[str, ...]) -> list[torch.nn.Parameter]:
    """Return the trainable parameters of the actor that weight decay acts on.

    Args:
        policy: whose actor it is.
        names: components; none means all but ``log_std``, whose zero is no natural value.

    Raises:
        UserError: a component that the actor lacks, or one that is frozen, which decay cannot move.
    """
    actor = policy.actor
    for name in names:
        _check_trainable(policy, name, "ppo.weight_decay_components")
    chosen = names or tuple(name for name in actor.components if name != "log_std")
    return [p for name in chosen for p in actor.component_parameters(name).values() if p.requires_grad]


def set_component_rates(policy: GraphActorCriticPolicy, rates: Mapping[str, float]) -> None:
    """Give components of the actor constant step sizes of their own, before training.

    Args:
        policy: its ``optimizer`` is replaced by one with a parameter group per component in ``rates``.
        rates: step size by component; the others keep the scheduled one.

    Raises:
        UserError: a component that the actor lacks, or one that is frozen.
    """
    if not rates:
        return
    own = {}
    for name, rate in rates.items():
        _check_trainable(policy, name, "ppo.component_learning_rates")
        trained = [p for p in policy.actor.component_parameters(name).values() if p.requires_grad]
        own[name] = {"params": trained, "lr": rate, "constant_lr": rate}
    taken = {id(p) for group in own.values() for p in group["params"]}
    rest = [p for p in trainable_parameters(policy.actor) if id(p) not in taken]
    groups = [*([{"params": rest}] if rest else []), *own.values()]
    policy.optimizer = torch.optim.Adam(groups, lr=policy.optimizer.param_groups[0]["lr"], **policy.optimizer_kwargs)


def _check_trainable(policy: GraphActorCriticPolicy, name: str, key: str) -> None:
    try:
        parameters = policy.actor.component_parameters(name)
    except UserError as error:
        raise UserError(f"{key}: {error}") from None
    if not any(p.requires_grad for p in parameters.values()):
        raise UserError(f"{key} names {name!r}, which has nothing to train: leave it out, or take it off policy.freeze")


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
        self.decayed = decayed_parameters(policy, settings.weight_decay_components) if settings.weight_decay else []
        self.descend = settings.mlp_update == "official" and policy.config.network == "mlp"
        for group in policy.optimizer.param_groups:
            group["lr"] = group.get("constant_lr", group["lr"])

    def run(self, buffer: RolloutBuffer) -> dict[str, float]:
        """Update on ``buffer`` and return the statistics, by name.

        Keys: SB3's (means over minibatches), ``n_epochs`` actually run, ``grad_norm`` and ``grad_norm/COMPONENT``
        (before clipping), ``first_ratio_error`` (largest ``|ratio - 1|`` in the first minibatch), ``kl_batch``
        (KL of the finished update over the whole batch) and ``explained_variance``.
        """
        buffer.standardize_advantages()
        flat = buffer.flat()
        with torch.no_grad():  # statistics stand still during an update, so this is the same in every epoch
            actor = self.policy.prepare(flat.obs, self.policy.actor)
            critic = self.policy.prepare(flat.obs, self.policy.critic)
        rows: list[torch.Tensor] = []
        first_ratio_error = torch.zeros(())
        epochs = 0
        for epoch in range(self.settings.n_epochs):
            stop = False
            for i, (index, batch) in enumerate(buffer.minibatches(self.settings.batch_size, self.generator)):
                row, ratio, stop = self._minibatch(batch, actor.select(index), critic.select(index))
                if epoch == 0 and i == 0:
                    first_ratio_error = (ratio - 1.0).abs().max()
                rows.append(row)
                if stop:
                    break
            epochs = epoch + 1
            if stop:
                break
        names = (*_MINIBATCH_STATISTICS, "grad_norm", *(f"grad_norm/{name}" for name in self.trainable))
        values = buffer.values.flatten()
        explained = 1.0 - (flat.returns - values).var() / flat.returns.var().clamp_min(1e-12)
        tail = torch.stack([first_ratio_error.to(rows[0].device), self._batch_kl(flat, actor), explained])
        result = torch.cat([torch.stack(rows).mean(0), tail]).tolist()
        statistics = dict(zip((*names, "first_ratio_error", "kl_batch", "explained_variance"), result, strict=True))
        return statistics | {"n_epochs": float(epochs), "n_minibatches": float(len(rows))}

    def _minibatch(
        self, batch: Minibatch, actor: PreparedBatch, critic: PreparedBatch
    ) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """One step of actor and critic; the statistics as one tensor, the ratios, and whether to stop."""
        settings, policy = self.settings, self.policy
        loss, statistics = actor_loss(
            policy, batch, settings.clip_range, settings.ent_coef, prepared=actor, descend=self.descend
        )
        statistics["weight_decay_loss"] = torch.zeros_like(statistics["approx_kl"])
        if self.decayed:
            penalty = 0.5 * settings.weight_decay * torch.stack([p.square().sum() for p in self.decayed]).sum()
            loss = loss + penalty
            statistics["weight_decay_loss"] = penalty.detach()
        if settings.target_kl is not None and float(statistics["approx_kl"]) > 1.5 * settings.target_kl:
            stop, norms = True, [torch.zeros(()) for _ in self.trainable]
        else:
            stop = False
            policy.optimizer.zero_grad()
            loss.backward()
            norms = self._component_norms()
        total = torch.stack(norms).norm()
        if not stop:
            if not self.descend:  # the official code clips graph policies only
                torch.nn.utils.clip_grads_with_norm_(self.actor_parameters, settings.max_grad_norm, total)
            policy.optimizer.step()
        value_loss = critic_loss(policy, batch, critic)
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

    def _batch_kl(self, flat: Minibatch, actor: PreparedBatch) -> torch.Tensor:
        """KL(old || new) over the whole batch, by the low-variance estimator ``ratio - 1 - log ratio``.

        By minibatches with gradients on, as in the update: so compiled code is used that is there already.
        """
        parts = []
        for rows in torch.arange(actor.size).split(self.settings.batch_size):
            index = rows.to(flat.actions.device, non_blocking=True)
            log_prob = self.policy.action_log_prob_of(actor.select(rows), flat.actions.index_select(0, index))[0]
            log_ratio = log_prob.detach() - flat.old_log_prob.index_select(0, index)
            parts.append(log_ratio.exp() - 1.0 - log_ratio)
        return torch.cat(parts).mean()
