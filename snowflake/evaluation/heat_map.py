"""Heat maps of a transfer matrix: runs down, bodies across."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from snowflake.evaluation.figures import NAMES, new_figure
from snowflake.evaluation.matrix import Matrix
from snowflake.evaluation.results import POLICIES, BodyResult
from snowflake.evaluation.statistics import summarize
from snowflake.evaluation.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOR_MAP = "viridis"


def heat_map(matrix: Matrix) -> Figure:
    """Mean returns of both ways to act, and below, where experts were given, scores against random play.

    A frame marks the bodies that a run was trained on.

    Args:
        matrix: The matrix.
    """
    panels: list[tuple[str, Callable[[BodyResult], tuple[float, str]]]] = [
        (f"return, {NAMES[way]} (mean ± standard error)", lambda body, way=way: _return(body, way)) for way in POLICIES
    ]
    if matrix.has_scores:
        panels += [
            (f"normalised score, {NAMES[way]} (0 = random, 1 = expert)", lambda body, way=way: _score(body, way))
            for way in POLICIES
        ]
    width = 2.6 + 1.05 * len(matrix.columns)
    figure = new_figure(2 * width, (1.7 + 0.5 * len(matrix.rows)) * (len(panels) // 2) + 0.4)
    for axes, (title, value) in zip(figure.subplots(len(panels) // 2, 2, squeeze=False).flat, panels, strict=True):
        _panel(axes, matrix, title, value)
    episodes = matrix.rows[0].result.episodes
    figure.suptitle(f"transfer: runs (rows) on bodies (columns), {episodes} episodes a cell", fontsize=10)
    return figure


def _return(body: BodyResult, way: str) -> tuple[float, str]:
    returns = summarize(body.episodes[way].returns)
    return returns.mean, f"{number(returns.mean)}\n± {number(returns.standard_error)}"


def _score(body: BodyResult, way: str) -> tuple[float, str]:
    score = body.score(way, "random")
    return score, number(score, 2)


def _panel(axes: Axes, matrix: Matrix, title: str, value: Callable[[BodyResult], tuple[float, str]]) -> None:
    from matplotlib.patches import Rectangle

    values = np.full((len(matrix.rows), len(matrix.columns)), math.nan)
    texts = np.full(values.shape, "", dtype=object)
    for r, row in enumerate(matrix.rows):
        for c, name in enumerate(matrix.columns):
            body = row.cell(name)
            if body is None:
                texts[r, c] = "\n".join(textwrap.wrap(row.refused[name].word, 12))
                axes.add_patch(Rectangle((c - 0.5, r - 0.5), 1, 1, facecolor="#eeeeee", edgecolor="white", hatch="//"))
                continue
            values[r, c], texts[r, c] = value(body)
            if not body.zero_shot:
                axes.add_patch(Rectangle((c - 0.47, r - 0.47), 0.94, 0.94, fill=False, edgecolor="#d62728", lw=1.6))
    image = axes.imshow(np.ma.masked_invalid(values), cmap=COLOR_MAP, aspect="auto", zorder=-1)
    norm: Any = image.norm
    for (r, c), text in np.ndenumerate(texts):
        level = float(norm(values[r, c])) if math.isfinite(values[r, c]) else 1.0
        axes.text(c, r, text, ha="center", va="center", fontsize=7, color="white" if level < 0.6 else "black")
    axes.set_xticks(range(len(matrix.columns)), matrix.columns, rotation=30, ha="right", fontsize=8)
    names = [f"{label}\n({row.method})" for label, row in zip(matrix.labels(), matrix.rows, strict=True)]
    axes.set_yticks(range(len(matrix.rows)), names, fontsize=8)
    axes.set_title(title, fontsize=9)
    axes.spines[:].set_visible(False)
