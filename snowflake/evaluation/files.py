"""The JSON and CSV of an evaluation, and the folder that they go to."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path
from typing import Any

from agents.errors import UserError
from snowflake.evaluation.results import DETERMINISTIC, Result
from snowflake.files import write_atomic

CSV_COLUMNS = (
    "morphology",
    "zero_shot",
    "policy",
    "deterministic",
    "episode",
    "seed",
    "return",
    "length",
    "distance_m",
    "speed_m_s",
    "fell",
    "energy_j",
    "cost_of_transport",
    "unstable",
)
"""One row per episode."""


def to_json(result: Result) -> str:
    """The result as strict JSON (NaN becomes null)."""
    return json.dumps(_finite(result.to_dict()), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(result: Result) -> str:
    """One row per episode; an empty cell for a cost of transport that does not exist."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for body in result.bodies:
        for way, batch in body.episodes.items():
            columns = batch.to_dict()
            for i in range(len(batch)):
                cells = [columns[name][i] for name in columns]
                seed, *figures = ("" if c is None else c for c in cells)
                writer.writerow([body.morphology, body.zero_shot, way, way in DETERMINISTIC, i, seed, *figures])
    return out.getvalue()


def write(result: Result, folder: Path, figure: bytes) -> tuple[Path, ...]:
    """Write ``KIND.json``, ``KIND.csv`` and ``KIND.png`` into ``folder`` (made if absent).

    Args:
        result: What to write.
        folder: Where.
        figure: The PNG.

    Raises:
        UserError: The folder cannot be written.
    """
    contents = {
        "json": to_json(result).encode(),
        "csv": to_csv(result).encode(),
        "png": figure,
    }
    paths = tuple(folder / f"{result.kind}.{suffix}" for suffix in contents)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in zip(paths, contents.values(), strict=True):
            write_atomic(path, data)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write to {folder}: {reason}; choose another folder with --output DIR") from error
    return paths


def is_packaged(run_path: Path) -> bool:
    """Whether a run lies inside the package, as the policies that ship with it do."""
    import snowflake

    return Path(snowflake.__file__).resolve().parent in run_path.resolve().parents


def output_folder(run_path: Path, output: Path | None) -> tuple[Path, str | None]:
    """Choose the folder of the results.

    Args:
        run_path: The run folder.
        output: The user's choice, or None.

    Returns:
        The folder, and a line that says so when it is neither the run folder nor the user's choice.
    """
    if output is not None:
        return output, None
    packaged = is_packaged(run_path)
    if not packaged and os.access(run_path, os.W_OK):
        return run_path, None
    reason = "belongs to the package" if packaged else "cannot be written"
    folder = Path("runs") / f"{run_path.name}-evaluation"
    return folder, f"{run_path} {reason}: results go to {folder} (--output chooses another folder)"
