"""Environment section of the training config."""

from __future__ import annotations

from dataclasses import dataclass

from snowflake.config.checks import check_range


@dataclass(frozen=True)
class EnvConfig:
    """How many environments run, and for how long."""

    n_envs: int = 16
    """Environments stepped together, over all bodies (a multiple of the number of bodies)."""
    max_episode_steps: int = 1000
    """Control steps after which an episode is truncated."""
    num_threads: int = 0
    """Physics threads; 0 takes every core that the process may use."""

    def __post_init__(self) -> None:
        check_range("env", "n_envs", self.n_envs, 1, 65_536)
        check_range("env", "max_episode_steps", self.max_episode_steps, 1, 10_000_000)
        check_range("env", "num_threads", self.num_threads, 0, 1024)
