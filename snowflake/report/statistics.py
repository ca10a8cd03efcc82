"""Statistics over few seeds: interquartile mean, stratified bootstrap, probability of improvement.

Source of all three: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 2000
"""Bootstrap resamples behind each interval."""

BOOTSTRAP_SEED = 0
"""Seed of the resampling; each interval starts its own generator, so none depends on what was computed before."""

COVERAGE = 0.95
"""Share of the resamples between the ends of an interval (percentile method)."""


@dataclass(frozen=True)
class Estimate:
    """A number with its bootstrap interval.

    Attributes:
        value: The number.
        low: Lower end of the interval; None where no interval exists, because there is one seed only.
        high: Upper end; None as ``low``.
    """

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Stratum:
    """Runs that trained on the same bodies; resampling draws among these runs.

    A run that trained on several bodies is drawn with all of them, since its bodies share one policy.

    Attributes:
        bodies: Names, one per column.
        values: (runs, bodies, ...) float64; the rest are axes that are carried along, as the points of a curve.
    """

    bodies: tuple[str, ...]
    values: np.ndarray


def iqm_weights(count: int) -> np.ndarray:
    """Weights of the sorted values in the interquartile mean, ``(count,)``, summing to one.

    The i-th smallest of n values stands for the part [i, i + 1] of [0, n]; its weight is how much of that part lies in
    [n/4, 3n/4]. With n divisible by 4 this is the mean of the middle half, scipy's ``trim_mean(x, 0.25)``; otherwise
    scipy rounds the number of values that it cuts down (so three values would lose none), and this cuts by fractions:
    three values weigh 1/6, 4/6, 1/6.
    """
    if count < 1:
        raise ValueError("the interquartile mean needs at least one value")
    edges = np.arange(count + 1)
    inside = np.minimum(edges[1:], 0.75 * count) - np.maximum(edges[:-1], 0.25 * count)
    return np.maximum(inside, 0.0) / (0.5 * count)


def iqm(values: ArrayLike) -> np.ndarray:
    """Interquartile mean over the first axis: ``(values, ...) -> (...)``; weights of :func:`iqm_weights`."""
    x = np.sort(np.asarray(values, np.float64), axis=0)
    return np.tensordot(iqm_weights(len(x)), x, axes=(0, 0))


def iqm_band(strata: Sequence[Stratum]) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Interquartile mean of all values of all strata, with the stratified-bootstrap interval.

    Args:
        strata: Groups of runs; values ``(runs, bodies, ...)`` with equal trailing axes.

    Returns:
        Value, lower end and upper end, each of the trailing shape; the ends are None where a stratum has one run only.
    """
    value = iqm(_pooled([s.values for s in strata]))
    if not can_resample(strata):
        return value, None, None
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    rows = [rng.integers(len(s.values), size=(RESAMPLES, len(s.values))) for s in strata]
    weights = iqm_weights(sum(s.values.shape[0] * s.values.shape[1] for s in strata))
    tail = value.shape
    flat = [s.values.reshape(*s.values.shape[:2], -1) for s in strata]
    ends = np.empty((2, flat[0].shape[2]))
    for point in range(flat[0].shape[2]):  # one point of a curve at a time keeps the memory small
        drawn = [f[r, :, point].reshape(RESAMPLES, -1) for f, r in zip(flat, rows, strict=True)]
        means = np.sort(np.concatenate(drawn, axis=1), axis=1) @ weights
        ends[:, point] = _percentiles(means)
    return value, ends[0].reshape(tail), ends[1].reshape(tail)


def iqm_estimate(strata: Sequence[Stratum]) -> Estimate:
    """:func:`iqm_band` of values without trailing axes."""
    value, low, high = iqm_band(strata)
    return Estimate(float(value), None if low is None else float(low), None if high is None else float(high))


def can_resample(strata: Sequence[Stratum]) -> bool:
    """Whether each stratum has two runs or more; one run says nothing about the spread over seeds."""
    return all(len(s.values) > 1 for s in strata)


def mann_whitney(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Share of pairs with ``x > y``, ties counting one half: ``(..., n), (..., m) -> (...)``."""
    a, b = x[..., :, None], y[..., None, :]
    return (a > b).mean((-2, -1)) + 0.5 * (a == b).mean((-2, -1))


def probability_of_improvement(x: Sequence[Stratum], y: Sequence[Stratum]) -> Estimate:
    """P(X > Y): the chance that a random run of X beats a random run of Y on a body, averaged over bodies.

    Args:
        x: Runs of X; values ``(runs, bodies)``.
        y: Runs of Y; at least one body in common.

    Returns:
        The probability over the bodies that both have, with the bootstrap interval (the runs of X and of Y drawn
        independently, within their strata).

    Raises:
        ValueError: X and Y have no body in common.
    """
    common = [body for s in x for body in s.bodies if any(body in t.bodies for t in y)]
    if not common:
        raise ValueError("the two have no body in common")
    first, second = _columns(x, None), _columns(y, None)
    value = float(np.mean([mann_whitney(first[b], second[b]) for b in common]))
    if not (can_resample(x) and can_resample(y)):
        return Estimate(value, None, None)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    first, second = _columns(x, rng), _columns(y, rng)
    low, high = _percentiles(np.mean([mann_whitney(first[b], second[b]) for b in common], axis=0))
    return Estimate(value, low, high)


def _columns(strata: Sequence[Stratum], rng: np.random.Generator | None) -> dict[str, np.ndarray]:
    """Values by body, ``(runs,)``, or of all resamples, ``(resamples, runs)``."""
    columns = {}
    for s in strata:
        n = len(s.values)
        rows = np.arange(n) if rng is None else rng.integers(n, size=(RESAMPLES, n))
        columns |= {body: s.values[rows, k] for k, body in enumerate(s.bodies)}
    return columns


def _pooled(values: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([v.reshape(-1, *v.shape[2:]) for v in values])


def _percentiles(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


Curve = tuple[np.ndarray, np.ndarray]
"""Steps, increasing, and values; both (points,)."""


def on_common_grid(curves: Sequence[Curve], points: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Bring curves onto one grid of steps, by linear interpolation inside the range that all of them cover.

    Args:
        curves: The curves.
        points: Most points of the grid; it has no more than the longest curve has.

    Returns:
        Steps ``(points,)`` and values ``(curves, points)``, or None where no step is covered by all.
    """
    low, high = max(s[0] for s, _ in curves), min(s[-1] for s, _ in curves)
    if low > high:
        return None
    count = min(points, max(len(s) for s, _ in curves))
    grid = np.linspace(low, high, count if high > low else 1)
    return grid, np.stack([np.interp(grid, s, v) for s, v in curves])
