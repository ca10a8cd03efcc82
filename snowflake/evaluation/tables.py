"""Tables of an evaluation for the terminal, 80 columns wide."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from snowflake.evaluation.results import BASELINES, LABELS, POLICIES, RULE, BodyResult, Result
from snowflake.evaluation.rollout import EpisodeBatch
from snowflake.evaluation.statistics import summarize


def number(value: float, digits: int = 1) -> str:
    """A number with ``digits`` decimals, fewer from 100 on; a dash for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:.{0 if abs(value) >= 100 else digits}f}"


def _row(batch: EpisodeBatch) -> list[str]:
    returns = summarize(batch.returns)
    return [
        f"{number(returns.mean)} ± {number(returns.sd)}",
        number(returns.median),
        str(len(batch)),
        number(float(batch.lengths.mean())),
        number(float(batch.distance.mean()), 2),
        number(float(batch.speed.mean()), 2),
        str(int(batch.fell.sum())),
        number(summarize(batch.cost_of_transport).mean, 2),
    ]


EPISODE_COLUMNS = (
    ("\npolicy", 13),
    ("return\nmean ± sd", 13),
    ("\nmedian", 6),
    ("epi-\nsodes", 5),
    ("length\n\\[steps]", 7),
    ("forward\n\\[m]", 7),
    ("speed\n\\[m/s]", 6),
    ("\nfalls", 5),
    ("cost of\ntransport", 9),
)
DIFFERENCE_COLUMNS = (
    ("difference\nof return", 12),
    ("against\nzero action", 12),
    ("", 7),
    ("against\nrandom", 12),
    ("", 7),
    ("\nwhat it does", 24),
)
"""Head and width of each column; with one space between they fill 79 columns."""


def _block(columns: tuple[tuple[str, int], ...], rows: list[list[str]], *, header: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", show_header=header)
    for k, (head, width) in enumerate(columns):
        words = k == 0 or (columns is DIFFERENCE_COLUMNS and not head.startswith("against"))
        table.add_column(head, justify="left" if words else "right", width=width)
    for row in rows:
        table.add_row(*row)
    return table


def _print_table(console: Console, columns: tuple[tuple[str, int], ...], rows: dict[str, list[list[str]]]) -> None:
    """Print the header once, then a block of rows under the name of each body (longer than any column may be)."""
    console.print(_block(columns, [], header=True))
    for name, block in rows.items():
        console.print(Text(name, style="bold cyan"))
        console.print(_block(columns, block, header=False))
    console.print()


def _name(body: BodyResult) -> str:
    return body.morphology + (", zero-shot" if body.zero_shot else "")


def episode_rows(body: BodyResult) -> list[list[str]]:
    """Return, length, distance, speed, falls and cost of transport: a row for each way to act."""
    return [[f" {LABELS[way]}", *_row(batch)] for way, batch in body.episodes.items()]


def difference_rows(body: BodyResult) -> list[list[str]]:
    """Paired difference of the return against zero action and random play, and the word for what the policy does."""
    rows = []
    for way in POLICIES:
        row = [f" {LABELS[way]}"]
        for baseline in BASELINES:
            difference = body.difference(way, baseline)
            sign = "+" if difference.mean >= 0 else ""
            row += [f"{sign}{number(difference.mean)} ± {number(difference.standard_error)}", difference.word]
        rows.append([*row, body.word(way)])
    return rows


def print_result(result: Result, console: Console | None = None) -> None:
    """Print both tables, the rules behind their words, and the notes."""
    console = console or Console(highlight=False)
    last = result.seed + result.episodes - 1
    steps = f"{result.trained_steps:,} training steps"
    console.print(Text(f"{result.run}, checkpoint {result.checkpoint} ({steps}), start states {result.seed} to {last}"))
    console.print()
    _print_table(console, EPISODE_COLUMNS, {_name(body): episode_rows(body) for body in result.bodies})
    _print_table(console, DIFFERENCE_COLUMNS, {_name(body): difference_rows(body) for body in result.bodies})
    text = (
        f"better, worse: the mean difference of the return over the {result.episodes} shared start states lies more "
        "than 2 of its standard errors above or below zero; unclear: it does not."
    )
    for line in (text, RULE, *result.notes):
        console.print(Text(line, style="dim"))
