"""The files of a transfer matrix: JSON, CSV and figures."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from snowflake.evaluation.figures import render
from snowflake.evaluation.files import write_files
from snowflake.evaluation.heat_map import heat_map
from snowflake.evaluation.matrix import Matrix, Row
from snowflake.evaluation.results import BASELINES, POLICIES, RULE, BodyResult
from snowflake.evaluation.robustness import robustness_figure
from snowflake.evaluation.score import FORMULA
from snowflake.evaluation.statistics import summarize
from snowflake.files import dump_json

FORMAT = 1
"""Version of the JSON."""

CSV_COLUMNS: tuple[str, ...] = (
    "run", "checkpoint", "trained_steps", "method", "network", "trained_on", "morphology", "zero_shot", "policy",
    "episodes", "return_mean", "return_se", "length", "distance_m", "speed_m_s", "falls", "cost_of_transport",
    "outside_range", "above_random", "above_random_se", "above_zero_action", "above_zero_action_se", "score_random",
    "score_zero_action", "sibling_drop_percent", "sibling_worst_decile_percent", "note",
)  # fmt: skip
"""One row per cell and way to act of the policy; means over the episodes."""


def matrix_json(matrix: Matrix) -> str:
    """The matrix as strict JSON: means and standard errors by cell, then every episode by run."""
    cells = [[_cell(row, body) for body in matrix.columns] for row in matrix.rows]
    return dump_json(
        {
            "format": FORMAT,
            "kind": "matrix",
            "rows": [
                {
                    "run": row.result.run,
                    "checkpoint": row.result.checkpoint,
                    "trained_steps": row.result.trained_steps,
                    "method": row.method,
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
        return {"note": row.refused[body].word, "reason": row.refused[body].reason}
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
            "method": row.method,
            "network": row.network,
            "trained_on": " ".join(row.trained_on),
        }
        for body in matrix.columns:
            found = row.cell(body)
            if found is None:
                writer.writerow({**start, "morphology": body, "zero_shot": True, "note": row.refused[body].word})
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
    contents: dict[str, str | bytes] = {
        "matrix.json": matrix_json(matrix),
        "matrix.csv": matrix_csv(matrix),
        "matrix.png": render(heat_map(matrix)),
    }
    curves = robustness_figure([row.result for row in matrix.rows])
    if curves is not None:
        contents["robustness.png"] = render(curves)
    return write_files(folder, contents)
