"""PPO section of the training config."""

from __future__ import annotations

from dataclasses import dataclass

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
    critic_learning_rate: float = 3e-4
    """Critic's Adam step size, constant."""
    gamma: float = 0.99
    """Discount per control step."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation."""
    clip_range: float = 0.2
    """Clip range of the probability ratio."""
    max_grad_norm: float = 5.0
    """Bound on the norm of the actor's gradient."""
    ent_coef: float = 0.0
    """Entropy bonus."""
    target_kl: float | None = None
    """Stop the epochs of an update once the approximate KL exceeds 1.5 times this; off by default."""
    scale_returns: bool = False
    """Divide rewards by the running standard deviation of the discounted return."""
    timelimit_bootstrap: bool = True
    """Bootstrap the value at the time limit (the official code does not)."""

    def __post_init__(self) -> None:
        check_range("ppo", "n_steps", self.n_steps, 1, 10_000_000)
        check_range("ppo", "batch_size", self.batch_size, 2, 100_000_000)
        check_range("ppo", "n_epochs", self.n_epochs, 1, 1000)
        check_range("ppo", "learning_rate", self.learning_rate, 0.0, 1000.0, open_low=True)
        check_choice("ppo", "learning_rate_schedule", self.learning_rate_schedule, ("linear", "constant"))
        check_range("ppo", "critic_learning_rate", self.critic_learning_rate, 0.0, 1000.0, open_low=True)
        check_range("ppo", "gamma", self.gamma, 0.0, 1.0)
        check_range("ppo", "gae_lambda", self.gae_lambda, 0.0, 1.0)
        check_range("ppo", "clip_range", self.clip_range, 0.0, 10.0, open_low=True)
        check_range("ppo", "max_grad_norm", self.max_grad_norm, 0.0, float("inf"), open_low=True)
        check_range("ppo", "ent_coef", self.ent_coef, 0.0, 100.0)
        if self.target_kl is not None:
            check_range("ppo", "target_kl", self.target_kl, 0.0, 100.0, open_low=True)
