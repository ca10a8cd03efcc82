"""Tables of a transfer matrix for the terminal, and the lines that extras add to any transfer."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from snowflake.evaluation.fit import BOUND, MISFIT
from snowflake.evaluation.matrix import Matrix
from snowflake.evaluation.results import BASELINES, LABELS, POLICIES, RULE, BodyResult
from snowflake.evaluation.score import FORMULA
from snowflake.evaluation.statistics import summarize
from snowflake.evaluation.tables import OUTSIDE, SIBLINGS, number

COLUMNS_A_BLOCK = 3
"""Bodies side by side; more go below, so that a table stays 80 columns wide."""
_ROW_WIDTH, _CELL_WIDTH = 24, 17

Shown = Callable[[BodyResult], str]


def print_matrix(matrix: Matrix, console: Console | None = None) -> None:
    """Print a table for each figure: runs down, bodies across; then the rules behind them and the notes."""
    console = console or Console(highlight=False)
    result = matrix.rows[0].result
    last = result.seed + result.episodes - 1
    console.print(
        Text(f"{len(matrix.rows)} runs on {len(matrix.columns)} bodies, start states {result.seed} to {last}")
    )
    for label, row in zip(matrix.labels(), matrix.rows, strict=True):
        steps = f"{row.result.trained_steps:,} steps on {', '.join(row.trained_on)}"
        console.print(Text(f"  {label}: {row.result.run}, {row.method}, checkpoint {row.result.checkpoint}, {steps}"))
    for title, show, way in _figures(matrix):
        console.print()
        console.print(Text(title, style="bold cyan"))
        for first in range(0, len(matrix.columns), COLUMNS_A_BLOCK):
            table = _block(matrix, matrix.columns[first : first + COLUMNS_A_BLOCK], show)
            if way is not None:
                _add_yardsticks(table, matrix, matrix.columns[first : first + COLUMNS_A_BLOCK], way)
            console.print(table)
    console.print()
    lines = ["* a body that the run was trained on. -: no such number.", OUTSIDE]
    if matrix.has_scores:
        lines.append(FORMULA)
    if any(body.siblings for row in matrix.rows for body in row.result.bodies):
        lines.append(SIBLINGS)
    words = {why.word for row in matrix.rows for why in row.refused.values()}
    if BOUND in words:
        lines.append(f"{BOUND}: a flat policy has no input for another body; --mlp-transfer maps it.")
    if MISFIT in words:
        lines.append(f"{MISFIT}: the body has not the feature set or the node classes that the policy was trained on.")
    for line in (*lines, RULE, *matrix.notes):
        console.print(Text(line, style="dim"))


def _figures(matrix: Matrix) -> list[tuple[str, Shown, str | None]]:
    """Title of each table, what its cells show, and the way to act if it is the table of a return."""
    figures: list[tuple[str, Shown, str | None]] = []
    for way in POLICIES:
        figures.append((f"return, {LABELS[way]}, mean ± standard error", lambda body, way=way: _mean(body, way), way))
    figures.append(("what the mean action does", lambda body: body.word("mean_action"), None))
    if matrix.has_scores:
        for way in POLICIES:
            figures.append(
                (
                    f"normalised score, {LABELS[way]}: against random play / against the zero action",
                    lambda body, way=way: " / ".join(number(body.score(way, b), 2) for b in ("random", "zero_action")),
                    None,
                )
            )
    figures.append(("outside [%], mean action", _outside, None))
    if any(body.siblings for row in matrix.rows for body in row.result.bodies):
        figures.append(("return drop under other orders of siblings [%]: mean / worst decile", _siblings, None))
    return figures


def _mean(body: BodyResult, way: str) -> str:
    returns = summarize(body.episodes[way].returns)
    return f"{number(returns.mean)} ± {number(returns.standard_error)}"


def _outside(body: BodyResult) -> str:
    return number(100.0 * body.outside["mean_action"].share, 2) if "mean_action" in body.outside else "-"


def _siblings(body: BodyResult) -> str:
    if body.siblings is None:
        return "-"
    return f"{number(float(body.siblings.drops.mean()))} / {number(body.siblings.worst_decile)}"


def _block(matrix: Matrix, columns: tuple[str, ...], show: Shown) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", width=_ROW_WIDTH, overflow="fold")
    for name in columns:
        head = "\n".join(textwrap.wrap(name, _CELL_WIDTH))
        table.add_column(Text(head), justify="right", width=_CELL_WIDTH, overflow="fold", vertical="bottom")
    for label, row in zip(matrix.labels(), matrix.rows, strict=True):
        cells = []
        for name in columns:
            body = row.cell(name)
            cells.append(row.refused[name].word if body is None else show(body) + ("" if body.zero_shot else "*"))
        table.add_row(label, *cells)
    return table


def _add_yardsticks(table: Table, matrix: Matrix, columns: tuple[str, ...], way: str) -> None:
    """Add rows for zero action, random play and the experts, of the first run that plays a body."""
    found = [next((body for row in matrix.rows if (body := row.cell(name)) is not None), None) for name in columns]
    for baseline in BASELINES:
        table.add_row(Text(LABELS[baseline], style="dim"), *("-" if b is None else _mean(b, baseline) for b in found))
    if matrix.has_scores:
        experts = [body and body.expert and number(float(body.expert.returns[way].mean())) for body in found]
        table.add_row(Text("expert", style="dim"), *(text or "-" for text in experts))
