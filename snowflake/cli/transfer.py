"""``snowflake transfer``: measure trained policies, without training, on bodies that they never saw."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from agents.errors import UserError
from snowflake.cli.evaluate import EvaluationFlags, find_run, finish, progress, set_threads, written
from snowflake.cli.parsing import parse

if TYPE_CHECKING:
    from agents import Morphology
    from snowflake.run import Run

MATRIX_FOLDER = Path("runs") / "transfer"
"""Where the matrix of several runs goes, unless said otherwise."""


@dataclass(frozen=True, kw_only=True)
class TransferFlags(EvaluationFlags):
    """Play policies zero-shot on other bodies, beside zero action and random play; their own bodies come first.

    Several runs give the whole matrix: every run on every body.
    """

    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)")] = ()
    """Run folders, or pretrained:NAME for policies that ship with the package."""
    to: Annotated[
        tuple[str, ...],
        arg(aliases=("--agents",), metavar="NAME [NAME ...]", help_behavior_hint="(required for one run)"),
    ] = ()
    """Bodies to transfer to, for example centipede-8 centipede-12 centipede-6-crippled."""
    mlp_transfer: bool = False
    """Map an mlp policy to other bodies by node class and column, with new inputs zero."""
    reference: Annotated[tuple[str, ...], arg(metavar="RUN [RUN ...]", help_behavior_hint="(default: none)")] = ()
    """Runs trained on bodies measured here, the experts of normalised scores."""
    sibling_orders: int = 0
    """Random orders of sibling limbs to play each body in; 0 for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.runs:
            raise UserError("RUN is missing: name the folder of a run, or pretrained:NAME")
        places = [path if path.startswith("pretrained:") else str(Path(path).resolve()) for path in self.runs]
        if twice := [path for path, place in zip(self.runs, places, strict=True) if places.count(place) > 1]:
            raise UserError(f"{' and '.join(dict.fromkeys(twice))}: the same run twice, name it once")
        if not self.to and len(self.runs) == 1:
            raise UserError("--to is missing: name bodies, for example --to centipede-8 centipede-12")
        if not 0 <= self.sibling_orders <= 10_000:
            raise UserError(f"--sibling-orders {self.sibling_orders}: must lie between 0 and 10000")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(TransferFlags, argv, "snowflake transfer")
    from snowflake.evaluation.choice import choose_bodies
    from snowflake.evaluation.files import files_of, output_folder
    from snowflake.evaluation.fit import check_fit, check_some_fit
    from snowflake.files import check_output

    runs = [find_run(path, flags) for path in flags.runs]
    references = tuple(
        find_run(path, EvaluationFlags(precision=flags.precision)) for path in dict.fromkeys(flags.reference)
    )
    bodies = choose_bodies((*runs, *references), flags.to)
    if len(runs) > 1:
        check_some_fit(runs, bodies, mlp_transfer=flags.mlp_transfer)
        check_output(flags.output or MATRIX_FOLDER, files_of("matrix"))
    else:
        check_fit(runs[0], bodies, mlp_transfer=flags.mlp_transfer)
        check_output(output_folder(runs[0].path, flags.output)[0], files_of("transfer"))
    set_threads(runs[0], flags)
    from snowflake.evaluation.extras import Extras

    options: dict[str, Any] = {
        "episodes": flags.episodes,
        "seed": flags.seed,
        "num_threads": flags.num_threads or runs[0].config.env.num_threads,
        "command": shlex.join(["snowflake", "transfer", *argv]),
        "extras": Extras(flags.mlp_transfer, references, flags.sibling_orders),
    }
    if len(runs) > 1:
        return _matrix(runs, bodies, flags, options)
    from snowflake.evaluation.report import transfer_run

    with progress() as told:
        result = transfer_run(runs[0], bodies, flags.checkpoint, told=told, **options)
    finish(result, runs[0], flags)
    return 0


def _matrix(runs: Sequence[Run], bodies: Sequence[Morphology], flags: TransferFlags, options: dict[str, Any]) -> int:
    from snowflake.evaluation.matrix import transfer_matrix
    from snowflake.evaluation.matrix_files import matrix_json, write_matrix
    from snowflake.evaluation.matrix_tables import print_matrix

    with progress() as told:
        matrix = transfer_matrix(runs, bodies, flags.checkpoint, told=told, **options)
    paths = write_matrix(matrix, flags.output or MATRIX_FOLDER)
    if flags.json:
        sys.stdout.write(matrix_json(matrix))
    else:
        print_matrix(matrix)
    print(written(paths), file=sys.stderr)
    return 0
