"""Evaluation and checkpoint section of the training config; frequencies count environment steps."""

from __future__ import annotations

from dataclasses import dataclass

from agents.errors import UserError
from snowflake.config.checks import check_range


@dataclass(frozen=True)
class EvaluationConfig:
    """When the policy is measured and saved during training."""

    eval_freq: int = 50_000
    """Environment steps between evaluations; 0 switches them off."""
    eval_episodes: int = 10
    """Episodes per body and evaluation, with the mean action."""
    checkpoint_freq: int = 100_000
    """Environment steps between checkpoints; a new best policy and the end are saved besides."""
    keep_checkpoints: int = 10
    """Newest checkpoints that are kept, besides the best; 0 keeps every one."""

    def __post_init__(self) -> None:
        check_range("evaluation", "eval_freq", self.eval_freq, 0, 10**12)
        check_range("evaluation", "eval_episodes", self.eval_episodes, 1, 100_000)
        check_range("evaluation", "checkpoint_freq", self.checkpoint_freq, 1, 10**12)
        check_range("evaluation", "keep_checkpoints", self.keep_checkpoints, 0, 10**6)
        if self.keep_checkpoints == 1:
            raise UserError(
                "evaluation.keep_checkpoints = 1: keep 2 or more, so that a damaged one has one before it, or 0 for all"
            )
