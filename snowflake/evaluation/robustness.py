"""Robustness curves: the return of a policy against what was varied about a body.

A varied body is called ``NAME+KEY=VALUE``, like ``centipede-6+mass=0.8``; see `agents.variation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from agents import UserError
from agents.changes import Changes
from agents.variation import split_name
from snowflake.evaluation.figures import COLORS, NAMES, legend_below, new_figure, plain
from snowflake.evaluation.results import Result
from snowflake.evaluation.statistics import STANDARD_ERRORS, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_POINTS = 2
"""Values of a key that make a curve."""

Curves = dict[tuple[str, str], dict[float, list[str]]]
"""By base and key: the values in ascending order, each with the names of the bodies that have it."""


def variation_curves(names: Sequence[str]) -> Curves:
    """Find the curves among bodies: those of one base that differ in one key alone, by its value.

    The base itself is a point of every curve, at the value that changes nothing. Bodies that differ in nothing but the
    seed of a draw (``+broken=2+seed=0``, ``+broken=2+seed=1``) share a point.

    Args:
        names: Names of the bodies.

    Returns:
        Curves of two or more values, the base's not counted. A key whose values are no numbers has none.
    """
    curves: Curves = {}
    for name in dict.fromkeys(names):
        base, values = _split(name)
        values.pop("seed", None)
        if len(values) == 1:
            ((key, text),) = values.items()
            try:
                value = float(text)
            except ValueError:
                continue  # names of parts
            curves.setdefault((base, key), {}).setdefault(value, []).append(name)
    curves = {curve: points for curve, points in curves.items() if len(points) >= MIN_POINTS}
    for (base, key), points in curves.items():
        nominal = float(getattr(Changes(), key))
        if base in names:
            points.setdefault(nominal, []).append(base)
    return {curve: dict(sorted(points.items())) for curve, points in curves.items()}


def _split(name: str) -> tuple[str, dict[str, str]]:
    try:
        return split_name(name)
    except UserError:
        return name, {}  # a file with a name of that form


def robustness_figure(results: Sequence[Result]) -> Figure | None:
    """Return against the value of each varied key, one panel a key and base.

    One run gets a line for each way to act, several runs one for each run's mean action. Bands are twice the standard
    error of the mean over the episodes of a point, about 95 %. The body as it is is a point too, if it was measured.

    Args:
        results: Transfers of one or several runs to the same bodies.

    Returns:
        The figure; None where no two bodies differ in one key alone.
    """
    curves = variation_curves([body.morphology for result in results for body in result.bodies])
    if not curves:
        return None
    figure = new_figure(1.0 + 4.2 * len(curves), 4.4)
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, ((base, key), points) in zip(panels, curves.items(), strict=True):
        for label, color, result, way in _lines(results):
            _draw(axes, label, color, result, points, way)
        axes.set_title(base, fontsize=10)
        axes.set_xlabel(key)
        axes.set_ylabel("return per episode")
        plain(axes)
        legend_below(axes, 2)
    how = "band: mean ± 2 standard errors" + ("" if len(results) == 1 else ", mean action")
    figure.suptitle(f"robustness, {results[0].episodes} episodes a body ({how})", fontsize=10)
    return figure


def _lines(results: Sequence[Result]) -> list[tuple[str, str, Result, str]]:
    if len(results) == 1:
        return [(NAMES[way], color, results[0], way) for way, color in COLORS.items()]
    lines = [(result.run, f"C{k % 10}", result, "mean_action") for k, result in enumerate(results)]
    return [*lines, (NAMES["zero_action"], COLORS["zero_action"], results[0], "zero_action")]


def _draw(axes: Axes, label: str, color: str, result: Result, points: Mapping[float, Sequence[str]], way: str) -> None:
    found = {
        value: np.concatenate([b.episodes[way].returns for b in result.bodies if b.morphology in names])
        for value, names in points.items()
        if any(b.morphology in names for b in result.bodies)
    }
    if not found:
        return
    summaries = [summarize(returns) for returns in found.values()]
    values, means = list(found), np.array([s.mean for s in summaries])
    spread = STANDARD_ERRORS * np.nan_to_num([s.standard_error for s in summaries])
    axes.plot(values, means, "o-", ms=4, color=color, label=label)
    axes.fill_between(values, means - spread, means + spread, color=color, alpha=0.18, lw=0)
