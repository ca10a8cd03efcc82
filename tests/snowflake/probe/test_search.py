"""Grid, bracket and bisection on known step functions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snowflake.probe.search import Bracket, bracket, grid, next_rate


def test_grid_by_hand() -> None:
    assert grid(0.001, 0.1, 10.0) == (0.001, 0.01, 0.1)
    assert grid(0.005, 1.28, 4.0) == (0.005, 0.02, 0.08, 0.32, 1.28)
    assert grid(0.001, 0.0099, 10.0) == (0.001,)
    assert len(grid(3e-4, 0.1, 1.5)) == 15


@pytest.mark.parametrize(
    ("stable", "expected"),
    [
        ({1: True, 2: True, 4: False}, Bracket(2, 4)),
        ({4: False, 1: True, 2: True}, Bracket(2, 4)),  # in any order
        ({1: True, 2: False, 4: True}, Bracket(1, 2)),  # stable again above an unstable rate: counts for nothing
        ({1: False, 2: True}, Bracket(None, 1)),
        ({1: True, 2: True}, Bracket(2, None)),
        ({}, Bracket(None, None)),
    ],
)
def test_bracket(stable: dict[float, bool], expected: Bracket) -> None:
    assert bracket(stable) == expected


@given(st.floats(0.0011, 0.9), st.floats(1.2, 10.0), st.integers(0, 6))
def test_bisection_closes_in_on_a_step(limit: float, ratio: float, refine: int) -> None:
    rates = grid(0.001, 1.0, ratio)
    tried = {rate: rate <= limit for rate in rates}
    while (rate := next_rate(tried, rates, refine)) is not None:
        assert rate not in tried
        tried[rate] = rate <= limit
    ends = bracket(tried)
    assert ends.stable is not None
    assert ends.stable <= limit
    if ends.unstable is None:
        assert limit >= rates[-1]
        assert len(tried) == len(rates)
    else:
        assert ends.unstable > limit
        assert ends.unstable / ends.stable == pytest.approx(ratio ** (0.5**refine), rel=2e-3)
        assert len(tried) == len(rates) + refine


def test_bisection_stays_below_the_first_unstable_rate() -> None:
    # Stable below 3 and again from 20 to 50: the search must not climb over the gap.
    def f(rate: float) -> bool:
        return rate < 3 or 20 < rate < 50

    rates = (1.0, 4.0, 32.0, 100.0)
    tried = {rate: f(rate) for rate in rates}
    assert next_rate(tried, rates, 3) == 2.0
    for _ in range(3):
        rate = next_rate(tried, rates, 3)
        assert rate is not None
        tried[rate] = f(rate)
    assert next_rate(tried, rates, 3) is None
    ends = bracket(tried)
    assert ends.stable is not None
    assert ends.unstable is not None
    assert ends.stable < 3 < ends.unstable
    assert math.log(ends.unstable / ends.stable) == pytest.approx(math.log(4.0) / 8, rel=1e-2)


def test_an_open_bracket_is_not_refined() -> None:
    assert next_rate({1.0: True, 2.0: True}, (1.0, 2.0), 4) is None
    assert next_rate({1.0: False, 2.0: True}, (1.0, 2.0), 4) is None
