"""Put a report together: sections of figures and tables, and every number of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from snowflake.evaluation.figures import render
from snowflake.report import analysis, figures, tables
from snowflake.report.curves import EVALUATION, TRAINING, Panel, diagnostic_panels, return_panels
from snowflake.report.rows import Row
from snowflake.report.statistics import BOOTSTRAP_SEED, COVERAGE, RESAMPLES
from snowflake.report.tables import Table

MOST_PAIRS = 15
"""Pairs of variants that the figure shows; the table has all."""

MOST_NAMES = 3
"""Policies that a note lists by name."""

SUMMARY_FORMAT = 1


@dataclass(frozen=True)
class Item:
    """A figure or a table, or one under the other, with the commands of the rows in it.

    Attributes:
        name: Stem of the PNG; an HTML id.
        caption: What it shows.
        png: The picture; None for a table alone.
        table: The table; None for a picture alone.
        commands: Command lines that made its rows.
    """

    name: str
    caption: str
    png: bytes | None
    table: Table | None
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """Items under one heading, with a line that says how to read them and notes on what is missing."""

    title: str
    text: str
    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """Everything that is written.

    Attributes:
        title: Title of the page.
        command: Command line that made the report.
        facts: Name and value, for the head of the page.
        notes: What the reader should know first.
        sections: The page.
        table: The final table.
        numbers: Every number as plain data; a figure that does not exist is NaN or None.
    """

    title: str
    command: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    table: Table
    numbers: dict[str, Any]


def build(rows: Sequence[Row], title: str, command: str, notes: Sequence[str] = ()) -> Report:
    """Compute and draw everything.

    Args:
        rows: The rows, labelled by :func:`snowflake.report.rows.labels`.
        title: Title of the page.
        command: Command line, for the record.
        notes: Lines for the head of the page.
    """
    look = figures.Look(analysis.variants(rows))
    final = analysis.final_table(rows)
    pairs = analysis.comparisons(rows)
    matrices = [m for way in ("mean_action", "stochastic") if (m := analysis.transfer_matrix(rows, way))]
    scores = analysis.aggregate_scores(rows)
    panels = {kind: return_panels(rows, kind) for kind in (EVALUATION, TRAINING)}
    diagnostics = diagnostic_panels(rows)
    table = tables.final_table(final)
    sections = (
        _final_section(rows, table, scores),
        _curve_section(rows, "Evaluation return", EVALUATION_TEXT, panels[EVALUATION], look),
        _curve_section(rows, "Training return", TRAINING_TEXT, panels[TRAINING], look),
        _scaling_section(rows, final, look),
        _comparison_section(rows, pairs),
        _transfer_section(rows, matrices),
        _curve_section(rows, "Updates", UPDATE_TEXT, diagnostics, look),
    )
    facts = _facts(rows)
    all_notes = (*notes, *_notes(rows))
    numbers = {
        "kind": "report",
        "format": SUMMARY_FORMAT,
        "title": title,
        "command": command,
        "facts": dict(facts),
        "notes": [*all_notes, *(n for s in sections for n in s.notes)],
        "bootstrap": {"resamples": RESAMPLES, "seed": BOOTSTRAP_SEED, "coverage": COVERAGE},
        "final": [dataclasses.asdict(line) for line in final],
        "score_rule": {b: {"zero": z, "one": o} for b, (z, o) in analysis.scores(rows).items()},
        "scores": {variant: dataclasses.asdict(e) for variant, e in scores.items()},
        "probability_of_improvement": [dataclasses.asdict(pair) for pair in pairs],
        "transfer": [_matrix_numbers(m) for m in matrices],
        "curves": [_panel_numbers(p) for p in (*panels[EVALUATION], *panels[TRAINING], *diagnostics)],
        "commands": list(_commands(rows)),
    }
    kept = tuple(s for s in sections if s.items or s.notes)
    return Report(title, command, facts, all_notes, kept, table, numbers)


EVALUATION_TEXT = (
    "Mean action, on start states that training does not use. Line: interquartile mean over seeds; band: 95 % interval."
)
TRAINING_TEXT = (
    "Stochastic play, mean of the latest training episodes. Line: interquartile mean over seeds; band: 95 % interval."
)
UPDATE_TEXT = "What each update did, by its TensorBoard tag. Line: interquartile mean over seeds; band: 95 % interval."


def _curve_section(rows: Sequence[Row], title: str, text: str, panels: Sequence[Panel], look: figures.Look) -> Section:
    items = []
    for panel in panels:
        if panel.bands:
            inside = [r for r in rows if panel.scored or panel.place in (*r.agents, ", ".join(r.agents))]
            drawn = {band.variant for band in panel.bands}
            name = slug(f"curve {panel.kind} {panel.place}")
            commands = _commands(r for r in inside if r.variant in drawn)
            picture = render(figures.panel_figure(panel, look))
            items.append(Item(name, figures.panel_title(panel), picture, None, commands))
    notes = tuple(dict.fromkeys(f"{panel.place}: {note}" for panel in panels for note in panel.notes))
    return Section(title, text, tuple(items), notes)


def _final_section(rows: Sequence[Row], table: Table, scores: dict[str, Any]) -> Section:
    commands = _commands(r for r in rows if r.final is not None)
    items = [Item("final-table", "Return per episode at the end of training, over seeds", None, table, commands)]
    if scores:
        items.append(Item("scores", "Score over all bodies and seeds", None, tables.score_table(scores), commands))
    text = "Each seed counts as the mean of its evaluation episodes; distance and falls are those of the mean action."
    return Section("Final results", text, tuple(items) if table.rows else (), _episode_notes(rows))


def _episode_notes(rows: Sequence[Row]) -> tuple[str, ...]:
    """Whether the means of seeds are of different numbers of episodes, and of which."""
    counts: dict[int, list[str]] = {}
    for row in rows:
        for name, ways in {**(row.final or {}), **(row.transfer or {})}.items():
            for number in {len(measured.returns) for measured in ways.values()}:
                counts.setdefault(number, []).append(f"{row.variant} seed {row.seed} on {name}")
    if len(counts) < 2:
        return ()
    told = [f"{number} ({_some(names)})" for number, names in sorted(counts.items())]
    return (
        f"Numbers of episodes differ: {'; '.join(told)}. Each seed counts as the mean of its own, so those of few "
        "episodes are noisier.",
    )


def _some(names: Sequence[str]) -> str:
    return (
        ", ".join(names)
        if len(names) <= MOST_NAMES
        else f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    )


def _scaling_section(rows: Sequence[Row], final: Sequence[analysis.FinalRow], look: figures.Look) -> Section:
    items = ()
    if len({line.nodes for line in final if line.nodes}) > 1:
        commands = _commands(r for r in rows if r.final is not None)
        picture = render(figures.scaling_figure(final, look))
        items = (
            Item("scaling", "Final return of the mean action against the size of the body", picture, None, commands),
        )
    text = "Interquartile mean over seeds, with its 95 % interval. Returns of different bodies have different scales."
    return Section("Size of the body", text, items)


def _comparison_section(rows: Sequence[Row], pairs: Sequence[analysis.Comparison]) -> Section:
    items = ()
    if pairs:
        shown = pairs[:MOST_PAIRS]
        caption = "Probability of improvement" + (
            f", the {MOST_PAIRS} clearest pairs" if len(shown) < len(pairs) else ""
        )
        picture = render(figures.improvement_figure(shown))
        commands = _commands(r for r in rows if r.final is not None)
        items = (Item("improvement", caption, picture, tables.comparison_table(pairs), commands),)
    text = "The chance that a random seed of X ends with a higher return than a random seed of Y; 0.5 is no difference."
    return Section("Which variant is better", text, items)


def _transfer_section(rows: Sequence[Row], matrices: Sequence[analysis.Matrix]) -> Section:
    names = {"mean_action": "mean action", "stochastic": "stochastic"}
    commands = _commands(r for r in rows if r.transfer is not None or r.final is not None)
    items = tuple(
        Item(
            f"transfer-{m.way.replace('_', '-')}",
            f"Return per episode without further training, {names[m.way]}",
            render(figures.matrix_figure(m)),
            tables.matrix_table(m),
            commands,
        )
        for m in matrices
    )
    text = (
        "Rows: the policy and the bodies that it trained on; columns: the body that it played. Colour: 0 (dark) is "
        "random play on that body, 1 (bright) the best of the column. Table: mean ± sd over seeds; * was trained on."
    )
    if any(matrix.has_mapped for matrix in matrices):
        text += (
            ' "mapped": a flat policy, which has no input for another body, so its weights were carried over by node '
            "class and column, new inputs with weight 0."
        )
    return Section("Transfer to other bodies", text, items)


def _notes(rows: Sequence[Row]) -> tuple[str, ...]:
    sets = [(v, agents, own) for v, found in analysis.groups(rows).items() for agents, own in found.items()]
    notes = []
    single = [f"{variant} on {', '.join(agents)}" for variant, agents, own in sets if len(own) == 1]
    if single:
        notes.append(f"One seed only, so no interval exists and none is drawn: {'; '.join(single)}.")
    for plain, advice in ((True, "snowflake evaluate does it"), (False, "run the sweep again")):
        unmeasured = [str(row.path) for row in rows if row.final is None and (row.study is None) == plain]
        if unmeasured:
            notes.append(f"Not evaluated, so without final numbers: {', '.join(unmeasured)} ({advice}).")
    counts = [f"{variant} on {', '.join(agents)} {len(own)}" for variant, agents, own in sets]
    if len({len(own) for _, _, own in sets}) > 1:
        notes.append(f"Numbers of seeds differ: {'; '.join(counts)}.")
    return tuple(notes)


def _facts(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    studies = [s for s in dict.fromkeys(row.study for row in rows) if s is not None]
    checkpoints = sorted({row.checkpoint for row in rows if row.checkpoint})
    facts = {
        "studies": ", ".join(studies),
        "variants": ", ".join(analysis.variants(rows)),
        "bodies": ", ".join(analysis.trained_bodies(rows)),
        "seeds": ", ".join(map(str, sorted({row.seed for row in rows}))),
        "policies": str(len(rows)),
        "environment steps": _distinct(f"{row.steps:,}" for row in rows),
        "measured checkpoint": ", ".join(checkpoints),
        "episodes per policy, body and way to act": _distinct(
            str(len(m.returns)) for row in rows for ways in (row.final or {}).values() for m in ways.values()
        ),
    }
    for key in dict.fromkeys(key for row in rows for key in row.hardware):
        facts[f"hardware: {key}"] = _distinct(str(row.hardware[key]) for row in rows if key in row.hardware)
    names = dict.fromkeys(key for row in rows for key in row.versions)
    facts["versions"] = "; ".join(
        f"{key} {_distinct(row.versions[key] for row in rows if key in row.versions)}" for key in names
    )
    return tuple((name, value) for name, value in facts.items() if value)


def _distinct(values: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(values))


def _commands(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(command for row in rows for command in row.commands))


def _panel_numbers(panel: Panel) -> dict[str, Any]:
    bands = [
        {k: [float(f"{x:.6g}") for x in v] if isinstance(v, np.ndarray) else v for k, v in vars(band).items()}
        for band in panel.bands
    ]
    return {"kind": panel.kind, "place": panel.place, "scored": panel.scored, "bands": bands}


def _matrix_numbers(matrix: analysis.Matrix) -> dict[str, Any]:
    cells = [
        {"variant": matrix.sources[i][0], "agents": matrix.sources[i][1], "target": matrix.targets[j], **vars(cell)}
        for (i, j), cell in sorted(matrix.cells.items())
    ]
    return {"way": matrix.way, "zero_action": matrix.zero_action, "random": matrix.random, "cells": cells}


def slug(text: str) -> str:
    """A name for files and HTML ids: letters, digits, hyphens, dots."""
    words = "".join(c if c.isalnum() or c in ".-" else " " for c in text).split()
    return "-".join(words)[:120]
