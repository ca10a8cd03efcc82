"""Environment section of the training config."""

from __future__ import annotations

from dataclasses import dataclass

from snowflake.config.checks import check_choice, check_range


@dataclass(frozen=True)
class EnvConfig:
    """How many environments run, for how long, and what they observe."""

    n_envs: int = 16
    """Environments stepped together, over all bodies (a multiple of the number of bodies)."""
    max_episode_steps: int = 1000
    """Control steps after which an episode is truncated."""
    num_threads: int = 0
    """Physics threads; 0 takes every core that the process may use."""
    features: str = "auto"
    """What is observed: general (any robot), paper (NerveNet's), auto (paper for the Centipedes, general otherwise)."""
    root_body: str | None = None
    """Top body of the robot to control in a file with several actuated ones."""

    def __post_init__(self) -> None:
        check_range("env", "n_envs", self.n_envs, 1, 65_536)
        check_range("env", "max_episode_steps", self.max_episode_steps, 1, 10_000_000)
        check_range("env", "num_threads", self.num_threads, 0, 1024)
        check_choice("env", "features", self.features, ("auto", "paper", "general"))
