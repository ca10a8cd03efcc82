"""What several seeds say: shares with intervals, sensitivity to the rate, and one variant against another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from snowflake.probe.search import Bracket, bracket

RESAMPLES = 2000
"""Bootstrap resamples behind each interval."""

COVERAGE = 0.95
"""Coverage of every interval."""


@dataclass(frozen=True)
class Interval:
    """A number with the ends of its interval, which are NaN where there is none."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """A variant against another, seed by seed.

    Attributes:
        verdict: ``higher`` or ``lower`` where the brackets of all seeds together do not overlap, else ``unclear``.
        ratio: Geometric mean over seeds of the ratio of the largest stable rates, with its bootstrap interval; NaN
            where a seed of either has none. A rate that is the largest that was tried enters as it is.
        higher: Seeds whose largest stable rate is higher than the other variant's.
        lower: Seeds whose rate is lower.
        equal: Seeds without a difference.
        p_value: Of the two-sided sign test over the seeds that differ; 1 if none does.
    """

    verdict: str
    ratio: Interval
    higher: int
    lower: int
    equal: int
    p_value: float


def share(hits: int, count: int) -> Interval:
    """A share with Wilson's interval (Wilson 1927)."""
    ends = stats.binomtest(hits, count).proportion_ci(COVERAGE, method="wilson")
    return Interval(hits / count, float(ends.low), float(ends.high))


def mean(values: Sequence[float]) -> Interval:
    """Mean over seeds with its bootstrap interval (percentiles), which one value, or one that is not finite, lacks."""
    x = np.asarray(values, np.float64)
    if len(x) < 2 or not np.isfinite(x).all():
        return Interval(float(x.mean()) if len(x) else math.nan, math.nan, math.nan)
    rng = np.random.default_rng(0)  # of its own, so that no interval depends on another
    means = x[rng.integers(len(x), size=(RESAMPLES, len(x)))].mean(1)
    low, high = np.quantile(means, [(1.0 - COVERAGE) / 2.0, (1.0 + COVERAGE) / 2.0])
    return Interval(float(x.mean()), float(low), float(high))


def largest_by_seed(stable: Mapping[int, Mapping[float, bool]]) -> dict[int, float | None]:
    """Largest stable rate of each seed alone, by the rule of `search.bracket`; None if its smallest is unstable."""
    return {seed: bracket(rates).stable for seed, rates in stable.items()}


def compare(
    own: Bracket, other: Bracket, own_seeds: Mapping[int, float | None], other_seeds: Mapping[int, float | None]
) -> Comparison:
    """Compare a variant with another.

    Args:
        own: Bracket of all seeds together.
        other: The other variant's.
        own_seeds: Largest stable rate by seed.
        other_seeds: The other variant's.
    """
    verdict = "unclear"
    if own.stable is not None and other.unstable is not None and own.stable >= other.unstable:
        verdict = "higher"
    if other.stable is not None and own.unstable is not None and other.stable >= own.unstable:
        verdict = "lower"
    pairs = [(own_seeds[seed] or 0.0, other_seeds[seed] or 0.0) for seed in own_seeds if seed in other_seeds]
    higher, lower = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    ratio = Interval(math.nan, math.nan, math.nan)
    if pairs and all(a > 0 and b > 0 for a, b in pairs):
        logs = mean([math.log(a / b) for a, b in pairs])
        ratio = Interval(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high))
    p_value = float(stats.binomtest(higher, higher + lower).pvalue) if higher + lower else 1.0
    return Comparison(verdict, ratio, higher, lower, len(pairs) - higher - lower, p_value)


def sensitivity(loss: Mapping[float, float], initial: float) -> float:
    """Sensitivity to the learning rate (Wortsman et al. 2023): mean over rates of how far the loss lies above its best.

    Args:
        loss: Final loss by rate, the mean over seeds; what is not finite counts as ``initial``.
        initial: Loss before training, the most that a rate can cost.
    """
    values = [min(value, initial) if math.isfinite(value) else initial for value in loss.values()]
    return float(np.mean(values) - min(values)) if values else math.nan
