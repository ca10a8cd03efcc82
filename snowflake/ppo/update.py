"""One PPO update: epochs of minibatches over a rollout, actor and critic each with their own optimiser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional as F

from agents.errors import UserError
from snowflake.freezing import trainable_parameters
from snowflake.numerics import unit
from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.bad_numbers import BadNumbers
from snowflake.ppo.buffer import Minibatch, RolloutBuffer
from snowflake.ppo.sequences import Sequences
from snowflake.ppo.workers import Gradients, Workers, add_up, gradient_tasks
from snowflake.prepared import PreparedBatch

_ACTOR_STATISTICS = ("policy_gradient_loss", "entropy_loss", "approx_kl", "clip_fraction")
_KL = _ACTOR_STATISTICS.index("approx_kl")
_TAIL = ("first_ratio_error", "rollout_ratio_error", "kl_batch", "explained_variance")


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
    recompute_log_prob: bool = False
    """Compute the old log-probabilities again before the first step: where rounding depends on the size of a batch."""
    skip_nonfinite: bool = False
    """Leave out the step of a minibatch with a loss or a gradient that is not finite, and count it."""


def actor_loss(
    policy: GraphActorCriticPolicy,
    batch: Minibatch,
    clip_range: float,
    ent_coef: float,
    *,
    prepared: PreparedBatch | None = None,
    descend: bool = False,
    size: int | None = None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate objective (Schulman et al. 2017), negated, with an entropy bonus.

    Args:
        policy: gives the log-probabilities.
        batch: transitions, advantages standardised.
        clip_range: bound on ``|ratio - 1|``.
        ent_coef: weight of the entropy.
        prepared: what the actor prepared of the observations, where that is known already.
        descend: the loss is the objective itself, summed: what the official code minimises for its flat policy.
        size: transitions of the minibatch that ``batch`` is a part of: loss and means are its share of them.

    Returns:
        The scalar loss and detached statistics: scalars named as in SB3, and ``ratio`` ``(B,)``.
    """
    if prepared is None:
        prepared = policy.prepare(batch.obs, policy.actor)
    size = size or len(batch.actions)
    log_prob, entropy = policy.action_log_prob_of(prepared, batch.actions)
    log_ratio = log_prob - batch.old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    objective = torch.minimum(batch.advantages * ratio, batch.advantages * clipped)
    total = objective.sum()
    policy_loss = -total / size
    entropy_loss = -entropy.sum() / size
    with torch.no_grad():
        statistics = {
            "policy_gradient_loss": policy_loss.detach(),
            "entropy_loss": entropy_loss.detach(),
            "approx_kl": (ratio - 1.0 - log_ratio).sum() / size,
            "clip_fraction": ((ratio - 1.0).abs() > clip_range).sum() / size,
            "ratio": ratio.detach(),
        }
    return (total if descend else policy_loss) + ent_coef * entropy_loss, statistics


def critic_loss(
    policy: GraphActorCriticPolicy, batch: Minibatch, prepared: PreparedBatch | None = None, size: int | None = None
) -> torch.Tensor:
    """Mean squared error between the value and the lambda-return; ``prepared`` and ``size`` as in `actor_loss`."""
    if prepared is None:
        prepared = policy.prepare(batch.obs, policy.critic)
    return F.mse_loss(policy.value_of(prepared), batch.returns, reduction="sum") / (size or len(batch.returns))


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
        own[name] = (rate, {id(p) for p in trained})
    groups = []
    for group in policy.optimizer.param_groups:  # several, with a factor each, of unit-scaled networks
        factor, left = group.get("lr_factor", 1.0), list(group["params"])
        for rate, ids in own.values():
            if taken := [p for p in left if id(p) in ids]:
                groups.append({"params": taken, "lr": rate * factor, "constant_lr": rate * factor})
                left = [p for p in left if id(p) not in ids]
        if left:
            groups.append({"params": left, "lr": group["lr"], "lr_factor": factor})
    policy.optimizer = torch.optim.Adam(groups, **policy.optimizer_kwargs)


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
        workers: threads that share the parts of a minibatch on the CPU; their number changes no result.
    """

    def __init__(
        self,
        policy: GraphActorCriticPolicy,
        settings: UpdateSettings,
        generator: torch.Generator,
        workers: Workers | None = None,
    ) -> None:
        self.policy, self.settings, self.generator = policy, settings, generator
        self.workers = workers or Workers(1)
        trainable = {
            name: [p for p in policy.actor.component_parameters(name).values() if p.requires_grad]
            for name in policy.actor.components
        }
        self.trainable = {name: parameters for name, parameters in trainable.items() if parameters}
        self.actor_parameters = [p for parameters in self.trainable.values() for p in parameters]
        self.critic_parameters = trainable_parameters(policy.critic)
        self.decayed = decayed_parameters(policy, settings.weight_decay_components) if settings.weight_decay else []
        self.factors = policy.loss_factors(settings.batch_size)
        self.max_grad_norm = settings.max_grad_norm
        if policy.unit_scaled:
            self.max_grad_norm = unit.max_grad_norm(self.actor_parameters, settings.max_grad_norm)
        self.skipped_steps = 0
        self.sequences: Sequences | None = None
        self.descend = settings.mlp_update == "official" and policy.config.network == "mlp"
        self.row_names: tuple[str, ...] = ()
        self.rows: torch.Tensor | None = None
        """Statistics of every minibatch of the last run, on the device; columns are `row_names`."""
        for group in policy.optimizer.param_groups:
            group["lr"] = group.get("constant_lr", group["lr"])

    def run(self, buffer: RolloutBuffer) -> dict[str, float]:
        """Update on ``buffer`` and return the statistics, by name.

        Keys: SB3's (means over minibatches), ``n_epochs`` actually run, ``grad_norm`` and ``grad_norm/COMPONENT``
        (before clipping), ``first_ratio_error`` (largest ``|ratio - 1|`` in the first minibatch),
        ``rollout_ratio_error`` (the same over the batch, from the log-probabilities of the rollout to those computed
        again; 0 where they are not), ``kl_batch`` (KL of the finished update over the whole batch),
        ``explained_variance`` and ``skipped_steps``.

        Raises:
            BadNumbers: every minibatch was left out; the message names what was not finite.
        """
        buffer.standardize_advantages()
        flat = buffer.flat()
        self.sequences = Sequences(buffer) if self.policy.has_memory else None
        with self.workers.alone(self.policy.splits_batches):
            # Statistics of observations stand still during an update, so this is the same in every epoch.
            actor = self.policy.prepare(flat.obs, self.policy.actor, self.workers)
            critic = self.policy.prepare(flat.obs, self.policy.critic, self.workers)
            rollout_error = flat.old_log_prob.new_zeros(())
            first_pass = self._one_pass(buffer)
            if self.settings.recompute_log_prob:
                # In the same minibatches: the place of a row in a product may change the last bit of its sums.
                again = self._log_prob(flat, actor, first_pass)
                rollout_error = torch.expm1(again - flat.old_log_prob).abs().max()
                flat = flat._replace(old_log_prob=again)
            rows, first_ratio_error, epochs = self._epochs(buffer, first_pass, flat, actor, critic)
            log_ratio = self._log_prob(flat, actor, self._in_order(actor.size)) - flat.old_log_prob
        norms = ("grad_norm", *(f"grad_norm/{name}" for name in self.trainable))
        names = (*_ACTOR_STATISTICS, "weight_decay_loss", *norms, "value_loss", *_TAIL)
        values = buffer.values.flatten()
        explained = 1.0 - (flat.returns - values).var() / flat.returns.var().clamp_min(1e-12)
        kl = (log_ratio.exp() - 1.0 - log_ratio).mean()  # KL(old || new) by the estimator of low variance
        tail = torch.stack([first_ratio_error, rollout_error, kl, explained])
        self.row_names, self.rows = names[: -len(_TAIL)], torch.stack(rows)
        result = torch.cat([self.rows.mean(0), tail]).tolist()
        counts = {"n_epochs": epochs, "n_minibatches": len(rows), "skipped_steps": self.skipped_steps}
        return dict(zip(names, result, strict=True)) | {name: float(count) for name, count in counts.items()}

    def _one_pass(self, buffer: RolloutBuffer) -> tuple[torch.Tensor, ...]:
        """The minibatches of one pass, in random order: rows (B,), or (E, T) for a policy with memory."""
        return (self.sequences or buffer).minibatches(self.settings.batch_size, self.generator)

    def _in_order(self, size: int) -> tuple[torch.Tensor, ...]:
        """All rows of the batch in pieces of a minibatch's size; a pass in random order may leave some out."""
        if self.sequences is not None:
            return (self.sequences.rows(torch.arange(self.sequences.n_envs)),)
        return torch.arange(size).split(self.settings.batch_size)

    def _epochs(
        self,
        buffer: RolloutBuffer,
        first_pass: tuple[torch.Tensor, ...],
        flat: Minibatch,
        actor: PreparedBatch,
        critic: PreparedBatch,
    ) -> tuple[list[torch.Tensor], torch.Tensor, int]:
        """All minibatches: a row of statistics each, the largest ratio error of the first, and the epochs begun."""
        rows: list[torch.Tensor] = []
        first_ratio_error = torch.zeros(())
        epoch, stop = 0, False
        while not stop and epoch < self.settings.n_epochs:
            epoch += 1
            for index in first_pass if epoch == 1 else self._one_pass(buffer):
                row, ratio_errors, stop = self._minibatch(index, flat, actor, critic)
                if row is None:
                    self.skipped_steps += 1
                    continue
                if not rows:
                    first_ratio_error = torch.stack(ratio_errors).max()
                rows.append(row)
                if stop:
                    break
        if not rows:
            raise BadNumbers("loss or gradient of every minibatch")
        return rows, first_ratio_error, epoch

    def _minibatch(
        self, index: torch.Tensor, flat: Minibatch, actor: PreparedBatch, critic: PreparedBatch
    ) -> tuple[torch.Tensor | None, list[torch.Tensor], bool]:
        """One step of actor and critic; statistics as one tensor (None if left out), ratio errors, whether to stop.

        The rows of the minibatch are (B,), or (E, T) for a policy with memory.
        """
        settings, policy, size = self.settings, self.policy, index.numel()

        def actor_part(part: torch.Tensor) -> tuple[torch.Tensor, ...]:
            rows, prepared = self._recalled(actor, part)
            loss, statistics = actor_loss(
                policy,
                flat.select(rows),
                settings.clip_range,
                settings.ent_coef,
                prepared=prepared,
                descend=self.descend,
                size=size,
            )
            shares = torch.stack([statistics[name] for name in _ACTOR_STATISTICS])
            return loss * self.factors[0], shares, (statistics["ratio"] - 1.0).abs().max()

        def critic_part(part: torch.Tensor) -> tuple[torch.Tensor, ...]:
            loss = critic_loss(policy, flat.select(part), critic.select(part), size)
            return loss * self.factors[1], loss.detach()

        tasks = gradient_tasks(actor_part, index, self._actor_rows(size), self.actor_parameters)
        split = len(tasks)
        tasks += gradient_tasks(
            critic_part, index.flatten(), policy.rows_at_once(policy.critic, size), self.critic_parameters
        )
        results = self.workers.run(tasks)
        of_actor, of_critic = results[:split], results[split:]
        shares = torch.stack([rest[0] for _, rest in of_actor]).sum(0)
        value_loss = torch.stack([rest[0] for _, rest in of_critic]).sum()
        ratio_errors, grads, critic_grads = [rest[1] for _, rest in of_actor], add_up(of_actor), add_up(of_critic)
        if settings.skip_nonfinite and not _finite(shares, value_loss, *grads, *critic_grads):
            return None, ratio_errors, False
        row, stop = self._step_actor(grads, shares)
        self._assign(self.critic_parameters, critic_grads)
        policy.critic_optimizer.step()
        return torch.cat([row, value_loss[None]]), ratio_errors, stop

    def _step_actor(self, grads: Gradients, shares: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """Step the actor, unless its KL forbids; all statistics but the value loss, and whether to stop."""
        settings, policy = self.settings, self.policy
        stop = settings.target_kl is not None and float(shares[_KL]) > 1.5 * settings.target_kl
        penalty = shares.new_zeros(1)
        self._assign(self.actor_parameters, [None] * len(grads) if stop else grads)
        if self.decayed:
            with torch.no_grad():
                decay = settings.weight_decay
                penalty = 0.5 * decay * torch.stack([p.square().sum() for p in self.decayed]).sum()[None]
                for p in () if stop else self.decayed:
                    p.grad = decay * p if p.grad is None else p.grad.add(p, alpha=decay)
        norms = torch.stack(self._component_norms())
        total = norms.norm()
        if not stop:
            if not self.descend:  # the official code clips graph policies only
                torch.nn.utils.clip_grads_with_norm_(self.actor_parameters, self.max_grad_norm, total)
            policy.optimizer.step()
        return torch.cat([shares, penalty, total[None], norms]), stop

    @staticmethod
    def _assign(parameters: list[torch.nn.Parameter], grads: Gradients) -> None:
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad

    def _component_norms(self) -> list[torch.Tensor]:
        """L2 norm of the gradient of each trainable component."""
        device = self.actor_parameters[0].device
        grads = [[p.grad for p in parameters if p.grad is not None] for parameters in self.trainable.values()]
        return [torch.nn.utils.get_total_norm(some).to(device) for some in grads]

    @torch.no_grad()
    def _log_prob(self, flat: Minibatch, actor: PreparedBatch, minibatches: Sequence[torch.Tensor]) -> torch.Tensor:
        """Log-probability of every action, ``(N,)``, computed in the parts that the minibatches have.

        A row that is in none of them keeps the one of the rollout.
        """

        def part(index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            rows, prepared = self._recalled(actor, index)
            return rows, self.policy.action_log_prob_of(prepared, flat.select(rows).actions)[0]

        # Quantised layers count what they see: one thread at a time.
        numerics = self.policy.numerics
        workers = Workers(1) if numerics is not None and numerics.whole_batches else self.workers
        parts = [piece for index in minibatches for piece in index.split(self._actor_rows(index.numel()))]
        log_prob = flat.old_log_prob.clone()
        for rows, values in workers.run([partial(part, piece) for piece in parts]):
            log_prob.index_copy_(0, rows.to(log_prob.device, non_blocking=True), values)
        return log_prob

    def _recalled(self, actor: PreparedBatch, index: torch.Tensor) -> tuple[torch.Tensor, PreparedBatch]:
        """The rows of a part of a minibatch, in the order they are computed in, and what the actor makes of them."""
        if self.sequences is None:
            return index, actor.select(index)
        rows = index.t().flatten()
        return rows, self.policy.recall(actor.select(rows), self.sequences.past(index))

    def _actor_rows(self, size: int) -> int:
        """How many transitions, or environments with memory, of a minibatch of ``size`` a thread takes at once."""
        rows = min(self.policy.rows_at_once(self.policy.actor, size), size)
        return rows if self.sequences is None else max(1, rows // self.sequences.steps)


def _finite(*tensors: torch.Tensor | None) -> bool:
    """Whether every number is finite. Waits for the device."""
    some = [tensor for tensor in tensors if tensor is not None]
    return bool(torch.stack([torch.isfinite(tensor).all() for tensor in some]).all())
