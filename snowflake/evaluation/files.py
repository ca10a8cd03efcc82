"""The JSON and CSV of an evaluation, and the folder that they go to."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path

from agents.errors import UserError
from snowflake.evaluation.results import DETERMINISTIC, Result
from snowflake.files import dump_json, write_atomic

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
    "outside_range",
)
"""One row per episode; the last is the share of the observations outside the range of training."""


def to_json(result: Result) -> str:
    """The result as strict JSON (NaN becomes null)."""
    return dump_json(result.to_dict())


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
                outside = body.outside[way].of_episode(i) if way in body.outside else ""
                figures.append("" if outside != outside else outside)
                writer.writerow([body.morphology, body.zero_shot, way, way in DETERMINISTIC, i, seed, *figures])
    return out.getvalue()


def files_of(kind: str) -> tuple[str, ...]:
    """Names of the files of every result of a kind."""
    return f"{kind}.json", f"{kind}.csv", f"{kind}.png"


def write(result: Result, folder: Path, figure: bytes) -> tuple[Path, ...]:
    """Write ``KIND.json``, ``KIND.csv`` and ``KIND.png`` into ``folder`` (made if absent).

    Args:
        result: What to write.
        folder: Where.
        figure: The PNG.

    Raises:
        UserError: The folder cannot be written.
    """
    kind = result.kind
    return write_files(folder, {f"{kind}.json": to_json(result), f"{kind}.csv": to_csv(result), f"{kind}.png": figure})


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> tuple[Path, ...]:
    """Write files into ``folder`` (made if absent).

    Args:
        folder: Where.
        contents: What to write, by name.

    Raises:
        UserError: The folder cannot be written.
    """
    paths = tuple(folder / name for name in contents)
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
