"""Which bodies a user means: those of the run by their short names, any other by name or path."""

from __future__ import annotations

from collections.abc import Sequence

from agents import Morphology, UserError
from snowflake.evaluation.bodies import load_bodies
from snowflake.run import Run


def choose_bodies(run: Run | Sequence[Run], names: Sequence[str]) -> tuple[Morphology, ...]:
    """Load the bodies that names stand for, each once, in the order given.

    A run keeps the bodies that it was trained on, files included, so its own are known by their short names wherever
    the command runs.

    Args:
        run: The run, or several; the first that has a body of a name gives it.
        names: Names of bodies, or paths of files.

    Raises:
        UserError: A body is unknown or has no task, or two different ones have one name.
    """
    runs = (run,) if isinstance(run, Run) else run
    own = {body.name: body for one in reversed(runs) for body in one.morphologies}
    chosen: dict[str, Morphology] = {}
    for name in names:
        for body in (own[name],) if name in own else load_bodies([name]):
            if chosen.setdefault(body.name, body) != body:
                raise UserError(f"two bodies are called {body.name!r}: rename one of the files, or measure them apart")
    return tuple(chosen.values())
