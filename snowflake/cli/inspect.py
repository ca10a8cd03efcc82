"""``snowflake inspect``: what Snowflake makes of a model, and what is odd about it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from agents.errors import UserError
from snowflake.cli.parsing import parse
from snowflake.files import check_no_file

NOT_TRAINABLE = 1
"""Exit code where the model was read but no graph can be built of it."""


@dataclass(frozen=True, kw_only=True)
class InspectFlags:
    """Report on a model: tree, graph, actuators, observation, actions, findings; and draw its graph.

    Exit code 0: it can be trained; 1: it was read, but no policy can be built (the findings say why); 2: no model.
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """Path of an MJCF or URDF file, or name of a ready-made body."""
    root_body: Annotated[str | None, arg(metavar="NAME")] = None
    """Top body of the robot, where the file has several that are actuated."""
    steps: int = 200
    """Control steps of random actions to try; 0 tries none."""
    output: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: no drawing)")] = None
    """Folder for the drawing of the graph, NAME.png."""
    json: bool = False
    """Print the report as JSON."""

    def __post_init__(self) -> None:
        if not 0 <= self.steps <= 1_000_000:
            raise UserError(f"--steps {self.steps}: must lie between 0 and 1000000")
        check_no_file(self.output)


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(InspectFlags, argv, "snowflake inspect")
    from snowflake.files import check_output, dump_json
    from snowflake.inspection.worker import inspect_apart

    if flags.output is not None:
        check_output(flags.output)
    with _status():
        report = inspect_apart(
            flags.model,
            root_body=flags.root_body,
            steps=flags.steps,
            output=None if flags.output is None else str(flags.output.resolve()),
        )
    if flags.json:
        sys.stdout.write(dump_json(report, indent=2))
    else:
        from snowflake.inspection.text import print_report

        print_report(report)
    if report["drawing"] is not None:
        print(f"wrote {report['drawing']}", file=sys.stderr)
    return 0 if report["status"] == "graph" else NOT_TRAINABLE


@contextlib.contextmanager
def _status() -> Iterator[None]:
    from rich.console import Console

    console = Console(file=sys.stderr)
    if console.is_terminal:
        with console.status("compiling and trying random actions"):
            yield
    else:
        yield
