"""Evaluate a run on its bodies, or on bodies that it never saw, and put the result into its folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agents import Morphology, UserError
from snowflake.evaluation.curves import read_curves
from snowflake.evaluation.figures import evaluation_figure, render, transfer_figure
from snowflake.evaluation.files import is_packaged, output_folder, write
from snowflake.evaluation.measure import Settings, Told, measure_body
from snowflake.evaluation.provenance import provenance
from snowflake.evaluation.results import BodyResult, Result
from snowflake.run import PRETRAINED, Run

if TYPE_CHECKING:
    from snowflake.policy import GraphActorCriticPolicy

EPISODES = 20
"""Episodes per body and way to act, unless said otherwise."""

SEED = 1000
"""Seed of the first start state, unless said otherwise; training starts from its own seed, 0 by default."""

CRITIC_NOTE = "Zero-shot: the actor's weights and statistics as trained; the critic stays behind, acting needs none."


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
    settings = _settings(run, episodes, seed, num_threads, told)
    return _measure("evaluation", run, checkpoint, bodies, settings, command)


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

    Raises:
        UserError: No such checkpoint, it does not fit a body, or no body is given.
    """
    others = tuple(body for body in to if run.own_index(body) is None)
    if not others:
        own = ", ".join(sorted(body.name for body in run.morphologies))
        raise UserError(f"--to names no body beside the run's own ({own}): name another one")
    settings = _settings(run, episodes, seed, num_threads, told)
    return _measure("transfer", run, checkpoint, (*run.morphologies, *others), settings, command)


def _settings(run: Run, episodes: int, seed: int, num_threads: int, told: Told | None) -> Settings:
    make_env = partial(run.make_env, num_threads=num_threads)
    return Settings(episodes, seed, run.config.env.max_episode_steps, make_env, num_threads, told)


def _measure(
    kind: str,
    run: Run,
    checkpoint: str | int | None,
    bodies: Sequence[Morphology],
    settings: Settings,
    command: str,
) -> Result:
    if checkpoint is None:
        checkpoint = "best" if "best" in run.index() else "last"
    policy = run.load_policy(checkpoint)
    # Every body is checked before the first episode: a misfit must not cost the minutes of those before it.
    players: list[tuple[Morphology, GraphActorCriticPolicy, int, bool]] = []
    for body in bodies:
        k = run.own_index(body)
        if k is None:
            players.append((body, policy.for_bodies([run.graph_of(body)]), 0, True))
        else:
            players.append((run.morphologies[k], policy, k, False))
    results: list[BodyResult] = [
        measure_body(player, k, body, settings, zero_shot=zero_shot) for body, player, k, zero_shot in players
    ]
    return Result(
        kind=kind,
        run=PRETRAINED + run.name if is_packaged(run.path) else str(run.path),
        checkpoint=str(checkpoint),
        trained_steps=int(run.find_checkpoint(checkpoint).name.removeprefix("step_")),
        episodes=settings.episodes,
        seed=settings.seed,
        max_episode_steps=settings.max_episode_steps,
        bodies=tuple(results),
        provenance=provenance(command, settings.num_threads, str(policy.device)),
        notes=(CRITIC_NOTE,) if any(r.zero_shot for r in results) else (),
    )


def write_result(result: Result, run: Run, output: Path | None = None) -> tuple[tuple[Path, ...], str | None]:
    """Write the JSON, CSV and PNG of a result into the run folder, or elsewhere if that cannot be.

    Args:
        result: The result.
        run: The run that it belongs to.
        output: Folder of the user's choice.

    Returns:
        The three paths, and a line to print when the folder is neither the run's nor the user's choice.

    Raises:
        UserError: The folder cannot be written.
    """
    folder, note = output_folder(run.path, output)
    if result.kind == "transfer":
        figure = transfer_figure(result)
    else:
        figure = evaluation_figure(result, read_curves(run.path))
    return write(result, folder, render(figure)), note
