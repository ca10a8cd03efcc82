"""The whole matrix of a transfer: several runs, each on the bodies of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents import Morphology
from snowflake.evaluation.extras import Extras, match_references
from snowflake.evaluation.fit import BOUND, Refusal, all_bodies, check_some_fit
from snowflake.evaluation.measure import Told
from snowflake.evaluation.prepare import base_settings, measure, prepare
from snowflake.evaluation.provenance import provenance
from snowflake.evaluation.results import BodyResult, Result
from snowflake.run import Run


@dataclass(frozen=True)
class Row:
    """One run of the matrix.

    Attributes:
        result: What was measured, a transfer of this run.
        method: Name of the method, as ``snowflake``.
        network: Name of the actor's network.
        trained_on: Names of the bodies that it was trained on.
        refused: Why it cannot play others, by name of the body.
    """

    result: Result
    method: str
    network: str
    trained_on: tuple[str, ...]
    refused: dict[str, Refusal]

    def cell(self, body: str) -> BodyResult | None:
        """What was measured on a body; None if the policy cannot play it."""
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
        for row in self.rows:
            for name, why in row.refused.items():
                if why.word != BOUND:
                    notes[f"{row.result.run} on {name}: {why.reason}."] = None
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
        UserError: A checkpoint is missing, no run can play a body of another, two bodies share a name, or a reference
            has none.
    """
    extras = extras or Extras()
    check_some_fit(runs, to, mlp_transfer=extras.mlp_transfer)
    bodies = all_bodies(runs, to)
    experts = match_references(extras.references, bodies)
    prepared = [prepare(run, checkpoint, bodies, extras) for run in runs]
    settings = base_settings(episodes, seed, num_threads, told)
    rows = tuple(
        Row(
            measure("transfer", one, settings, command, experts),
            one.run.config.method,
            one.run.config.policy.network,
            tuple(body.name for body in one.run.morphologies),
            one.refused,
        )
        for one in prepared
    )
    device = str(prepared[0].policy.device)
    return Matrix(rows, tuple(body.name for body in bodies), provenance(command, num_threads, device))
