"""Summary numbers of episodes, and differences between two policies that shared their start states."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

STANDARD_ERRORS = 2.0
"""A difference counts as one when it exceeds this many of its standard errors."""


@dataclass(frozen=True)
class Summary:
    """Mean, spread and middle of one figure over episodes, in the figure's own unit.

    Attributes:
        mean: Arithmetic mean; NaN without a value.
        sd: Sample standard deviation (divides by count - 1); NaN for fewer than two values.
        median: Median; NaN without a value.
        standard_error: ``sd / sqrt(count)``.
        count: Number of values that were not NaN.
    """

    mean: float
    sd: float
    median: float
    standard_error: float
    count: int


@dataclass(frozen=True)
class PairedDifference:
    """Mean of ``first - second`` over shared start states, with its standard error.

    Attributes:
        mean: Mean difference.
        standard_error: Standard error of that mean, from the sample deviation of the differences; NaN for one pair.
        count: Number of pairs.
    """

    mean: float
    standard_error: float
    count: int

    @property
    def word(self) -> str:
        """``better`` or ``worse`` if the mean lies beyond two standard errors from zero, else ``unclear``."""
        if math.isnan(self.standard_error):
            return "unclear"
        if self.mean > STANDARD_ERRORS * self.standard_error:
            return "better"
        if self.mean < -STANDARD_ERRORS * self.standard_error:
            return "worse"
        return "unclear"


def summarize(values: ArrayLike) -> Summary:
    """Summarise one figure over episodes.

    Args:
        values: (episodes,) numbers or bools; NaN (a figure that an episode does not have) is left out.
    """
    x = np.asarray(values, dtype=np.float64).ravel()
    x = x[~np.isnan(x)]
    count = int(x.size)
    if count == 0:
        return Summary(math.nan, math.nan, math.nan, math.nan, 0)
    sd = float(x.std(ddof=1)) if count > 1 else math.nan
    return Summary(float(x.mean()), sd, float(np.median(x)), sd / math.sqrt(count), count)


def paired_difference(first: ArrayLike, second: ArrayLike) -> PairedDifference:
    """Compare two policies over the same start states.

    Args:
        first: (episodes,) figure of the first policy; entry i belongs to start state i.
        second: (episodes,) the same figure of the second policy from the same start states.

    Raises:
        ValueError: The two do not pair up, or are empty.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or a.size == 0:
        raise ValueError(f"paired figures need two equal, non-empty (episodes,) arrays, got {a.shape} and {b.shape}")
    summary = summarize(a - b)
    return PairedDifference(summary.mean, summary.standard_error, summary.count)
