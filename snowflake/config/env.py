"""Environment section of the training config."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agents.errors import UserError
from snowflake.config.checks import check_choice, check_range

DEFAULT_N_ENVS = 16
"""Environments of a run that asks for no number of its own, before rounding to a multiple of the bodies."""


@dataclass(frozen=True)
class EnvConfig:
    """How many environments run, for how long, and what they observe."""

    n_envs: int = 0
    """Environments stepped together, over all bodies; 0 takes 16, rounded up to a multiple of the number of bodies."""
    body_weights: tuple[float, ...] = ()
    """Share of the environments, so of the steps, that each body gets, one number a body; without it, the same."""
    max_episode_steps: int = 1000
    """Control steps after which an episode is truncated."""
    num_threads: int = 0
    """Physics threads; 0 takes every core that the process may use."""
    features: str = "auto"
    """What is observed: general (any robot), paper (NerveNet's), auto (paper for the Centipedes, general otherwise)."""
    root_body: str | None = None
    """Top body of the robot to control in a file with several actuated ones."""

    def __post_init__(self) -> None:
        check_range("env", "n_envs", self.n_envs, 0, 65_536)
        for weight in self.body_weights:
            check_range("env", "body_weights", weight, 0.0, 1e9, open_low=True)
        check_range("env", "max_episode_steps", self.max_episode_steps, 1, 10_000_000)
        check_range("env", "num_threads", self.num_threads, 0, 1024)
        check_choice("env", "features", self.features, ("auto", "paper", "general"))

    def for_bodies(self, count: int) -> EnvConfig:
        """Return this section with the number of environments settled for ``count`` bodies.

        Raises:
            UserError: ``n_envs`` or ``body_weights`` does not fit that many bodies.
        """
        if self.body_weights and len(self.body_weights) != count:
            raise UserError(
                f"env.body_weights has {len(self.body_weights)} numbers for {count} bodies: give one a body, in the "
                "order of agents"
            )
        if self.n_envs == 0:
            return replace(self, n_envs=-(-DEFAULT_N_ENVS // count) * count)
        if self.n_envs < count:
            raise UserError(f"env.n_envs = {self.n_envs} for {count} bodies: each needs one, use {count}")
        if self.n_envs % count and not self.body_weights:
            lower = self.n_envs // count * count
            raise UserError(
                f"env.n_envs = {self.n_envs} is not a multiple of the {count} bodies: use {lower} or {lower + count}, "
                "or give body_weights"
            )
        return self
