"""The whole matrix of a transfer: several runs, each on the bodies of all."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents import Morphology, UserError, model_hash
from snowflake.evaluation.extras import Extras, match_references
from snowflake.evaluation.files import strict_json, write_files
from snowflake.evaluation.measure import Told
from snowflake.evaluation.prepare import base_settings, measure, prepare
from snowflake.evaluation.provenance import provenance
from snowflake.evaluation.results import BASELINES, POLICIES, RULE, BodyResult, Result
from snowflake.evaluation.score import FORMULA
from snowflake.evaluation.statistics import summarize
from snowflake.run import Run

FORMAT = 1
"""Version of the JSON."""

BOUND = "bound to its body"
"""What stands in a cell of a flat policy on another body, without a map."""

CSV_COLUMNS: tuple[str, ...] = (
    "run", "checkpoint", "trained_steps", "network", "trained_on", "morphology", "zero_shot", "policy", "episodes",
    "return_mean", "return_se", "length", "distance_m", "speed_m_s", "falls", "cost_of_transport", "outside_range",
    "above_random", "above_random_se", "above_zero_action", "above_zero_action_se", "score_random",
    "score_zero_action", "sibling_drop_percent", "sibling_worst_decile_percent", "note",
)  # fmt: skip
"""One row per cell and way to act of the policy; means over the episodes."""


@dataclass(frozen=True)
class Row:
    """One run of the matrix.

    Attributes:
        result: What was measured, a transfer of this run.
        network: Name of the actor's network.
        trained_on: Names of the bodies that it was trained on.
        bound: Names of the bodies that it cannot play on.
    """

    result: Result
    network: str
    trained_on: tuple[str, ...]
    bound: tuple[str, ...]

    def cell(self, body: str) -> BodyResult | None:
        """What was measured on a body; None if the policy is bound to another."""
        return next((found for found in self.result.bodies if found.morphology == body), None)


@dataclass(frozen=True)
class Matrix:
    """Sources times targets.

    Attributes:
        rows: One per run, in the order given.
        columns: Names of the bodies: those that the runs were trained on, then the others.
        provenance: Versions, hardware, threads and command.
    """

    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def has_scores(self) -> bool:
        """Whether any body has an expert."""
        return any(body.expert is not None for row in self.rows for body in row.result.bodies)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines that the reader should know, each once."""
        notes = dict.fromkeys(note for row in self.rows for note in row.result.notes)
        limits = {row.result.max_episode_steps for row in self.rows}
        if len(limits) > 1:
            notes[f"The runs have different time limits ({', '.join(map(str, sorted(limits)))} steps)."] = None
        return tuple(notes)

    def labels(self) -> tuple[str, ...]:
        """A short name for each row: the run's folder, or its whole path where two folders share a name."""
        names = [Path(row.result.run).name for row in self.rows]
        return tuple(
            row.result.run if names.count(name) > 1 else name for row, name in zip(self.rows, names, strict=True)
        )


def transfer_matrix(
    runs: Sequence[Run],
    to: Sequence[Morphology],
    checkpoint: str | int | None = None,
    *,
    episodes: int,
    seed: int,
    num_threads: int = 0,
    command: str = "",
    told: Told | None = None,
    extras: Extras | None = None,
) -> Matrix:
    """Play several runs on the bodies that any of them was trained on and on others.

    Args:
        runs: The runs.
        to: Other bodies.
        checkpoint: ``best``, ``last`` or a step, of every run; None takes ``best``, else ``last``.
        episodes: Episodes per body and way to act.
        seed: Seed of the first start state; everything shares the start states.
        num_threads: Physics threads; 0 takes every core.
        command: Command line, for the record.
        told: Called after each control step with body, way to act, step and episodes ended.
        extras: What to measure beside, and whether to map flat policies.

    Raises:
        UserError: A checkpoint is missing or does not fit a body, two bodies share a name, or a reference has none.
    """
    extras = extras or Extras()
    bodies = _columns(runs, to)
    experts = match_references(extras.references, bodies)
    prepared = [prepare(run, checkpoint, bodies, extras) for run in runs]
    settings = base_settings(episodes, seed, num_threads, told)
    rows = tuple(
        Row(
            measure("transfer", one, settings, command, experts),
            one.run.config.policy.network,
            tuple(body.name for body in one.run.morphologies),
            tuple(body.name for body in one.bound),
        )
        for one in prepared
    )
    device = str(prepared[0].policy.device)
    return Matrix(rows, tuple(body.name for body in bodies), provenance(command, num_threads, device))


def _columns(runs: Sequence[Run], to: Sequence[Morphology]) -> tuple[Morphology, ...]:
    """All bodies, the runs' own first, each once."""
    bodies: dict[str, Morphology] = {}
    for body in (*(body for run in runs for body in run.morphologies), *to):
        first = bodies.setdefault(body.name, body)
        if first != body and model_hash(first.compile()) != model_hash(body.compile()):
            raise UserError(
                f"two different bodies are called {body.name!r}, of {', '.join(str(run.path) for run in runs)} and "
                "--to: rename one of the files, or measure them apart"
            )
    return tuple(bodies.values())


def matrix_json(matrix: Matrix) -> str:
    """The matrix as strict JSON: means and standard errors by cell, then every episode by run."""
    cells = [[_cell(row, body) for body in matrix.columns] for row in matrix.rows]
    return strict_json(
        {
            "format": FORMAT,
            "kind": "matrix",
            "rows": [
                {
                    "run": row.result.run,
                    "checkpoint": row.result.checkpoint,
                    "trained_steps": row.result.trained_steps,
                    "network": row.network,
                    "trained_on": list(row.trained_on),
                }
                for row in matrix.rows
            ],
            "columns": list(matrix.columns),
            "cells": cells,
            "rule": RULE,
            **({"score_formula": FORMULA} if matrix.has_scores else {}),
            "notes": list(matrix.notes),
            "provenance": matrix.provenance,
            "results": [row.result.to_dict() for row in matrix.rows],
        }
    )


def _cell(row: Row, body: str) -> dict[str, Any]:
    found = row.cell(body)
    if found is None:
        return {"note": BOUND}
    policies = {}
    for way in POLICIES:
        returns = summarize(found.episodes[way].returns)
        policies[way] = {
            "mean": returns.mean,
            "standard_error": returns.standard_error,
            "above": {b: vars(found.difference(way, b)).copy() for b in BASELINES},
            "normalized_score": {b: found.score(way, b) for b in BASELINES},
            "outside_range": found.outside[way].share if way in found.outside else None,
        }
    return {"zero_shot": found.zero_shot, "policies": policies}


def matrix_csv(matrix: Matrix) -> str:
    """One row per cell and way to act; an empty cell for a number that does not exist."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, CSV_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in matrix.rows:
        result = row.result
        start = {
            "run": result.run,
            "checkpoint": result.checkpoint,
            "trained_steps": result.trained_steps,
            "network": row.network,
            "trained_on": " ".join(row.trained_on),
        }
        for body in matrix.columns:
            found = row.cell(body)
            if found is None:
                writer.writerow({**start, "morphology": body, "zero_shot": True, "note": BOUND})
                continue
            for way in POLICIES:
                cells = {**start, "morphology": body, "zero_shot": found.zero_shot, **_csv_cell(found, way)}
                writer.writerow({name: "" if value != value else value for name, value in cells.items()})
    return out.getvalue()


def _csv_cell(found: BodyResult, way: str) -> dict[str, Any]:
    batch = found.episodes[way]
    returns = summarize(batch.returns)
    cells: dict[str, Any] = {
        "policy": way,
        "episodes": len(batch),
        "return_mean": returns.mean,
        "return_se": returns.standard_error,
        "length": float(batch.lengths.mean()),
        "distance_m": float(batch.distance.mean()),
        "speed_m_s": float(batch.speed.mean()),
        "falls": int(batch.fell.sum()),
        "cost_of_transport": summarize(batch.cost_of_transport).mean,
    }
    if way in found.outside:
        cells["outside_range"] = found.outside[way].share
    for baseline in BASELINES:
        difference = found.difference(way, baseline)
        cells[f"above_{baseline}"], cells[f"above_{baseline}_se"] = difference.mean, difference.standard_error
        cells[f"score_{baseline}"] = found.score(way, baseline)
    if found.siblings is not None and way == "mean_action":
        cells["sibling_drop_percent"] = float(found.siblings.drops.mean())
        cells["sibling_worst_decile_percent"] = found.siblings.worst_decile
    return cells


def write_matrix(matrix: Matrix, folder: Path) -> tuple[Path, ...]:
    """Write ``matrix.json``, ``.csv`` and ``.png``, and ``robustness.png`` where bodies are varied in one key.

    Raises:
        UserError: The folder cannot be written.
    """
    from snowflake.evaluation.figures import render
    from snowflake.evaluation.heat_map import heat_map
    from snowflake.evaluation.robustness import robustness_figure

    contents: dict[str, str | bytes] = {
        "matrix.json": matrix_json(matrix),
        "matrix.csv": matrix_csv(matrix),
        "matrix.png": render(heat_map(matrix)),
    }
    curves = robustness_figure([row.result for row in matrix.rows])
    if curves is not None:
        contents["robustness.png"] = render(curves)
    return write_files(folder, contents)
