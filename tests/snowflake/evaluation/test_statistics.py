"""Summaries and paired differences against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from snowflake.evaluation.statistics import paired_difference, summarize


def test_summary_by_hand() -> None:
    # Deviations from the mean 5: -3, -1, -1, -1, 0, 0, 2, 4; squares add up to 32; 32 / 7 = 4.5714.
    summary = summarize([2, 4, 4, 4, 5, 5, 7, 9])
    assert summary.mean == 5.0
    assert summary.median == 4.5
    assert summary.sd == pytest.approx(2.13808993)
    assert summary.standard_error == pytest.approx(2.13808993 / 2.82842712)
    assert summary.count == 8


def test_missing_values_are_left_out() -> None:
    assert summarize([1.0, math.nan, 3.0]) == summarize([1.0, 3.0])
    empty = summarize([math.nan])
    assert empty.count == 0
    assert math.isnan(empty.mean)
    one = summarize([7.0])
    assert (one.mean, one.median, one.count) == (7.0, 7.0, 1)
    assert math.isnan(one.sd)
    assert math.isnan(one.standard_error)


def test_paired_difference_by_hand_and_numpy() -> None:
    # Differences 1, 2, 3: mean 2, sample deviation 1, standard error 1 / sqrt(3).
    by_hand = paired_difference([11.0, 102.0, 1003.0], [10.0, 100.0, 1000.0])
    assert by_hand.mean == 2.0
    assert by_hand.standard_error == pytest.approx(1 / math.sqrt(3))
    assert by_hand.word == "better"  # 2 > 2 x 0.577
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 20))
    paired = paired_difference(a, b)
    assert paired.mean == pytest.approx(np.mean(a - b))
    assert paired.standard_error == pytest.approx(np.std(a - b, ddof=1) / np.sqrt(20))
    assert paired.count == 20


def test_pairing_is_sharper_than_two_separate_means() -> None:
    """Start states that differ a lot hide a small gain from an unpaired comparison, not from a paired one."""
    base = np.linspace(-1000.0, 1000.0, 20)
    gain = 5.0 + np.tile([-1.0, 1.0], 10)
    paired = paired_difference(base + gain, base)
    unpaired = math.hypot(summarize(base + gain).standard_error, summarize(base).standard_error)
    assert paired.word == "better"
    assert paired.mean < 2 * unpaired


@pytest.mark.parametrize(
    ("differences", "word"),
    [([1, 2, 3], "better"), ([-1, -2, -3], "worse"), ([1, -1, 0.5], "unclear"), ([5], "unclear"), ([5, 5], "better")],
)
def test_word_of_a_difference(differences: list[float], word: str) -> None:
    assert paired_difference(differences, np.zeros(len(differences))).word == word


def test_unequal_or_empty_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="equal, non-empty"):
        paired_difference([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="equal, non-empty"):
        paired_difference([], [])
