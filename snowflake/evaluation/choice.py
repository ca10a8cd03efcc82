"""Which bodies a user means: those of the run by their short names, any other by name or path."""

from __future__ import annotations

from collections.abc import Sequence

from agents import Morphology, UserError
from agents.variation import split_name, vary
from snowflake.config.body_sets import expand_sets
from snowflake.evaluation.bodies import load_bodies
from snowflake.run import Run


def choose_bodies(run: Run | Sequence[Run], names: Sequence[str]) -> tuple[Morphology, ...]:
    """Load the bodies that names stand for, each once, in the order given.

    A run keeps the bodies that it was trained on, files included, so its own and their variations are known by their
    short names wherever the command runs.

    Args:
        run: The run, or several; the first that has a body of a name gives it.
        names: Names of bodies, or paths of files.

    Raises:
        UserError: A body is unknown or has no task, or two different ones have one name.
    """
    runs = (run,) if isinstance(run, Run) else run
    trained = [body for one in runs for body in one.morphologies]
    chosen: dict[str, Morphology] = {}
    for name in expand_sets(names):
        own = own_body(trained, name)
        for body in load_bodies([name]) if own is None else (own,):
            if chosen.setdefault(body.name, body) != body:
                raise UserError(f"two bodies are called {body.name!r}: rename one of the files, or measure them apart")
    return tuple(chosen.values())


def own_body(trained: Sequence[Morphology], name: str) -> Morphology | None:
    """Return the body that a name means among those of a run, or a variation of one; None if it is none of them.

    Args:
        trained: Bodies of a run, or of several; the first of a name gives it.
        name: ``"bot"``, or ``"bot+mass=2"`` where the run was trained on ``bot`` or another variation of it.

    Raises:
        UserError: It is one of them, and cannot be varied so.
    """
    known = {body.name: body for body in reversed(trained)}
    if name in known:
        return known[name]
    known = {body.unvaried.name: body.unvaried for body in reversed(trained)} | known
    unvaried, changes = split_name(name)
    return vary(known[unvaried], changes, name) if unvaried in known else None
