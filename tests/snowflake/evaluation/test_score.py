"""Normalised scores: by hand, and none where the expert is no better than the baseline."""

from __future__ import annotations

import math

import numpy as np
import pytest

from snowflake.evaluation.score import normalized_score

BASELINE = np.array([0.0, 10.0, 20.0, 10.0])
EXPERT = BASELINE + np.array([100.0, 110.0, 90.0, 100.0])


def test_score_by_hand() -> None:
    assert normalized_score(np.full(4, 35.0), BASELINE, EXPERT) == pytest.approx(0.25)
    assert normalized_score(BASELINE, BASELINE, EXPERT) == 0.0
    assert normalized_score(EXPERT, BASELINE, EXPERT) == 1.0
    assert normalized_score(np.full(4, -90.0), BASELINE, EXPERT) == pytest.approx(-1.0)


@pytest.mark.parametrize(
    "expert",
    [BASELINE, BASELINE - 5.0, BASELINE + np.array([50.0, -50.0, 30.0, -20.0]), BASELINE + 1e-9],
    ids=["equal", "below", "within the noise", "by nothing"],
)
def test_no_score_without_a_margin(expert: np.ndarray) -> None:
    assert math.isnan(normalized_score(np.full(4, 35.0), BASELINE, expert))


def test_no_score_from_one_episode() -> None:
    """One pair has no standard error, so nobody knows whether the expert is one."""
    assert math.isnan(normalized_score(np.ones(1), np.zeros(1), np.full(1, 10.0)))
