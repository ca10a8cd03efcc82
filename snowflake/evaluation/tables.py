"""Tables of an evaluation for the terminal, 80 columns wide."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from snowflake.evaluation.results import BASELINES, LABELS, POLICIES, RULE, BodyResult, Result
from snowflake.evaluation.rollout import EpisodeBatch
from snowflake.evaluation.score import FORMULA
from snowflake.evaluation.statistics import summarize


def number(value: float, digits: int = 1) -> str:
    """A number with ``digits`` decimals, fewer from 100 on; a dash for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:.{0 if abs(value) >= 100 else digits}f}"


def _row(batch: EpisodeBatch, outside: float) -> list[str]:
    returns = summarize(batch.returns)
    return [
        f"{number(returns.mean)} ± {number(returns.sd)}",
        number(returns.median),
        number(float(batch.lengths.mean())),
        number(float(batch.distance.mean()), 2),
        number(float(batch.speed.mean()), 2),
        str(int(batch.fell.sum())),
        number(summarize(batch.cost_of_transport).mean, 2),
        number(100.0 * outside, 2),
    ]


OUTSIDE = (
    "outside: share of the normalised observation's entries more than 5 standard deviations from the mean of training, "
    "where the policy's normaliser cuts them."
)

EPISODE_COLUMNS = (
    ("\npolicy", 12),
    ("return\nmean ± sd", 13),
    ("\nmedian", 6),
    ("length\n\\[steps]", 7),
    ("forward\n\\[m]", 7),
    ("speed\n\\[m/s]", 6),
    ("\nfalls", 5),
    ("cost of\ntransport", 9),
    ("outside\n\\[%]", 7),
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
    return body.morphology + (f", {body.acquaintance}" if body.acquaintance else "")


def episode_rows(body: BodyResult) -> list[list[str]]:
    """Return, length, distance, speed, falls, cost of transport, share outside: a row for each way to act."""
    outside = {way: found.share for way, found in body.outside.items()}
    return [[f" {LABELS[way]}", *_row(batch, outside.get(way, math.nan))] for way, batch in body.episodes.items()]


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


def score_rows(body: BodyResult) -> list[list[str]]:
    """Return of the expert and normalised scores: a row for each way to act of the policy; none without an expert."""
    if body.expert is None:
        return []
    expert = body.expert.returns
    return [
        [f" {LABELS[way]}", number(float(expert[way].mean())), *(number(body.score(way, b), 2) for b in BASELINES)]
        for way in POLICIES
    ]


def sibling_rows(body: BodyResult) -> list[list[str]]:
    """What other orders of siblings cost: one row; none where they were not asked for."""
    found = body.siblings
    if found is None:
        return []
    drops = [number(float(found.drops.mean())), number(found.worst_decile)]
    return [[" mean action", str(len(found.returns)), *drops, f"{found.action_change.max():.1e}"]]


SCORE_COLUMNS = (
    ("normalised\nscore", 12),
    ("expert's\nreturn", 12),
    ("against\nzero action", 12),
    ("against\nrandom", 12),
)
SIBLING_COLUMNS = (
    ("order of\nsiblings", 12),
    ("\norders", 7),
    ("return drop\nmean \\[%]", 12),
    ("worst decile\n\\[%]", 12),
    ("largest change\nof an action", 14),
)
SIBLINGS = (
    "order of siblings: the children of every body in random orders, as if the model's file listed them so; drop of "
    "the mean return in percent of its size, on average and in the worst tenth of the orders."
)


def print_result(result: Result, console: Console | None = None) -> None:
    """Print both tables, the rules behind their words, and the notes."""
    console = console or Console(highlight=False)
    last = result.seed + result.episodes - 1
    steps = f"{result.trained_steps:,} training steps"
    console.print(Text(f"{result.run}, checkpoint {result.checkpoint} ({steps}), start states {result.seed} to {last}"))
    console.print()
    _print_table(console, EPISODE_COLUMNS, {_name(body): episode_rows(body) for body in result.bodies})
    _print_table(console, DIFFERENCE_COLUMNS, {_name(body): difference_rows(body) for body in result.bodies})
    for columns, rows_of, text in (
        (SCORE_COLUMNS, score_rows, FORMULA),
        (SIBLING_COLUMNS, sibling_rows, SIBLINGS),
    ):
        rows = {_name(body): rows_of(body) for body in result.bodies if rows_of(body)}
        if rows:
            _print_table(console, columns, rows)
            console.print(Text(text, style="dim"))
            console.print()
    text = (
        f"better, worse: the mean difference of the return over the {result.episodes} shared start states lies more "
        "than 2 of its standard errors above or below zero; unclear: it does not."
    )
    for line in (text, OUTSIDE, RULE, *result.notes):
        console.print(Text(line, style="dim"))
