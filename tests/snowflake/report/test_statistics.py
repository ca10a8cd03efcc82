"""Interquartile mean, bootstrap and probability of improvement against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, trim_mean

from snowflake.report.statistics import (
    Stratum,
    iqm,
    iqm_band,
    iqm_estimate,
    iqm_weights,
    mann_whitney,
    on_common_grid,
    probability_of_improvement,
)


def one(*values: float) -> list[Stratum]:
    """Seeds on one body."""
    return [Stratum(("a",), np.array(values)[:, None])]


@pytest.mark.parametrize(
    ("count", "weights"),
    [
        (1, [1.0]),
        (2, [0.5, 0.5]),
        (3, [1 / 6, 4 / 6, 1 / 6]),
        (4, [0.0, 0.5, 0.5, 0.0]),
        (5, [0.0, 0.3, 0.4, 0.3, 0.0]),
        (6, [0.0, 1 / 6, 1 / 3, 1 / 3, 1 / 6, 0.0]),
    ],
)
def test_weights_of_the_interquartile_mean(count: int, weights: list[float]) -> None:
    np.testing.assert_allclose(iqm_weights(count), weights)


def test_interquartile_mean_is_scipys_where_four_divides_the_count() -> None:
    x = np.random.default_rng(3).normal(size=(12, 5))
    np.testing.assert_allclose(iqm(x), trim_mean(x, 0.25, axis=0))
    assert iqm([0.0, 1.0, 100.0]) == pytest.approx((0 + 4 + 100) / 6)
    assert trim_mean([0.0, 1.0, 100.0], 0.25) == pytest.approx(101 / 3)  # scipy cuts none of three
    assert iqm([-1e9, 2.0, 4.0, 1e9]) == 3.0
    with pytest.raises(ValueError, match="at least one"):
        iqm([])


def test_one_seed_has_no_interval() -> None:
    e = iqm_estimate(one(7.0))
    assert (e.value, e.low, e.high) == (7.0, None, None)
    two_sets = [*one(1.0, 2.0), Stratum(("b",), np.array([[3.0]]))]
    assert iqm_estimate(two_sets).low is None


def test_interval_of_two_seeds_is_exact() -> None:
    """Of two seeds 0 and 1 a quarter of the resamples is (0, 0), a quarter (1, 1): beyond 2.5 % on both sides."""
    e = iqm_estimate(one(0.0, 1.0))
    assert (e.value, e.low, e.high) == (0.5, 0.0, 1.0)


def test_interval_is_deterministic_and_per_point() -> None:
    rng = np.random.default_rng(0)
    curves = [Stratum(("a",), rng.normal(size=(5, 1, 4)))]
    value, low, high = iqm_band(curves)
    again = iqm_band(curves)
    assert low is not None
    assert high is not None
    np.testing.assert_array_equal(low, again[1])
    assert (low < value).all()
    assert (value < high).all()
    point = iqm_estimate([Stratum(("a",), curves[0].values[:, :, 2])])
    assert (point.value, point.low, point.high) == (value[2], low[2], high[2])


def width(strata: list[Stratum]) -> float:
    e = iqm_estimate(strata)
    assert e.low is not None
    assert e.high is not None
    return e.high - e.low


def test_resampling_stays_inside_a_body() -> None:
    """Bodies with different but certain returns leave nothing to chance; thrown together they would."""
    apart = [Stratum(("a",), np.zeros((3, 1))), Stratum(("b",), np.ones((3, 1)))]
    assert width(apart) == 0.0
    assert width(one(0, 0, 0, 1, 1, 1)) > 0.5


def test_bodies_of_one_policy_are_drawn_together() -> None:
    """Each joint policy is good on one body and bad on the other: their mean is certain, whichever are drawn."""
    returns = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert width([Stratum(("a", "b"), returns)]) == 0.0
    assert width([Stratum(("a",), returns[:, :1]), Stratum(("b",), returns[:, 1:])]) > 0.2


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(200):
        e = iqm_estimate(one(*rng.normal(5.0, 2.0, size=20)))
        assert e.low is not None
        assert e.high is not None
        covered += e.low <= 5.0 <= e.high
    assert 0.88 <= covered / 200 <= 0.99


def test_mann_whitney_counts_ties_half_and_agrees_with_scipy() -> None:
    assert mann_whitney(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == 1.0
    assert mann_whitney(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 0.0
    assert mann_whitney(np.array([2.0]), np.array([2.0, 1.0])) == 0.75
    rng = np.random.default_rng(5)
    x, y = rng.integers(0, 6, size=9).astype(float), rng.integers(0, 6, size=7).astype(float)
    assert mann_whitney(x, y) == pytest.approx(mannwhitneyu(x, y).statistic / (9 * 7))


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [((5.0, 6.0, 7.0), (1.0, 2.0, 3.0), (1.0, 1.0, 1.0)), ((1.0, 1.0), (1.0, 1.0), (0.5, 0.5, 0.5)),
     ((1.0, 2.0), (3.0, 4.0), (0.0, 0.0, 0.0))],
)  # fmt: skip
def test_probability_of_improvement_at_its_ends(x: Any, y: Any, expected: Any) -> None:
    p = probability_of_improvement(one(*x), one(*y))
    assert (p.value, p.low, p.high) == expected


def test_probability_of_improvement_averages_over_common_bodies() -> None:
    x = [Stratum(("a", "b"), np.array([[2.0, 0.0], [4.0, 0.0]]))]
    y = [Stratum(("b",), np.array([[1.0], [1.0]])), Stratum(("a", "d"), np.array([[3.0, 0.0], [1.0, 0.0]]))]
    p = probability_of_improvement(x, y)
    assert p.value == pytest.approx((0.75 + 0.0) / 2)
    assert p.low is not None
    assert p.high is not None
    assert 0.0 <= p.low < p.value < p.high <= 0.5
    assert probability_of_improvement(one(1.0), one(0.0)).low is None
    with pytest.raises(ValueError, match="no body in common"):
        probability_of_improvement(one(1.0), [Stratum(("b",), np.ones((2, 1)))])


def test_common_grid_lies_inside_what_all_curves_cover() -> None:
    first = (np.array([0, 10, 20]), np.array([0.0, 1.0, 2.0]))
    second = (np.array([4, 16, 40]), np.array([4.0, 16.0, 40.0]))
    found = on_common_grid([first, second], 5)
    assert found is not None
    grid, values = found
    np.testing.assert_allclose(grid, [4, 12, 20])
    np.testing.assert_allclose(values, [[0.4, 1.2, 2.0], [4.0, 12.0, 20.0]])
    assert on_common_grid([first, (np.array([30, 40]), np.zeros(2))], 5) is None
    single = on_common_grid([first, (np.array([20, 40]), np.zeros(2))], 5)
    assert single is not None
    assert single[0].tolist() == [20.0]
