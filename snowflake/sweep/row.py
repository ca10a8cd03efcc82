"""The row of a cell: everything that a report needs, and nothing that differs when the cell is run again."""

from __future__ import annotations

from typing import Any

from snowflake.evaluation.curves import read_curves
from snowflake.evaluation.results import LABELS, BodyResult, Result
from snowflake.freezing import rows
from snowflake.policy import GraphActorCriticPolicy
from snowflake.run import Run
from snowflake.sweep.cells import Cell

FORMAT = 1
"""Version of the row's form."""

SIGNIFICANT_DIGITS = 7
"""Digits of the curves' values, which TensorBoard keeps in single precision."""


def make_row(cell: Cell, run: Run, policy: GraphActorCriticPolicy, result: Result) -> dict[str, Any]:
    """Put the row of a finished cell together.

    Args:
        cell: The cell.
        run: Its finished run.
        policy: Its policy, for the parameter counts.
        result: The measurement: the run's own bodies, and perhaps others, zero-shot.
    """
    own = [_body(body) for body in result.bodies if not body.zero_shot]
    others = [_body(body) for body in result.bodies if body.zero_shot]
    measured = {
        "checkpoint": result.checkpoint,
        "step": result.trained_steps,
        "episodes": result.episodes,
        "seed": result.seed,
    }
    parts = rows(policy.actor)
    mapped = cell.config.policy.network == "mlp"  # by node class and column, or it could not act on another body
    return {
        "format": FORMAT,
        "study": cell.study,
        "cell": cell.name,
        "variant": cell.variant,
        "method": cell.config.method,
        "overrides": cell.overrides,
        "agents": [morphology.name for morphology in run.morphologies],
        "seed": cell.config.seed,
        "total_timesteps": cell.config.total_timesteps,
        "parameters": {
            "total": sum(part.parameters for part in parts),
            "trainable": sum(part.parameters for part in parts if part.trainable),
        },
        "nodes": {graph.name: graph.num_nodes for graph in policy.graphs},
        "curves": _curves(run),
        "final": {**measured, "bodies": own},
        "transfer": {**measured, "mlp_mapped": mapped, "bodies": others} if others else None,
        "commands": [cell.command],
        "versions": result.provenance["versions"],
        "hardware": result.provenance["hardware"],
    }


def _body(body: BodyResult) -> dict[str, Any]:
    policies = {}
    for way in LABELS:
        episodes = body.episodes[way]
        policies[way] = {
            "returns": [round(float(x), 3) for x in episodes.returns],
            "lengths": episodes.lengths.tolist(),
            "distance": [round(float(x), 3) for x in episodes.distance],
            "falls": int(episodes.fell.sum()),
        }
    return {"morphology": body.morphology, "zero_shot": body.zero_shot, "policies": policies}


def _curves(run: Run) -> dict[str, Any]:
    """Every logged scalar but those about time."""
    return {
        tag: {
            "steps": curve.steps.tolist(),
            "values": [float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in curve.values],
        }
        for tag, curve in sorted(read_curves(run.path, None).items())
        if not tag.startswith("time/")
    }
