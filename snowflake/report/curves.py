"""Curves over training: per body, over all bodies, and per update, with intervals over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from snowflake.report.analysis import groups, scores, trained_bodies
from snowflake.report.rows import Row
from snowflake.report.statistics import Curve, Stratum, iqm_band, on_common_grid

GRID_POINTS = 120
"""Most points of a curve in a figure."""

EVALUATION, TRAINING = "evaluation", "training"
"""The two kinds of return curve."""

RETURN_TAGS = {
    EVALUATION: ("eval/{body}/mean_reward", "eval/mean_reward"),
    TRAINING: ("rollout/{body}/ep_rew_mean", "rollout/ep_rew_mean"),
}
"""Tag of a body, and tag of the whole run, which is the body's where the run has one."""

ALL_BODIES = "all bodies"

DIAGNOSTICS = ("snowflake/kl", "train/kl", "train/approx_kl", "train/clip_fraction", "snowflake/grad_norm")
DIAGNOSTICS += ("diagnostics/",)
"""Beginnings of the tags that are drawn per update."""


@dataclass(frozen=True)
class Band:
    """One line of a panel.

    Attributes:
        variant: Whose it is.
        seeds: Number of seeds, the fewest over the bodies.
        steps: (points,) environment steps.
        value: (points,) interquartile mean over seeds (and bodies).
        low: (points,) lower end of the interval; None for one seed.
        high: (points,) upper end.
    """

    variant: str
    seeds: int
    steps: np.ndarray
    value: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        kind: ``evaluation``, ``training``, or a TensorBoard tag.
        place: Body, bodies of the training, or ``all bodies``.
        scored: Values are scores, not returns.
        bands: The lines.
        notes: What could not be drawn.
    """

    kind: str
    place: str
    scored: bool
    bands: tuple[Band, ...]
    notes: tuple[str, ...]


def return_panels(rows: Sequence[Row], kind: str) -> list[Panel]:
    """Return curves of each body, then of all bodies together as scores where there are several."""
    bodies = trained_bodies(rows)
    panels = [_panel(rows, kind, body, [body], lambda v, _: v) for body in bodies]
    if len(bodies) > 1:
        rule = scores(rows)
        usable = [body for body in bodies if body in rule]
        left = [body for body in bodies if body not in rule]
        notes = (f"no score on {', '.join(left)}: not evaluated, or no variant beats random play",) if left else ()
        if len(usable) > 1:

            def score(values: np.ndarray, body: str) -> np.ndarray:
                return (values - rule[body][0]) / (rule[body][1] - rule[body][0])

            panels.append(_panel(rows, kind, ALL_BODIES, usable, score, notes))
        else:
            panels.append(Panel(kind, ALL_BODIES, True, (), notes))
    return [panel for panel in panels if panel.bands or panel.notes]


def _panel(
    rows: Sequence[Row],
    kind: str,
    place: str,
    bodies: list[str],
    scale: Callable[[np.ndarray, str], np.ndarray],
    notes: tuple[str, ...] = (),
) -> Panel:
    bands, told = [], list(notes)
    for variant, sets in groups(rows).items():
        own = {agents: [b for b in agents if b in bodies] for agents in sets}
        if place == ALL_BODIES and {b for found in own.values() for b in found} != set(bodies):
            told.append(f"{variant} was not trained on all of these bodies")
            continue
        parts = [(found, [[_of_body(r, kind, b) for b in found] for r in sets[a]]) for a, found in own.items() if found]
        curves = [[c for row in table for c in row] for _, table in parts]
        if not parts or all(c is None for part in curves for c in part):
            continue
        band = _band(variant, parts, scale)
        if isinstance(band, str):
            told.append(band)
        else:
            bands.append(band)
    return Panel(kind, place, place == ALL_BODIES, tuple(bands), tuple(told))


def _band(
    variant: str,
    parts: Sequence[tuple[list[str], list[list[Curve | None]]]],
    scale: Callable[[np.ndarray, str], np.ndarray],
) -> Band | str:
    """The line of a variant, or why there is none.

    Args:
        variant: The variant.
        parts: Per training set its bodies, and per seed the curve of each body.
        scale: Turns values of a body into what is drawn.
    """
    flat = [curve for _, table in parts for row in table for curve in row]
    present = [curve for curve in flat if curve is not None]
    if len(present) < len(flat):
        return f"{variant}: {len(flat) - len(present)} of {len(flat)} curves are missing"
    gridded = on_common_grid(present, GRID_POINTS)
    if gridded is None:
        return f"{variant}: no step is covered by all of its curves"
    grid, values = gridded
    if len(grid) == 1:
        return f"{variant}: one step only ({grid[0]:,.0f}) is covered by all of its curves, so no curve is drawn"
    strata, position = [], 0
    for bodies, table in parts:
        count = len(table) * len(bodies)
        block = values[position : position + count].reshape(len(table), len(bodies), -1)
        position += count
        strata.append(Stratum(tuple(bodies), np.stack([scale(block[:, k], b) for k, b in enumerate(bodies)], 1)))
    value, low, high = iqm_band(strata)
    return Band(variant, min(len(table) for _, table in parts), grid, value, low, high)


def _of_body(row: Row, kind: str, body: str) -> Curve | None:
    own, whole = RETURN_TAGS[kind]
    curve = row.curves.get(own.format(body=body))
    return row.curves.get(whole) if curve is None and len(row.agents) == 1 else curve


def diagnostic_panels(rows: Sequence[Row]) -> list[Panel]:
    """One panel per diagnostic and set of bodies trained together, where a row has the curve."""
    present = {tag for row in rows for tag in row.curves if tag.startswith(DIAGNOSTICS)}
    tags = sorted(present, key=lambda tag: (next(k for k, d in enumerate(DIAGNOSTICS) if tag.startswith(d)), tag))
    panels = []
    for tag in tags:
        for agents in sorted({row.agents for row in rows}):
            bands, told = [], []
            for variant, sets in groups([row for row in rows if row.agents == agents]).items():
                table: list[list[Curve | None]] = [[row.curves.get(tag)] for row in sets[agents]]
                if all(curve is None for [curve] in table):
                    continue
                band = _band(variant, [([""], table)], lambda v, _: v)
                if isinstance(band, str):
                    told.append(band)
                else:
                    bands.append(band)
            if bands or told:
                panels.append(Panel(tag, ", ".join(agents), False, tuple(bands), tuple(told)))
    return panels
