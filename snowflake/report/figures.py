"""The report's figures: one pair of axes each, so that a phone can show it and a reader can take it along."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from snowflake.evaluation.figures import new_figure, plain
from snowflake.report.analysis import Comparison, FinalRow, Matrix
from snowflake.report.curves import Band, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's palette, told apart by every kind of colour vision, without its yellow, too faint on white.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")

WIDTH = 4.6
"""Inches; small, so that the letters are large enough where a phone shrinks the figure."""

RETURN_UNIT = "return per episode"
SCORE_UNIT = "score\n0 = random play, 1 = best variant"
UNITS = (("kl", "KL divergence [nats]"), ("grad_norm", "gradient norm"), ("clip_fraction", "share of samples clipped"))
UNITS += (("update_ratio", "size of the update / size of the weights"), ("/norm", "norm of the weights"))
"""Unit by a part of the tag."""


class Look:
    """Colour, line and marker of each variant, the same in every figure.

    Args:
        variants: All variants of the report.
    """

    def __init__(self, variants: Sequence[str]) -> None:
        self.place = {variant: k for k, variant in enumerate(variants)}

    def color(self, variant: str) -> str:
        """Colour of a variant."""
        return COLORS[self.place[variant] % len(COLORS)]

    def line(self, variant: str) -> str:
        """Line style; it changes where the colours begin again."""
        return LINES[self.place[variant] // len(COLORS) % len(LINES)]

    def marker(self, variant: str) -> str:
        """Marker of single points."""
        return MARKERS[self.place[variant] % len(MARKERS)]


def panel_figure(panel: Panel, look: Look) -> Figure:
    """Curves over environment steps: a line per variant, its interval as a band."""
    from matplotlib.ticker import EngFormatter

    figure = new_figure(WIDTH, 2.8 + _legend_height([_seeds(band) for band in panel.bands]))
    axes = figure.subplots()
    for band in panel.bands:
        color = look.color(band.variant)
        axes.plot(band.steps, band.value, lw=1.8, color=color, ls=look.line(band.variant), label=_seeds(band))
        if band.low is not None and band.high is not None:
            axes.fill_between(band.steps, band.low, band.high, color=color, alpha=0.18, lw=0)
    axes.set_xlabel("environment steps")
    axes.set_ylabel(_unit(panel))
    if _spans_decades(panel):
        axes.set_yscale("log")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_title(textwrap.fill(panel_title(panel), 50), fontsize=10)
    plain(axes)
    _legend(figure, axes)
    return figure


def panel_title(panel: Panel) -> str:
    """What a panel shows."""
    what = {"evaluation": "Evaluation return", "training": "Training return"}.get(panel.kind, panel.kind)
    return f"{what}, {panel.place}"


def _unit(panel: Panel) -> str:
    if panel.scored:
        return SCORE_UNIT
    if panel.kind in ("evaluation", "training"):
        return RETURN_UNIT
    return next((unit for part, unit in UNITS if part in panel.kind), "value")


def _spans_decades(panel: Panel) -> bool:
    """Whether a diagnostic needs a logarithmic axis: all positive, and its largest 30 times its smallest."""
    if panel.kind in ("evaluation", "training") or not panel.bands:
        return False
    values = np.concatenate([band.value for band in panel.bands])
    return bool(values.min() > 0 and values.max() > 30 * values.min())


def scaling_figure(table: Sequence[FinalRow], look: Look) -> Figure:
    """Final return with the mean action against the number of nodes of the body."""
    figure = new_figure(WIDTH, 3.0 + _legend_height([line.variant for line in table]))
    axes = figure.subplots()
    names = list(dict.fromkeys(line.variant for line in table))
    for k, variant in enumerate(names):
        own = sorted((r for r in table if r.variant == variant and r.nodes), key=lambda r: r.nodes or 0)
        shift = 0.08 * (k - (len(names) - 1) / 2)  # so that intervals do not hide each other
        x = [(r.nodes or 0) + shift for r in own]
        y = [r.returns["mean_action"].iqm for r in own]
        axes.plot(x, [e.value for e in y], lw=1.4, marker=look.marker(variant), ms=5, label=variant,
                  color=look.color(variant), ls=look.line(variant))  # fmt: skip
        for place, e in zip(x, y, strict=True):
            if e.low is not None and e.high is not None:
                axes.plot([place, place], [e.low, e.high], lw=1.4, color=look.color(variant))
    bodies: dict[int, list[str]] = {}
    for line in table:
        if line.nodes and line.body not in bodies.setdefault(line.nodes, []):
            bodies[line.nodes].append(line.body)
    long = len(bodies) > 4
    axes.set_xticks(
        sorted(bodies),
        [f"{n}\n" * (not long) + "\n".join(bodies[n]) + f" ({n})" * long for n in sorted(bodies)],
        rotation=30 * long,
        ha="right" if long else "center",
        fontsize=8,
    )
    axes.set_xlabel("nodes of the body's graph")
    axes.set_ylabel(RETURN_UNIT)
    plain(axes)
    _legend(figure, axes)
    return figure


def improvement_figure(found: Sequence[Comparison]) -> Figure:
    """P(X > Y) of each pair with its interval; the line at one half says 'no difference'."""
    figure = new_figure(WIDTH, 1.0 + 0.36 * len(found))
    axes = figure.subplots()
    for k, one in enumerate(found):
        p = one.probability
        axes.plot(p.value, k, "o", ms=6, color=COLORS[0])
        if p.low is not None and p.high is not None:
            axes.plot([p.low, p.high], [k, k], lw=2.4, color=COLORS[0], alpha=0.6)
    axes.axvline(0.5, ls="--", lw=1.2, color="#555555")
    axes.set_yticks(range(len(found)), [f"{one.first}\n> {one.second}" for one in found], fontsize=8)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel("P(X > Y)")
    plain(axes)
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    return figure


def matrix_figure(matrix: Matrix) -> Figure:
    """Heat map of the mean return; the colour is the share of the column's best, from random play."""
    rows, columns = len(matrix.sources), len(matrix.targets)
    figure = new_figure(max(WIDTH, 2.2 + 0.8 * columns), 1.9 + 0.5 * rows)
    axes = figure.subplots()
    share = np.full((rows, columns), np.nan)
    for j, target in enumerate(matrix.targets):
        means = {i: matrix.cells[i, j].mean for i in range(rows) if (i, j) in matrix.cells}
        top = max(means.values(), default=0.0) - matrix.random.get(target, 0.0)
        for i, mean in means.items():
            share[i, j] = np.clip((mean - matrix.random[target]) / top, 0, 1) if top > 0 else 0.0
    axes.imshow(share, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (i, j), cell in matrix.cells.items():
        text = f"{cell.mean:.0f}" + ("\ntrained" if cell.trained else "\nmapped" if cell.mapped else "")
        color = "white" if share[i, j] < 0.45 else "black"
        axes.text(j, i, text, ha="center", va="center", fontsize=8, color=color)
    for i in range(rows):
        for j in range(columns):
            if (i, j) not in matrix.cells:
                axes.text(j, i, "–", ha="center", va="center", fontsize=9, color="#555555")
    axes.set_xticks(range(columns), matrix.targets, rotation=30, ha="right", fontsize=8)
    axes.set_yticks(range(rows), [textwrap.fill(source_name(*s), 26) for s in matrix.sources], fontsize=8)
    axes.set_xlabel("played on")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return figure


def source_name(variant: str, agents: tuple[str, ...]) -> str:
    """How a source is called in the transfer matrix."""
    return variant if "(joint: " in variant else f"{variant.removesuffix(' (joint)')} ({', '.join(agents)})"


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = _legend_columns(labels)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _legend_columns(labels: Sequence[str]) -> int:
    return 2 if max(map(len, labels), default=0) < 27 else 1


def _legend_height(labels: Sequence[str]) -> float:
    """Inches below the axes, so that a long legend takes nothing from them."""
    return 0.2 * math.ceil(len(set(labels)) / _legend_columns(labels))


def _seeds(band: Band) -> str:
    """Legend entry of a line."""
    return f"{band.variant} ({'1 seed, no interval' if band.seeds == 1 else f'{band.seeds} seeds'})"
