"""Normalised scores: where a return lies between a baseline that knows nothing and an expert of the same body."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from snowflake.evaluation.statistics import paired_difference

FORMULA = (
    "normalised score = (return - baseline) / (expert - baseline), means over the shared start states; 0 is the "
    "baseline (random play, or the zero action), 1 the expert, a policy trained on this body (--reference). No score "
    "where the expert does not lie above the baseline by more than 2 standard errors of their paired difference."
)
"""The rule of :func:`normalized_score`, printed with every table that shows one."""

MIN_MARGIN = 1e-6
"""Smallest margin of the expert over the baseline that is divided by, in units of the return."""


@dataclass(frozen=True)
class Expert:
    """What policies that were trained on a body reach there.

    Attributes:
        runs: The reference runs.
        returns: (episodes,) mean return over the runs from each start state, by way to act.
    """

    runs: tuple[str, ...]
    returns: dict[str, np.ndarray]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "runs": list(self.runs),
            "returns": {way: {"mean": float(x.mean()), "episodes": x.tolist()} for way, x in self.returns.items()},
        }


def normalized_score(returns: np.ndarray, baseline: np.ndarray, expert: np.ndarray) -> float:
    """Return ``(mean(returns) - mean(baseline)) / (mean(expert) - mean(baseline))``.

    Args:
        returns: (episodes,) returns of the policy; entry i belongs to start state i in all three.
        baseline: (episodes,) returns of zero action or random play.
        expert: (episodes,) returns of the expert.

    Returns:
        The score; NaN where the expert does not clearly lie above the baseline, as `FORMULA` says.
    """
    margin = paired_difference(expert, baseline)
    if margin.word != "better" or margin.mean < MIN_MARGIN:
        return math.nan
    return float(np.mean(returns) - np.mean(baseline)) / margin.mean
