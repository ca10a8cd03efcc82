"""Which policies can play which bodies, known from the graphs alone: before torch is loaded and anything is played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents import Morphology, UserError, model_hash
from snowflake.run import Run

BOUND = "bound to its body"
"""What stands in a cell of a flat policy on another body, without a map."""

MISFIT = "reads other features"
"""What stands in a cell of a policy on a body that its feature set does not describe."""


@dataclass(frozen=True)
class Refusal:
    """Why a policy cannot play a body.

    Attributes:
        word: `BOUND` or `MISFIT`.
        reason: The whole reason, and what to do.
    """

    word: str
    reason: str


def refusal(run: Run, body: Morphology, *, mlp_transfer: bool = False) -> Refusal | None:
    """Say why a run's policy cannot play a body, None if it can.

    Args:
        run: The run.
        body: One of its own bodies, or another.
        mlp_transfer: Flat policies are mapped by node class and column.

    Raises:
        UserError: The body has the name of one of the run's own and is another model.
    """
    if run.own_index(body) is not None:
        return None
    if run.config.policy.network == "mlp" and not mlp_transfer:
        return Refusal(
            BOUND,
            f"the mlp policy is bound to its body {run.morphologies[0].name!r}: train a graph policy (--method "
            "snowflake or nervenet) to transfer, or map this one by node class with "
            "`snowflake transfer --mlp-transfer`",
        )
    try:
        run.graphs[0].check_compatible(run.graph_of(body))
    except UserError as error:
        return Refusal(MISFIT, str(error))
    return None


def check_fit(run: Run, bodies: Sequence[Morphology], *, mlp_transfer: bool = False) -> None:
    """Require that a run's policy can play every one of these bodies.

    Raises:
        UserError: It cannot play one; the reason.
    """
    for body in bodies:
        if found := refusal(run, body, mlp_transfer=mlp_transfer):
            raise UserError(f"{run.path}: {found.reason}")


def check_some_fit(runs: Sequence[Run], to: Sequence[Morphology], *, mlp_transfer: bool = False) -> None:
    """Require that some of these runs can play a body that it was not trained on, unless there is no such body.

    Raises:
        UserError: None can; the reason of the first.
    """
    bodies = all_bodies(runs, to)
    others = [(run, body) for run in runs for body in bodies if run.own_index(body) is None]
    first: UserError | None = None
    for run, body in others:
        found = refusal(run, body, mlp_transfer=mlp_transfer)
        if found is None:
            return
        first = first or UserError(f"no run can play a body of another: {run.path}: {found.reason}")
    if first is not None:
        raise first


def all_bodies(runs: Sequence[Run], to: Sequence[Morphology]) -> tuple[Morphology, ...]:
    """All bodies, the runs' own first, each once.

    Raises:
        UserError: Two different ones share a name.
    """
    bodies: dict[str, Morphology] = {}
    for body in (*(body for run in runs for body in run.morphologies), *to):
        first = bodies.setdefault(body.name, body)
        if first != body and model_hash(first.compile()) != model_hash(body.compile()):
            raise UserError(
                f"two different bodies are called {body.name!r}, of {', '.join(str(run.path) for run in runs)} and "
                "--to: rename one of the files, or measure them apart"
            )
    return tuple(bodies.values())
