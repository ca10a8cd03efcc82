"""When a run has diverged, said in rules that a machine can check; each has a code.

R1
    A loss, a gradient or a parameter is not finite.
R2 (``bc``)
    The final error exceeds half the variance of the target, or the running mean of the error exceeds twice its own
    best throughout the last tenth of the updates: a spike without recovery.
R3 (``ppo``)
    The KL divergence of the update exceeds 0.5 in 5 updates in a row.
R4 (``ppo``)
    The explained variance of the critic is below -1 in 20 updates in a row.
R5 (``ppo``)
    The mean return of the last tenth of the updates fell below R_random + 0.25 (R_best - R_random), R_best being the
    run's own best.

Of several rules that hold, the one that held first decides. A run that never learns has made ``no_progress``, which is
not stable. The size of activations or logits and the entropy of attention decide nothing: behind a normalisation they
may grow without harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

STABLE, DIVERGED, NO_PROGRESS = "stable", "diverged", "no_progress"
STATUSES = (STABLE, DIVERGED, NO_PROGRESS)

REASONS = {
    "R1": "not finite",
    "R2": "error too large at the end",
    "R3": "KL divergence too large",
    "R4": "critic worse than a constant",
    "R5": "return lost",
}
"""What each code means, in few words."""

WINDOW = 0.1
"""Share of the updates that is the end of a run."""

SMOOTHING = 0.05
"""Time constant of the running mean of the error, as a share of the updates."""

MAX_ERROR = 0.5
"""R2: largest final error of a stable run, in variances of the target."""

MAX_RISE = 2.0
"""R2: largest running mean of the error at the end, in multiples of its own best."""

LEARNED = 0.9
"""A run whose running mean of the error never fell below this many variances of the target has not learned; if its
final error exceeds twice the variance, it has diverged all the same."""

MAX_KL, KL_UPDATES = 0.5, 5
"""R3: bound on the KL divergence in nats, and how many updates in a row must exceed it."""

MIN_EXPLAINED, EXPLAINED_UPDATES = -1.0, 20
"""R4: bound on the explained variance, and how many updates in a row must lie below it."""

KEPT = 0.25
"""R5: share of the run's own gain over random play that must be left at the end."""


@dataclass(frozen=True)
class Verdict:
    """What became of a run.

    Attributes:
        status: ``stable``, ``diverged`` or ``no_progress``.
        reason: Code of the rule that decided; empty unless diverged.
        update: Update, counted from 1, at which the rule held; None unless diverged.
        detail: The numbers behind it, in words.
    """

    status: str
    reason: str = ""
    update: int | None = None
    detail: str = ""


def judge_regression(
    loss: np.ndarray, grad_norm: np.ndarray, weight_norm: np.ndarray, final_error: float, target_variance: float
) -> Verdict:
    """Judge a run of objective ``bc`` by R1 and R2.

    Args:
        loss: (updates,) mean squared error of each minibatch, of the updates that were made.
        grad_norm: (updates,) norm of the gradient before clipping.
        weight_norm: (updates,) norm of all parameters after the update.
        final_error: Mean squared error on data that the run was not trained on, at its end.
        target_variance: Mean squared error of the best constant on the same data.
    """
    count = len(loss)
    series = {"loss": loss, "gradient": grad_norm, "parameter": weight_norm}
    bad = {name: int(np.argmax(~np.isfinite(x))) for name, x in series.items() if not np.isfinite(x).all()}
    if bad:
        name = min(bad, key=lambda n: bad[n])
        return Verdict(DIVERGED, "R1", bad[name] + 1, f"{name} not finite")
    if not math.isfinite(final_error):
        return Verdict(DIVERGED, "R1", count, "final error not finite")
    smooth = running_mean(loss, SMOOTHING * count)
    best, last = float(smooth.min()), smooth[-window(count) :]
    if (last > MAX_RISE * best).all():
        detail = f"running error {smooth[-1]:.3g} at the end, {best:.3g} at its best"
        return Verdict(DIVERGED, "R2", count - len(last) + 1, detail)
    if best > LEARNED * target_variance and final_error <= MAX_RISE * target_variance:
        return Verdict(
            NO_PROGRESS, detail=f"running error {best:.3g} at its best, a constant has {target_variance:.3g}"
        )
    if final_error > MAX_ERROR * target_variance:
        return Verdict(DIVERGED, "R2", count, f"final error {final_error:.3g}, a constant has {target_variance:.3g}")
    return Verdict(STABLE)


def judge_ppo(
    kl: np.ndarray,
    explained_variance: np.ndarray,
    returns: np.ndarray,
    random_return: float,
    random_error: float,
    non_finite_at: int | None = None,
) -> Verdict:
    """Judge a run of objective ``ppo`` by R1, R3, R4 and R5.

    Args:
        kl: (updates,) KL divergence of each update over its whole batch, in nats.
        explained_variance: (updates,) of the returns by the critic; NaN where it is not defined.
        returns: (updates,) running mean return per episode; NaN before the first episode ended.
        random_return: Mean return of random play.
        random_error: Standard error of that mean.
        non_finite_at: Update, counted from 1, at which a statistic was not finite; None if none was.
    """
    found: list[tuple[int, str, str]] = []
    if non_finite_at is not None:
        found.append((non_finite_at, "R1", "a statistic of the update not finite"))
    if (k := run_end(kl > MAX_KL, KL_UPDATES)) is not None:
        found.append((k + 1, "R3", f"KL {kl[k]:.3g}"))
    with np.errstate(invalid="ignore"):
        low = explained_variance < MIN_EXPLAINED
    if (k := run_end(low, EXPLAINED_UPDATES)) is not None:
        found.append((k + 1, "R4", f"explained variance {explained_variance[k]:.3g}"))
    known = returns[np.isfinite(returns)]
    best = float(known.max()) if len(known) else -math.inf
    learned = best > random_return + 2.0 * random_error
    if learned and non_finite_at is None:
        end = returns[-window(len(returns)) :]
        mean, bound = float(np.nanmean(end)), random_return + KEPT * (best - random_return)
        if mean < bound:
            found.append((len(returns), "R5", f"return {mean:.4g} at the end, {best:.4g} at its best"))
    if found:
        update, reason, detail = min(found)
        return Verdict(DIVERGED, reason, update, detail)
    if not learned:
        return Verdict(NO_PROGRESS, detail=f"return {best:.4g} at its best, random play {random_return:.4g}")
    return Verdict(STABLE)


def window(count: int) -> int:
    """Number of updates that are the end of a run of ``count``."""
    return max(1, round(WINDOW * count))


def running_mean(values: np.ndarray, constant: float) -> np.ndarray:
    """Exponential running mean without the bias of its start, ``(n,)``; ``constant`` is its time constant in steps."""
    keep = math.exp(-1.0 / max(constant, 1e-9))
    mean, weight = 0.0, 0.0
    out = np.empty(len(values))
    for k, value in enumerate(values):
        mean, weight = keep * mean + (1.0 - keep) * value, keep * weight + (1.0 - keep)
        out[k] = mean / weight
    return out


def run_end(mask: np.ndarray, length: int) -> int | None:
    """Index at which ``mask`` has first been true ``length`` times in a row; None if it never was."""
    count = 0
    for k, hit in enumerate(mask):
        count = count + 1 if hit else 0
        if count == length:
            return k
    return None
