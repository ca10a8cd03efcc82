"""PPO section of the training config."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from tyro.conf import Fixed, Suppress

from agents.errors import UserError
from snowflake.config.checks import check_choice, check_range


@dataclass(frozen=True)
class PPOConfig:
    """PPO constants. Names are Stable-Baselines3's; values are NerveNet's (Wang et al. 2018)."""

    n_steps: int = 128
    """Steps per environment and rollout; n_steps x n_envs transitions make one batch."""
    batch_size: int = 256
    """Transitions per minibatch."""
    n_epochs: int = 10
    """Passes over each batch."""
    learning_rate: float = 3e-4
    """Actor's Adam step size at the start."""
    learning_rate_schedule: str = "linear"
    """Actor's step size over the run: linear (to 0) or constant."""
    component_learning_rates: Annotated[dict[str, float], Fixed, Suppress] = field(default_factory=dict)
    """Constant step sizes of single actor components, in YAML only: {decoder: 1e-4}; 0 holds one still."""
    critic_learning_rate: float = 3e-4
    """Critic's Adam step size, constant."""
    critic_warmup_updates: int = 5
    """Updates that train a fresh critic alone, before an actor that was trained already moves (finetune only)."""
    gamma: float = 0.99
    """Discount per control step."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation."""
    clip_range: float = 0.2
    """Clip range of the probability ratio."""
    max_grad_norm: float = 5.0
    """Bound on the norm of the actor's gradient; under parametrization unit on its root mean square."""
    weight_decay: float = 0.0
    """L2 coefficient c: 0.5 c ||w||^2 is added to the actor's loss; off by default."""
    weight_decay_components: tuple[str, ...] = ()
    """Actor components that weight_decay acts on; all but log_std if none is named."""
    ent_coef: float = 0.0
    """Entropy bonus."""
    target_kl: float | None = None
    """Stop the epochs of an update once the approximate KL exceeds 1.5 times this; off by default."""
    scale_returns: bool = False
    """Divide rewards by the running standard deviation of the discounted return."""
    timelimit_bootstrap: bool = True
    """Bootstrap the value at the time limit (the official code does not)."""
    collection: str = "fixed"
    """Rollouts: fixed (n_steps of every environment), or whole_episodes (the official code's: at least as many)."""
    step_accounting: str = "real"
    """Steps counted per iteration of whole episodes: real, or nominal (n_steps x n_envs, the official code's)."""
    mlp_update: str = "correct"
    """Update of the flat actor: correct, or official (it descends its objective, summed and unclipped: a defect)."""
    diagnostics_every: int = 0
    """Updates between measurements of how far each component moves the policy (tags diagnostics/...); 0 = off."""
    activations_every: int = 10
    """Updates between measurements of a limb transformer's activations (tags act/... and attn/...); 0 = off."""

    on_non_finite: str = "stop"
    """At a loss, gradient, parameter, observation or reward that is not finite: stop the run, or skip the update."""

    def check_rollout(self, n_envs: int) -> None:
        """Require that a rollout of ``n_envs`` environments fills a minibatch.

        Raises:
            UserError: It does not.
        """
        batch = self.n_steps * n_envs
        if self.batch_size > batch:
            raise UserError(
                f"ppo.batch_size = {self.batch_size} exceeds the rollout of {batch} transitions "
                f"(n_steps {self.n_steps} x n_envs {n_envs}): lower batch_size or raise n_steps"
            )

    def check_unit(self, network: str) -> None:
        """Require settings that have a meaning for unit-scaled networks, whose weights start at N(0, 1).

        Args:
            network: the actor's; `mlp_update` is of no effect on others than mlp.

        Raises:
            UserError: one has none.
        """
        descends = network == "mlp" and self.mlp_update != "correct"
        for key, wrong in (("weight_decay", self.weight_decay > 0), ("mlp_update", descends)):
            if wrong:
                value = getattr(self, key)
                raise UserError(
                    f"ppo.{key} = {value!r} is for policy.parametrization 'standard': leave one of them out"
                )

    def __post_init__(self) -> None:
        check_range("ppo", "n_steps", self.n_steps, 1, 10_000_000)
        check_range("ppo", "batch_size", self.batch_size, 2, 100_000_000)
        check_range("ppo", "n_epochs", self.n_epochs, 1, 1000)
        check_range("ppo", "learning_rate", self.learning_rate, 0.0, 1000.0, open_low=True)
        check_choice("ppo", "learning_rate_schedule", self.learning_rate_schedule, ("linear", "constant"))
        check_range("ppo", "critic_learning_rate", self.critic_learning_rate, 0.0, 1000.0, open_low=True)
        check_range("ppo", "critic_warmup_updates", self.critic_warmup_updates, 0, 1_000_000)
        check_range("ppo", "gamma", self.gamma, 0.0, 1.0)
        check_range("ppo", "gae_lambda", self.gae_lambda, 0.0, 1.0)
        check_range("ppo", "clip_range", self.clip_range, 0.0, 10.0, open_low=True)
        check_range("ppo", "max_grad_norm", self.max_grad_norm, 0.0, float("inf"), open_low=True)
        check_range("ppo", "ent_coef", self.ent_coef, 0.0, 100.0)
        if self.target_kl is not None:
            check_range("ppo", "target_kl", self.target_kl, 0.0, 100.0, open_low=True)
        check_range("ppo", "weight_decay", self.weight_decay, 0.0, 1000.0)
        if self.weight_decay_components and not self.weight_decay:
            raise UserError(
                "ppo.weight_decay_components has no effect while ppo.weight_decay is 0: set both, or neither"
            )
        for name, rate in self.component_learning_rates.items():
            check_range("ppo", f"component_learning_rates.{name}", rate, 0.0, 1000.0)
        check_choice("ppo", "collection", self.collection, ("fixed", "whole_episodes"))
        check_choice("ppo", "step_accounting", self.step_accounting, ("real", "nominal"))
        if self.step_accounting == "nominal" and self.collection == "fixed":
            raise UserError("ppo.step_accounting = 'nominal' differs from real only with ppo.collection whole_episodes")
        if self.scale_returns and self.collection == "whole_episodes":
            raise UserError("ppo.scale_returns works with ppo.collection fixed only: switch one of them off")
        check_choice("ppo", "mlp_update", self.mlp_update, ("correct", "official"))
        check_choice("ppo", "on_non_finite", self.on_non_finite, ("stop", "skip"))
        check_range("ppo", "diagnostics_every", self.diagnostics_every, 0, 10**9)
        check_range("ppo", "activations_every", self.activations_every, 0, 10**9)
