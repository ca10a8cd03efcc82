"""Figures of an evaluation: learning curve with the episodes of the checkpoint, and bars of a transfer."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from snowflake.evaluation.curves import EVALUATION_RETURN, TRAINING_RETURN, Curve
from snowflake.evaluation.results import LABELS, Result
from snowflake.evaluation.statistics import summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {"mean_action": "#0b5fa5", "stochastic": "#57a7dd", "zero_action": "#8c8c8c", "random": "#d9a441"}
"""One colour per way to act, told apart in grey too."""

NAMES = {**LABELS, "mean_action": "policy, mean action", "stochastic": "policy, stochastic"}
"""Legend texts."""


def render(figure: Figure) -> bytes:
    """The figure as PNG."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=150)
    return out.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    # Figure without pyplot: no display, no global state, the Agg canvas.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(axes: Axes) -> None:
    """The look of every figure: no box, a light grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)


def evaluation_figure(result: Result, curves: dict[str, Curve]) -> Figure:
    """Learning curve on the left (where the run has event files), episodes of the checkpoint on the right.

    Args:
        result: The evaluation.
        curves: Scalars by TensorBoard tag, from :func:`snowflake.evaluation.curves.read_curves`.
    """
    dots = max(3.6, 1.2 + 2.0 * len(result.bodies))
    if not curves:
        figure = new_figure(max(5.5, dots + 1.0), 4.2)
        right = figure.subplots()
    else:
        figure = new_figure(6.0 + dots, 4.2)
        left, right = figure.subplots(1, 2, width_ratios=(6.0, dots))
        _learning_curve(left, result, curves)
    _episodes(right, result)
    figure.suptitle(_title(result), fontsize=10)
    return figure


def _title(result: Result) -> str:
    return f"{result.run}, checkpoint {result.checkpoint} ({result.trained_steps:,} steps)"


def _learning_curve(axes: Axes, result: Result, curves: dict[str, Curve]) -> None:
    from matplotlib.ticker import EngFormatter

    if TRAINING_RETURN in curves:
        curve = curves[TRAINING_RETURN]
        axes.plot(curve.steps, curve.values, color=COLORS["stochastic"], label="training episodes (stochastic)")
    if EVALUATION_RETURN in curves:
        curve = curves[EVALUATION_RETURN]
        axes.plot(curve.steps, curve.values, "o-", ms=4, color=COLORS["mean_action"], label="evaluation (mean action)")
    zero = float(np.mean([summarize(body.episodes["zero_action"].returns).mean for body in result.bodies]))
    axes.axhline(zero, ls="--", color="#555555", lw=1.2, label=f"zero action (mean {zero:.0f})")
    axes.axvline(result.trained_steps, ls=":", color="#555555", lw=1.2, label="evaluated checkpoint")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return per episode")
    axes.set_title("learning curve", fontsize=10)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    plain(axes)
    legend_below(axes, 2)


def legend_below(axes: Axes, columns: int) -> None:
    """Put the legend under the axes."""
    # Outside the axes the legend can cover no data, whatever the curve looks like.
    axes.legend(
        frameon=False, fontsize=8, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.16), borderaxespad=0.0
    )


def _episodes(axes: Axes, result: Result) -> None:
    """Every episode as a dot, with mean and standard error beside."""
    ways = list(LABELS)
    for b, body in enumerate(result.bodies):
        for w, way in enumerate(ways):
            returns = body.episodes[way].returns
            x = b + (w - 1.5) * 0.21
            spread = np.linspace(-0.05, 0.05, len(returns)) if len(returns) > 1 else np.zeros(1)
            axes.plot(x + spread - 0.02, returns, ".", ms=4, alpha=0.45, color=COLORS[way])
            summary = summarize(returns)
            axes.errorbar(
                x + 0.06,
                summary.mean,
                yerr=np.nan_to_num(summary.standard_error),
                fmt="D",
                ms=5,
                capsize=3,
                color=COLORS[way],
                label=NAMES[way] if b == 0 else None,
            )
    _bodies_axis(axes, result)
    axes.set_title(f"{result.episodes} episodes, mean ± standard error", fontsize=10)
    plain(axes)
    legend_below(axes, 2)


def _bodies_axis(axes: Axes, result: Result) -> None:
    names = [body.morphology + (f"\n({body.acquaintance})" if body.acquaintance else "") for body in result.bodies]
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.55, len(names) - 0.45)
    axes.set_ylabel("return per episode")
    axes.axhline(0.0, color="#222222", lw=0.8)


def transfer_figure(result: Result) -> Figure:
    """Bars of the mean return with standard errors above bars of the mean forward distance, grouped by body."""
    figure = new_figure(max(6.0, 2.0 + 1.6 * len(result.bodies)), 6.4)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for axes, attribute in ((top, "returns"), (bottom, "distance")):
        for w, way in enumerate(LABELS):
            summaries = [summarize(getattr(body.episodes[way], attribute)) for body in result.bodies]
            axes.bar(
                np.arange(len(result.bodies)) + (w - 1.5) * 0.2,
                [s.mean for s in summaries],
                0.18,
                yerr=[np.nan_to_num(s.standard_error) for s in summaries],
                capsize=2.5,
                error_kw={"lw": 1.0},
                color=COLORS[way],
                label=NAMES[way],
            )
        _bodies_axis(axes, result)
        plain(axes)
    bottom.set_ylabel("forward distance [m]")
    figure.suptitle(f"{_title(result)}\nmean ± standard error of {result.episodes} episodes", fontsize=10)
    figure.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure
