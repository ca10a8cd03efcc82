"""Bodies to evaluate on, by name; imports no torch, so that a misspelt name is told at once."""

from __future__ import annotations

from collections.abc import Sequence

from agents import Morphology, UserError, load
from snowflake.config.body_sets import expand_sets


def load_bodies(names: Sequence[str]) -> tuple[Morphology, ...]:
    """Load bodies, each once, in the order given.

    Args:
        names: Names of bodies, and body sets (``set:NAME/SPLIT``).

    Raises:
        UserError: A body or set is unknown, a body has no task yet, or two different ones have one name.
    """
    bodies: dict[str, Morphology] = {}
    for body in map(load, expand_sets(names)):
        if bodies.setdefault(body.name, body) != body:
            raise UserError(f"two bodies are called {body.name!r}: rename one of the files, or measure them apart")
    for body in bodies.values():
        if not body.task:
            raise UserError(f"body {body.name!r} has no task yet: choose one of a family that has, like centipede-8")
    return tuple(bodies.values())
