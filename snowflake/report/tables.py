"""Tables of the report, as cells that become HTML and Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from snowflake.report.analysis import Comparison, FinalRow, Matrix, Summary
from snowflake.report.figures import source_name
from snowflake.report.statistics import Estimate

NONE = "–"

MARKS = {(True, False): "*", (False, True): " (mapped)", (False, False): ""}
"""Mark of a cell of the transfer matrix, by whether the body was trained on and the policy mapped to it."""


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        head: Column titles.
        rows: Cells, as many in each row as there are titles.
        names: How many columns on the left are names; the rest are numbers, and stand on the right.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int

    def markdown(self) -> str:
        """GitHub's table syntax."""
        rule = ["---"] * self.names + ["---:"] * (len(self.head) - self.names)
        lines = [self.head, tuple(rule), *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def final_table(rows: Sequence[FinalRow]) -> Table:
    """Every variant on every body that it trained on."""
    ways = [
        f"{way} {what}" for way in ("mean action:", "stochastic:") for what in ("mean ± sd", "IQM [95 % CI]", "median")
    ]
    head = ("variant", "body", "seeds", "steps", *ways, "zero action", "random", "distance [m]", "falls")
    lines = []
    for r in rows:
        low, high = r.steps
        lines.append(
            (
                r.variant,
                r.body,
                str(len(r.seeds)),
                f"{low:,}" if low == high else f"{low:,} to {high:,}",
                *_three(r.returns["mean_action"]),
                *_three(r.returns["stochastic"]),
                number(r.returns["zero_action"].mean),
                number(r.returns["random"].mean),
                _mean_sd(r.distance),
                f"{r.falls}/{r.episodes}",
                NONE if r.trainable is None else f"{r.trainable:,}" + (f" of {r.total:,}" if r.total else ""),
            )
        )
    return Table((*head, "trained parameters"), tuple(lines), 2)


def score_table(scores: dict[str, Estimate]) -> Table:
    """Aggregate score of each variant."""
    rows = tuple((variant, estimate(e, digits=2)) for variant, e in scores.items())
    return Table(("variant", "score, IQM [95 % CI]"), rows, 1)


def comparison_table(found: Sequence[Comparison]) -> Table:
    """P(X > Y) of each pair."""
    rows = tuple((c.first, c.second, estimate(c.probability, digits=2), ", ".join(c.bodies)) for c in found)
    return Table(("X", "Y", "P(X > Y) [95 % CI]", "bodies"), rows, 2)


def matrix_table(matrix: Matrix) -> Table:
    """Transfer matrix: mean ± sd over seeds; ``*`` marks a body that was trained on, ``(mapped)`` a mapped policy."""
    rows = []
    for i, source in enumerate(matrix.sources):
        cells = []
        for j in range(len(matrix.targets)):
            cell = matrix.cells.get((i, j))
            cells.append(NONE if cell is None else _spread(cell.mean, cell.sd) + MARKS[cell.trained, cell.mapped])
        rows.append((source_name(*source), *cells))
    for name, means in (("zero action", matrix.zero_action), ("random play", matrix.random)):
        rows.append((name, *(number(means[t]) if t in means else NONE for t in matrix.targets)))
    return Table(("source (trained on)", *matrix.targets), tuple(rows), 1)


def _three(summary: Summary) -> tuple[str, str, str]:
    return _mean_sd(summary), estimate(summary.iqm), number(summary.median)


def _mean_sd(summary: Summary) -> str:
    return _spread(summary.mean, summary.sd)


def _spread(mean: float, sd: float) -> str:
    return number(mean) + ("" if math.isnan(sd) else f" ± {number(sd)}")


def estimate(value: Estimate, digits: int | None = None) -> str:
    """``value [low, high]``, or the value and that there is no interval."""
    first, *ends = (
        None if v is None else number(v) if digits is None else f"{v:.{digits}f}"
        for v in (value.value, value.low, value.high)
    )
    return f"{first} [one seed: none]" if None in ends else f"{first} [{', '.join(map(str, ends))}]"


def number(value: float) -> str:
    """Whole from 100 on, else one decimal."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"
    return "0.0" if text == "-0.0" else text
