"""Figures of the probe: score against rate, the largest stable rates, activations of stable and diverged runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from snowflake.config.probe import ProbeConfig
from snowflake.evaluation.figures import new_figure, plain
from snowflake.probe.health import layer_kind
from snowflake.probe.row import ProbeRow
from snowflake.probe.rules import DIVERGED
from snowflake.probe.summary import VariantSummary
from snowflake.report.figures import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYERS = ("qkv", "proj", "fc1", "fc2")
"""Kinds of linear layers whose outputs are drawn."""


def score_figure(probe: ProbeConfig, found: dict[str, VariantSummary]) -> Figure:
    """Final score against the learning rate, a line a variant, its bootstrap interval over seeds as a band."""
    look = Look(tuple(found))
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    for name, one in found.items():
        rates = [rate for rate, score in one.scores.items() if math.isfinite(score.value)]
        scores = [one.scores[rate] for rate in rates]
        color, values = look.color(name), [s.value for s in scores]
        axes.plot(rates, values, marker=look.marker(name), ms=4, lw=1.5, label=name, color=color, ls=look.line(name))
        low, high = [s.low for s in scores], [s.high for s in scores]
        axes.fill_between(rates, low, high, color=color, alpha=0.1, lw=0)
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    if probe.objective == "bc":
        rows = [row for one in found.values() for row in one.rows]
        axes.axhline(float(np.mean([row.trivial for row in rows])), color="#666666", ls=":", lw=1.2)
        axes.text(0.01, 0.99, "dotted: the best constant", transform=axes.transAxes, fontsize=8, va="top")
        axes.set_ylabel("final error (mean square)")
    else:
        axes.set_ylabel("return per episode, end of training")
    plain(axes)
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    return figure


def largest_figure(found: dict[str, VariantSummary]) -> Figure:
    """Bracket of the largest stable rate of each variant as a bar, and each seed's own as a dot."""
    look = Look(tuple(found))
    figure = new_figure(6.4, 1.2 + 0.36 * len(found))
    axes = figure.subplots()
    tried = [row.rate for one in found.values() for row in one.rows]
    low, high = min(tried) / 1.6, max(tried) * 1.6
    for place, (name, one) in enumerate(found.items()):
        left, right = one.bracket.stable or low, one.bracket.unstable or high
        axes.barh(place, right - left, left=left, height=0.5, color=look.color(name), alpha=0.35)
        if one.bracket.stable is not None:
            axes.plot([left, left], [place - 0.32, place + 0.32], color=look.color(name), lw=2.5)
        for k, rate in enumerate(one.by_seed.values()):
            shift = 0.22 * (k / max(1, len(one.by_seed) - 1) - 0.5) * 2
            axes.plot(rate or low, place + shift, marker="o" if rate else "x", ms=3.5, color="#222222", lw=0)
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xlabel("learning rate\nline: largest stable with all seeds; bar: up to the first that is not; dots: seeds")
    plain(axes)
    return figure


def activation_figure(rows: Sequence[ProbeRow]) -> Figure:
    """RMS of the outputs of each kind of layer over the updates: medians of stable and of diverged runs, and all."""
    figure = new_figure(7.2, 5.2)
    grid = figure.subplots(2, 2, sharex=True)
    for axes, kind in zip(grid.flat, LAYERS, strict=True):
        for status, color in (("stable", "#0072b2"), (DIVERGED, "#d55e00")):
            curves = [curve for row in rows if row.status == status and len(curve := _largest(row, kind)[1])]
            steps = next((_largest(row, kind)[0] for row in rows if row.status == status), [])
            _band(axes, steps, curves, color, f"{status} ({len(curves)} runs)")
        axes.set_yscale("log")
        axes.set_title(kind, fontsize=9)
        plain(axes)
    for axes in grid[1]:
        axes.set_xlabel("update")
    for axes in grid[:, 0]:
        axes.set_ylabel("RMS of the output,\nlargest over blocks")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    return figure


def _band(axes: Axes, steps: Sequence[float], curves: list[np.ndarray], color: str, label: str) -> None:
    """Median of curves, and the range from their 10th to their 90th percentile; shorter ones count while they last."""
    if not curves:
        return
    width = max(len(curve) for curve in curves)
    padded = np.array([np.pad(curve, (0, width - len(curve)), constant_values=np.nan) for curve in curves])
    low, middle, high = np.nanquantile(padded, [0.1, 0.5, 0.9], axis=0)
    x = list(steps)[:width]
    axes.plot(x, middle[: len(x)], color=color, lw=1.6, label=label)
    axes.fill_between(x, low[: len(x)], high[: len(x)], color=color, alpha=0.15, lw=0)


def _largest(row: ProbeRow, kind: str) -> tuple[list[float], np.ndarray]:
    """Updates and, at each, the largest output of the layers of a kind."""
    found = [v for name, v in row.health.items() if layer_kind(name) == kind]
    return row.health.get("update", []), np.max(np.array(found), axis=0) if found else np.empty(0)
