"""Evaluate a run on its bodies, or on bodies that it never saw, and put the result into its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents import Morphology, UserError
from snowflake.evaluation.curves import read_curves
from snowflake.evaluation.extras import Extras, match_references
from snowflake.evaluation.figures import evaluation_figure, render, transfer_figure
from snowflake.evaluation.files import output_folder, to_csv, to_json, write_files
from snowflake.evaluation.fit import check_fit
from snowflake.evaluation.measure import Told
from snowflake.evaluation.prepare import base_settings, measure, prepare
from snowflake.evaluation.results import Result
from snowflake.evaluation.robustness import robustness_figure
from snowflake.run import Run

EPISODES = 20
"""Episodes per body and way to act, unless said otherwise."""

SEED = 1000
"""Seed of the first start state, unless said otherwise; training starts from its own seed, 0 by default."""


def evaluate_run(
    run: Run,
    checkpoint: str | int | None = None,
    *,
    episodes: int = EPISODES,
    seed: int = SEED,
    agents: Sequence[Morphology] | None = None,
    num_threads: int = 0,
    command: str = "",
    told: Told | None = None,
) -> Result:
    """Evaluate a checkpoint on its own bodies, or on those in ``agents``.

    Args:
        run: The run.
        checkpoint: ``best``, ``last`` or a step; None takes ``best``, else ``last``.
        episodes: Episodes per body and way to act.
        seed: Seed of the first start state; the ways to act share their start states.
        agents: Bodies; the run's own if None. A body that the run was not trained on is played zero-shot.
        num_threads: Physics threads; 0 takes every core.
        command: Command line, for the record.
        told: Called after each control step with body, way to act, step and episodes ended.

    Raises:
        UserError: No such checkpoint, or it does not fit a body.
    """
    bodies = run.morphologies if agents is None else tuple(agents)
    settings = base_settings(episodes, seed, num_threads, told)
    check_fit(run, bodies)
    return measure("evaluation", prepare(run, checkpoint, bodies, Extras()), settings, command)


def transfer_run(
    run: Run,
    to: Sequence[Morphology],
    checkpoint: str | int | None = None,
    *,
    episodes: int = EPISODES,
    seed: int = SEED,
    num_threads: int = 0,
    command: str = "",
    told: Told | None = None,
    extras: Extras | None = None,
) -> Result:
    """Play a checkpoint on other bodies without training (zero-shot); the run's own bodies come first.

    Args:
        run: The run.
        to: Bodies to play on.
        checkpoint: ``best``, ``last`` or a step; None takes ``best``, else ``last``.
        episodes: Episodes per body and way to act.
        seed: Seed of the first start state; the ways to act share their start states.
        num_threads: Physics threads; 0 takes every core.
        command: Command line, for the record.
        told: Called after each control step with body, way to act, step and episodes ended.
        extras: What to measure beside, and whether to map a flat policy.

    Raises:
        UserError: No such checkpoint, it does not fit a body, no body is given, or a reference has none of the bodies.
    """
    others = tuple(body for body in to if run.own_index(body) is None)
    if not others:
        own = ", ".join(sorted(body.name for body in run.morphologies))
        raise UserError(f"--to names no body beside the run's own ({own}): name another one")
    extras, bodies = extras or Extras(), (*run.morphologies, *others)
    experts = match_references(extras.references, bodies)
    settings = base_settings(episodes, seed, num_threads, told)
    check_fit(run, bodies, mlp_transfer=extras.mlp_transfer)
    return measure("transfer", prepare(run, checkpoint, bodies, extras), settings, command, experts)


def write_result(result: Result, run: Run, output: Path | None = None) -> tuple[tuple[Path, ...], str | None]:
    """Write the JSON, CSV and PNG of a result into the run folder, or elsewhere if that cannot be.

    A transfer to bodies that are varied in one key gets ``robustness.png`` too.

    Args:
        result: The result.
        run: The run that it belongs to.
        output: Folder of the user's choice.

    Returns:
        The paths, and a line to print when the folder is neither the run's nor the user's choice.

    Raises:
        UserError: The folder cannot be written.
    """
    folder, note = output_folder(run.path, output)
    contents: dict[str, str | bytes] = {f"{result.kind}.json": to_json(result), f"{result.kind}.csv": to_csv(result)}
    if result.kind == "transfer":
        contents["transfer.png"] = render(transfer_figure(result))
        curves = robustness_figure([result])
        if curves is not None:
            contents["robustness.png"] = render(curves)
    else:
        contents[f"{result.kind}.png"] = render(evaluation_figure(result, read_curves(run.path)))
    return write_files(folder, contents), note
