"""Numbers over seeds, checked by hand."""

from __future__ import annotations

import math

import pytest

from snowflake.probe.search import Bracket
from snowflake.probe.statistics import compare, largest_by_seed, mean, sensitivity, share


def test_wilson_by_hand() -> None:
    z, n = 1.959963984540054, 5
    for hits in (0, 3, 5):
        p = hits / n
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        found = share(hits, n)
        assert found.value == p
        assert found.low == pytest.approx((middle - half) / (1 + z * z / n), abs=1e-9)
        assert found.high == pytest.approx((middle + half) / (1 + z * z / n), abs=1e-9)


def test_bootstrap_of_the_mean() -> None:
    found = mean([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.value == 3.0
    assert 1.0 < found.low < 2.5
    assert 3.5 < found.high < 5.0
    assert (mean([2.0] * 5).low, mean([2.0] * 5).high) == (2.0, 2.0)
    assert math.isnan(mean([2.0]).low)
    assert math.isnan(mean([]).value)
    assert math.isnan(mean([1.0, math.nan]).value)
    assert mean([1.0, 2.0, 3.0]) == mean([1.0, 2.0, 3.0])


def test_largest_by_seed() -> None:
    rates = {0: {1.0: True, 2.0: True, 4.0: False}, 1: {1.0: True, 2.0: False, 4.0: True}, 2: {1.0: False, 2.0: True}}
    assert largest_by_seed(rates) == {0: 2.0, 1: 1.0, 2: None}


def test_brackets_that_do_not_overlap_decide() -> None:
    none, seeds = Bracket(1.0, 2.0), {0: 1.0, 1: 1.0}
    assert compare(Bracket(2.0, 4.0), none, seeds, seeds).verdict == "higher"
    assert compare(Bracket(4.0, None), none, seeds, seeds).verdict == "higher"
    assert compare(Bracket(1.5, 3.0), none, seeds, seeds).verdict == "unclear"
    assert compare(Bracket(1.0, 2.0), none, seeds, seeds).verdict == "unclear"
    assert compare(Bracket(0.5, 1.0), none, seeds, seeds).verdict == "lower"
    assert compare(Bracket(None, 0.5), none, seeds, seeds).verdict == "lower"
    assert compare(Bracket(1.0, 2.0), Bracket(None, 1.0), seeds, seeds).verdict == "higher"
    assert compare(Bracket(4.0, None), Bracket(4.0, None), seeds, seeds).verdict == "unclear"


def test_seeds_are_compared_in_pairs() -> None:
    ends = Bracket(1.0, 2.0)
    found = compare(ends, ends, {0: 4.0, 1: 4.0, 2: 4.0, 3: 1.0, 4: 2.0}, {0: 1.0, 1: 2.0, 2: 2.0, 3: 2.0, 4: 2.0})
    assert (found.higher, found.equal, found.lower) == (3, 1, 1)
    assert found.ratio.value == pytest.approx((4 * 2 * 2 * 0.5 * 1) ** 0.2)
    assert found.ratio.low < found.ratio.value < found.ratio.high
    assert found.p_value == pytest.approx(2 * (4 + 1) / 16)  # 3 or 4 of 4, and the other tail
    five = compare(ends, ends, dict.fromkeys(range(5), 2.0), dict.fromkeys(range(5), 1.0))
    assert five.p_value == pytest.approx(2 / 32)
    assert five.ratio.value == five.ratio.low == five.ratio.high == pytest.approx(2.0)


def test_a_seed_without_a_stable_rate_loses_and_has_no_ratio() -> None:
    found = compare(Bracket(None, 1.0), Bracket(1.0, 2.0), {0: None, 1: 1.0}, {0: 1.0, 1: 1.0})
    assert (found.higher, found.equal, found.lower) == (0, 1, 1)
    assert math.isnan(found.ratio.value)
    same = compare(Bracket(1.0, 2.0), Bracket(1.0, 2.0), {0: 1.0}, {0: 1.0})
    assert same.p_value == 1.0


def test_sensitivity_by_hand() -> None:
    # Losses 0.1, 0.3, 5 (capped at 1), NaN (counts as 1): mean 0.6, best 0.1.
    assert sensitivity({1.0: 0.1, 2.0: 0.3, 4.0: 5.0, 8.0: math.nan}, 1.0) == pytest.approx(0.5)
    assert sensitivity({1.0: 0.2, 2.0: 0.2}, 1.0) == pytest.approx(0.0)
