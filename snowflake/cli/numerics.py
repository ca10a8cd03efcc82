"""``snowflake numerics``: what low precision did to a run, layer by layer over training."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from agents.errors import UserError
from snowflake.cli.parsing import parse


@dataclass(frozen=True, kw_only=True)
class NumericsFlags:
    """Draw the scales of weights, activations and gradients by layer over training, and the shares of the formats.

    Reads event files of runs trained with --precision; several are drawn one under the other.

    Writes numerics-scales.png, numerics-shares.png and the numbers of both as CSV; prints a table.
    """

    runs: Annotated[
        Positional[tuple[Path, ...]], arg(name="run", metavar="RUN [RUN ...]", help_behavior_hint="(required)")
    ]
    """Run folders."""
    output: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: the first run's folder)")] = None
    """Folder of the files."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("name a run: snowflake numerics RUN [RUN ...]")
        if self.output is not None and self.output.exists() and not self.output.is_dir():
            raise UserError(f"--output {self.output}: is a file, name a folder")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(NumericsFlags, argv, "snowflake numerics")
    from snowflake.files import check_output
    from snowflake.numerics_report.files import FILES, write_numerics
    from snowflake.numerics_report.read import names_of, read_numerics
    from snowflake.numerics_report.text import table

    output = flags.output or flags.runs[0]
    runs = [read_numerics(folder, name) for folder, name in zip(flags.runs, names_of(flags.runs), strict=True)]
    check_output(output, FILES)
    paths = write_numerics(runs, output)
    sys.stdout.write("\n".join(table(run) for run in runs))
    print(f"wrote {', '.join(path.name for path in paths)} into {output}", file=sys.stderr)
    return 0
