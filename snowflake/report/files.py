"""Read the rows below folders, and write a report's files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agents.errors import UserError
from snowflake.evaluation.curves import damaged_event_files
from snowflake.files import dump_json, read_text, write_atomic
from snowflake.report.build import Report
from snowflake.report.page import to_html
from snowflake.report.rows import Row, find_rows, labels, read_row
from snowflake.report.runs import rows_of_runs

PAGES = ("index.html", "table.md", "summary.json")
"""Files of every report, beside its pictures."""


def read_folders(folders: Sequence[Path]) -> tuple[list[Row], list[str]]:
    """Read every row and run folder below these folders.

    Returns:
        The rows, labelled and sorted, and notes on files that were passed over.

    Raises:
        UserError: A folder is missing or holds nothing, a file is broken, or a policy is there twice.
    """
    files: list[Path] = []
    runs: list[Path] = []
    notes = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder: name a study's folder, or run folders")
        found = list(find_rows(folder))
        if not any(kind in ("row", "run") for kind, _ in found):
            raise UserError(f"{folder} holds no result: name a study's folder (with results/*.json), or run folders")
        known = {path.resolve() for path in (*files, *runs)}
        new = [(kind, path) for kind, path in found if path.resolve() not in known]
        if not any(kind in ("row", "run") for kind, _ in new):
            notes.append(f"{folder} holds nothing that the folders before it do not hold: counted once.")
        for kind, path in new:
            if kind == "other":
                notes.append(f"Passed over {path}: it belongs to no run folder.")
            else:
                (files if kind == "row" else runs).append(path)
    rows = labels([*map(read_row, files), *rows_of_runs(runs)])
    if not any(row.final or row.transfer or row.curves for row in rows):
        what = "snowflake evaluate makes one" if rows[0].study is None else "run the sweep again"
        raise UserError(f"{rows[0].path} holds neither curves nor an evaluation: {what}")
    damaged = [file for run in runs for file in damaged_event_files(run)]
    notes += [f"Curves end early: {file} is damaged or still being written, and read up to there." for file in damaged]
    return rows, notes


def write_report(report: Report, output: Path) -> tuple[Path, ...]:
    """Write ``index.html``, ``table.md``, ``summary.json`` and the PNGs; pictures of an earlier report are removed.

    Everything is in memory before the first file is written, the page is written last, and each file is replaced as a
    whole.

    Raises:
        UserError: The folder cannot be written.
    """
    pictures = {f"{i.name}.png": i.png for s in report.sections for i in s.items if i.png is not None}
    numbers = {**report.numbers, "files": [*PAGES, *pictures]}
    contents: dict[str, bytes] = {
        **pictures,
        "table.md": report.table.markdown().encode(),
        "summary.json": dump_json(numbers).encode(),
        "index.html": to_html(report).encode(),
    }
    stale = _written_before(output) - set(contents)
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, data in contents.items():
            write_atomic(output / name, data)
        for name in stale:
            (output / name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {output}: {error.strerror or error}; choose another --output") from error
    return tuple(output / name for name in contents)


def _written_before(output: Path) -> set[str]:
    """PNGs that the report in this folder lists as its own."""
    try:
        values = json.loads(read_text(output / "summary.json"))
        if values["kind"] != "report":
            return set()
        return {name for name in values["files"] if name.endswith(".png") and Path(name).name == name}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
