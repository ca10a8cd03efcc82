"""What an evaluation may measure beside the returns, on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from agents import Morphology, UserError, model_hash
from snowflake.evaluation.measure import Measured, Settings, measure_policy
from snowflake.evaluation.results import POLICIES
from snowflake.evaluation.score import Expert
from snowflake.run import Run


@dataclass(frozen=True)
class Extras:
    """Options of a transfer.

    Attributes:
        mlp_transfer: Map flat policies to other bodies by node class and column, instead of refusing.
        references: Runs whose policies are the experts of the bodies that they were trained on.
        sibling_orders: Random orders of siblings to play each body in; 0 for none.
    """

    mlp_transfer: bool = False
    references: tuple[Run, ...] = ()
    sibling_orders: int = 0


def who(run: Run, checkpoint: str | int) -> str:
    """What tells the policy of a checkpoint from others."""
    return f"{run.path.resolve()}@{run.find_checkpoint(checkpoint).name}"


def default_checkpoint(run: Run) -> str:
    """``best`` where a run has it, else ``last``."""
    return "best" if "best" in run.index() else "last"


def match_references(references: Sequence[Run], bodies: Sequence[Morphology]) -> dict[str, list[tuple[Run, int]]]:
    """Find the experts of bodies: the reference runs that were trained on the same compiled model.

    Args:
        references: Reference runs.
        bodies: Bodies to be measured.

    Returns:
        By hash of the model: runs, with the index of the body among the run's own.

    Raises:
        UserError: A reference was trained on none of the bodies, or has no checkpoint.
    """
    hashes = {model_hash(body.compile()) for body in bodies}
    found: dict[str, list[tuple[Run, int]]] = {}
    for run in references:
        run.find_checkpoint(None)
        own = [(model_hash(body.compile()), k) for k, body in enumerate(run.morphologies)]
        matching = [(digest, k) for digest, k in own if digest in hashes]
        if not matching:
            names = ", ".join(body.name for body in run.morphologies)
            raise UserError(
                f"--reference {run.path}: was trained on {names}, which is none of the bodies to measure: leave it "
                "out, or add its body to --to"
            )
        for digest, k in matching:
            found.setdefault(digest, []).append((run, k))
    return found


def measure_expert(references: Sequence[tuple[Run, int]], settings: Settings) -> Expert:
    """Play the references of one body from the same start states as everything else.

    Args:
        references: Runs, with the index of the body among the run's own; their best checkpoints act, else the last.
        settings: Episodes, seeds and memory of the evaluation; each reference plays in its own environment.
    """
    returns: dict[str, list[np.ndarray]] = {way: [] for way in POLICIES}
    for run, k in references:
        found: dict[str, Measured] = measure_policy(
            run.load_policy(), k, run.morphologies[k], settings_of(run, settings), who=who(run, default_checkpoint(run))
        )
        for way, (batch, _) in found.items():
            returns[way].append(batch.returns)
    runs = tuple(str(run.path) for run, _ in references)
    return Expert(runs, {way: np.mean(x, axis=0) for way, x in returns.items()})


def settings_of(run: Run, settings: Settings) -> Settings:
    """The settings for another run: its own environments and limit, the same episodes, seeds and memory."""
    return replace(
        settings,
        max_episode_steps=run.config.env.max_episode_steps,
        make_env=partial(run.make_env, num_threads=settings.num_threads),
        task=task_key(run),
    )


def task_key(run: Run) -> str:
    """What decides the returns of zero action and random play on a body, beside the body: task and time limit."""
    trained = sorted({body.task for body in run.morphologies})
    return f"{trained} {run.config.task} {run.config.env}"
