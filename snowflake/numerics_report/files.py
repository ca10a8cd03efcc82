"""Write the figures and tables of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.errors import UserError
from snowflake.evaluation.figures import render
from snowflake.files import write_atomic
from snowflake.numerics_report.figures import scales_figure, shares_figure
from snowflake.numerics_report.read import RunNumerics
from snowflake.numerics_report.text import operands_csv, summaries_csv

FILES = ("numerics.csv", "numerics-shares.csv", "numerics-scales.png", "numerics-shares.png")


def write_numerics(runs: Sequence[RunNumerics], output: Path) -> list[Path]:
    """Write what there is: without statistics by layer, neither their table nor their figure.

    Everything is in memory before the first file is written.

    Raises:
        UserError: The folder cannot be written.
    """
    contents: dict[str, str | bytes] = {}
    if any(run.operands for run in runs):
        contents["numerics.csv"] = operands_csv(runs)
    if any(run.summaries for run in runs):
        contents["numerics-shares.csv"] = summaries_csv(runs)
    for name, figure in (("numerics-scales.png", scales_figure(runs)), ("numerics-shares.png", shares_figure(runs))):
        if figure is not None:
            contents[name] = render(figure)
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_atomic(output / name, content)
    except OSError as error:
        raise UserError(f"cannot write to {output}: {error.strerror or error}; choose another --output") from error
    return [output / name for name in contents]
