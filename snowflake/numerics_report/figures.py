"""The two figures: scales by layer over training, and the shares of the formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from snowflake.evaluation.curves import Curve
from snowflake.evaluation.figures import new_figure, plain
from snowflake.numerics_report.read import FORMATS, OPERANDS, Place, RunNumerics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {"e4m3": "#0072b2", "e5m2": "#56b4e9", "bf16": "#e69f00", "fp32": "#bbbbbb"}
"""Okabe and Ito's palette: 8 bits blue, more bits warm or grey."""


def scales_figure(runs: Sequence[RunNumerics]) -> Figure | None:
    """Draw log2 of the scale of weights, activations and gradients, layer by layer and over all layers.

    For each run and network a row of heat maps (layer by reading; the colour is the mean over the scales of a tensor),
    and below it a row of curves: smallest, median and largest over layers. None where no run has statistics by layer.
    """
    parts = [(run, network) for run in runs for network in run.networks if run.layers(network)]
    if not parts:
        return None
    heights = [h for run, network in parts for h in (0.5 + 0.17 * len(run.layers(network)), 1.7)]
    figure = new_figure(12.0, sum(heights) + 0.9 * len(heights))
    axes = figure.subplots(len(heights), len(OPERANDS), height_ratios=heights, squeeze=False)
    for k, (run, network) in enumerate(parts):
        low, high = _range(run, network)
        for column, operand in enumerate(OPERANDS):
            top, bottom = axes[2 * k, column], axes[2 * k + 1, column]
            mesh = _heat_map(top, run, network, operand, (low, high))
            top.set_title(f"{run.name}, {network}: {OPERANDS[operand]}", fontsize=9)
            if column:
                top.set_yticklabels([])
            if mesh is not None and column == len(OPERANDS) - 1:
                figure.colorbar(mesh, ax=axes[2 * k, :], label="log2 scale", fraction=0.025, pad=0.01)
            _over_layers(bottom, run.summaries.get(network, {}), operand)
            bottom.set_ylim(low - 0.5, high + 0.5)
        axes[2 * k + 1, 0].set_ylabel("log2 scale")
    return figure


def _range(run: RunNumerics, network: str) -> tuple[float, float]:
    """Ends of the colours of a network, at least 1 apart."""
    values = [c["log2_scale"].values for p, c in run.operands.items() if p.network == network and "log2_scale" in c]
    every = np.concatenate(values) if values else np.zeros(1)
    return float(every.min()), max(float(every.max()), float(every.min()) + 1.0)


def _heat_map(axes: Axes, run: RunNumerics, network: str, operand: str, ends: tuple[float, float]) -> Any:
    from matplotlib.ticker import EngFormatter

    layers = run.layers(network)
    curves = [run.operands.get(Place(network, layer, operand), {}).get("log2_scale") for layer in layers]
    axes.set_yticks(np.arange(len(layers)) + 0.5, layers, fontsize=7)
    axes.set_ylim(len(layers), 0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    steps = np.unique(np.concatenate([c.steps for c in curves if c is not None] or [np.zeros(0, np.int64)]))
    if not len(steps):
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", fontsize=8, color="#555555")
        return None
    grid = np.full((len(layers), len(steps)), np.nan)
    for row, curve in zip(grid, curves, strict=True):
        if curve is not None:
            row[np.searchsorted(steps, curve.steps)] = curve.values
    edges = np.concatenate([[0], steps])  # a reading is about the steps since the one before
    return axes.pcolormesh(
        edges, np.arange(len(layers) + 1), np.ma.masked_invalid(grid), cmap="viridis", vmin=ends[0], vmax=ends[1]
    )


def _over_layers(axes: Axes, summaries: dict[str, Curve], operand: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    found = {end: summaries.get(f"log2_scale/{operand}/{end}") for end in ("min", "median", "max")}
    low, middle, high = found["min"], found["median"], found["max"]
    if low is not None and middle is not None and high is not None:
        axes.fill_between(low.steps, low.values, high.values, color="#0072b2", alpha=0.18, lw=0, label="all layers")
        axes.plot(middle.steps, middle.values, ".-", ms=3, color="#0072b2", lw=1.4, label="median layer")
        axes.legend(frameon=False, fontsize=7)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("environment steps", fontsize=8)
    plain(axes)


def shares_figure(runs: Sequence[RunNumerics]) -> Figure | None:
    """Draw the share of each format over training: of the quantised numbers, and of all operations of linear layers."""
    parts = [(run, network) for run in runs for network in run.networks if run.summaries.get(network)]
    if not parts:
        return None
    figure = new_figure(9.0, 2.6 * len(parts) + 0.4)
    axes = figure.subplots(len(parts), 2, squeeze=False)
    for row, (run, network) in zip(axes, parts, strict=True):
        for place, kind, what in ((row[0], "operands", "quantised numbers"), (row[1], "flops", "operations")):
            _stack(place, run.summaries[network], kind)
            place.set_title(f"{run.name}, {network}: {what}", fontsize=9)
        row[0].set_ylabel("share")
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(FORMATS), frameon=False, fontsize=8)
    return figure


def _stack(axes: Axes, summaries: dict[str, Curve], kind: str) -> None:
    from matplotlib.ticker import EngFormatter

    curves = [summaries.get(f"share/{kind}/{name}") for name in FORMATS]
    steps = next((c.steps for c in curves if c is not None), np.zeros(0, np.int64))
    # A share is one number of an update, drawn over the steps of it.
    values = [np.zeros(len(steps)) if c is None else np.interp(steps, c.steps, c.values) for c in curves]
    edges = np.concatenate([[0], steps])
    columns = [np.concatenate([v[:1], v]) for v in values]
    axes.stackplot(edges, columns, step="pre", colors=[COLORS[n] for n in FORMATS], labels=FORMATS, lw=0)
    axes.set_ylim(0, 1)
    axes.set_xlim(0, int(edges[-1]) or 1)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("environment steps", fontsize=8)
    plain(axes)
