"""Each rule on curves made for it, beside a curve that it must leave alone."""

from __future__ import annotations

import numpy as np
import pytest

from snowflake.probe import rules
from snowflake.probe.rules import Verdict, judge_ppo, judge_regression, run_end, running_mean

VARIANCE = 1.0
FALLING = 0.05 + 0.95 * np.exp(-np.arange(200) / 20.0)
FLAT = np.ones(200)


def regression(loss: np.ndarray = FALLING, final: float | None = None, **series: np.ndarray) -> Verdict:
    final = float(loss[-1]) if final is None else final
    return judge_regression(loss, series.get("grad", FLAT), series.get("weight", FLAT), final, VARIANCE)


def ppo(returns: np.ndarray | None = None, *, kl=0.01, explained=0.5, at: int | None = None) -> Verdict:
    returns = np.linspace(10.0, 100.0, 200) if returns is None else returns
    full = {"kl": kl, "explained": explained}
    kl, explained = (np.broadcast_to(v, (200,)).astype(float) for v in full.values())
    return judge_ppo(kl, explained, returns, random_return=10.0, random_error=1.0, non_finite_at=at)


def spoilt(place: int, value: float, base: np.ndarray = FALLING) -> np.ndarray:
    out = base.copy()
    out[place] = value
    return out


def test_a_run_that_learns_is_stable() -> None:
    assert regression() == Verdict("stable")
    assert ppo() == Verdict("stable")


def test_r1_the_first_value_that_is_not_finite_decides() -> None:
    cut = spoilt(79, np.nan)[:80]
    found = judge_regression(cut, FLAT[:80], FLAT[:80], float("nan"), VARIANCE)
    assert (found.status, found.reason, found.update) == ("diverged", "R1", 80)
    assert regression(grad=spoilt(30, np.inf, FLAT)).update == 31
    found = regression(grad=spoilt(30, np.inf, FLAT), weight=spoilt(29, np.nan, FLAT))
    assert (found.reason, found.update, found.detail) == ("R1", 30, "parameter not finite")
    assert regression(final=float("inf")).reason == "R1"
    assert (ppo(at=7).reason, ppo(at=7).update) == ("R1", 7)


def test_r2_the_final_error() -> None:
    found = regression(final=0.51)
    assert (found.status, found.reason, found.update) == ("diverged", "R2", 200)
    assert regression(final=0.49).status == "stable"
    # In units of the variance of the target, not in absolute ones.
    assert judge_regression(4 * FALLING, FLAT, FLAT, 1.9, 4.0).status == "stable"


def test_r2_a_spike_counts_only_without_recovery() -> None:
    late = FALLING.copy()
    late[150:] = 0.4  # below half the variance, but eight times the best
    found = regression(late)
    assert (found.reason, found.update) == ("R2", 181)
    early = FALLING.copy()
    early[100:130] = 5.0
    assert regression(early).status == "stable"
    assert regression(spoilt(199, 0.9), final=0.05).status == "stable"


def test_r2_an_explosion_of_what_never_learned() -> None:
    found = regression(np.linspace(1.0, 50.0, 200))
    assert (found.status, found.reason) == ("diverged", "R2")


def test_a_constant_has_made_no_progress() -> None:
    rng = np.random.default_rng(0)
    assert regression(1.0 + 0.1 * rng.standard_normal(200), final=1.0).status == "no_progress"
    assert ppo(np.full(200, 11.9)).status == "no_progress"
    assert ppo(np.full(200, np.nan)).status == "no_progress"
    assert ppo(np.full(200, 12.1)).status == "stable"  # two standard errors above random play


def test_r3_needs_five_updates_in_a_row() -> None:
    kl = np.full(200, 0.01)
    kl[50:54] = 0.6
    assert ppo(kl=kl).status == "stable"
    kl[54] = 0.6
    assert (ppo(kl=kl).reason, ppo(kl=kl).update) == ("R3", 55)


def test_r4_needs_twenty_updates_in_a_row() -> None:
    explained = np.full(200, 0.5)
    explained[10:29] = -1.1
    assert ppo(explained=explained).status == "stable"
    explained[29] = -1.1
    assert (ppo(explained=explained).reason, ppo(explained=explained).update) == ("R4", 30)
    assert ppo(explained=np.full(200, np.nan)).status == "stable"


def test_r5_what_is_left_of_the_gain_over_random_play() -> None:
    returns = np.concatenate([np.linspace(10.0, 110.0, 100), np.full(100, 34.0)])  # 24 of 100 left
    assert (ppo(returns).reason, ppo(returns).update) == ("R5", 200)
    returns[100:] = 36.0
    assert ppo(returns).status == "stable"


def test_of_several_rules_the_first_in_time_decides() -> None:
    returns = np.concatenate([np.linspace(10.0, 110.0, 100), np.full(100, 10.0)])
    kl = np.where(np.arange(200) >= 100, 1.0, 0.0)
    explained = np.where(np.arange(200) >= 60, -2.0, 0.5)
    assert (ppo(returns, kl=kl, explained=explained).reason, ppo(returns, kl=kl).reason) == ("R4", "R3")


def test_activations_are_no_argument_of_a_rule() -> None:
    names = set(judge_regression.__code__.co_varnames[: judge_regression.__code__.co_argcount])
    assert names == {"loss", "grad_norm", "weight_norm", "final_error", "target_variance"}
    assert regression(weight=FLAT * 1e12, grad=FLAT * 1e12).status == "stable"


def test_every_code_is_explained() -> None:
    assert rules.__doc__ is not None
    assert all(code in rules.__doc__ for code in rules.REASONS)


def test_running_mean_by_hand() -> None:
    keep = np.exp(-0.5)
    expected = [3.0, (keep * 3.0 + 5.0) / (keep + 1.0), (keep**2 * 3.0 + keep * 5.0 + 1.0) / (keep**2 + keep + 1.0)]
    assert running_mean(np.array([3.0, 5.0, 1.0]), 2.0) == pytest.approx(expected)


def test_run_end() -> None:
    assert run_end(np.array([1, 1, 0, 1, 1, 1], bool), 3) == 5
    assert run_end(np.array([1, 1, 0, 1, 1], bool), 3) is None
