"""The row of a cell: everything that a report needs, and nothing that differs when the cell is run again."""

from __future__ import annotations

from typing import Any

from snowflake.evaluation.curves import read_curves
from snowflake.evaluation.results import LABELS, BodyResult, Result
from snowflake.freezing import rows
from snowflake.numerics.config import OPERANDS
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
    parts, curves = rows(policy.actor), _curves(run)
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
        "numerics": _numerics(cell, curves),
        "curves": curves,
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


def _numerics(cell: Cell, curves: dict[str, Any]) -> dict[str, Any]:
    """How the run was computed: largest ratio errors of all updates, and mean shares of the formats in each network."""

    def values(tag: str) -> list[float]:
        return curves.get(tag, {"values": []})["values"]

    shares = {
        network: {
            what: {
                tag.rpartition("/")[2]: sum(curves[tag]["values"]) / len(curves[tag]["values"])
                for tag in curves
                if tag.startswith(f"numerics/{network}/share/{what}/")
            }
            for what in ("operands", "flops")
        }
        for network in ("actor", "critic")
    }
    return {
        "precision": cell.config.precision,
        "parametrization": cell.config.policy.parametrization,
        "first_ratio_error": max(values("snowflake/first_ratio_error"), default=0.0),
        "rollout_ratio_error": max(values("snowflake/rollout_ratio_error"), default=0.0),
        "skipped_steps": int(max(values("numerics/skipped_steps"), default=0.0)),
        "shares": shares if cell.config.precision != "fp32" else {},
    }


def _curves(run: Run) -> dict[str, Any]:
    """Every logged scalar but those about time and about single operands, of which there are a thousand."""
    return {
        tag: {
            "steps": curve.steps.tolist(),
            "values": [float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in curve.values],
        }
        for tag, curve in sorted(read_curves(run.path, None).items())
        if not tag.startswith("time/") and not _about_operand(tag)
    }


def _about_operand(tag: str) -> bool:
    parts = tag.split("/")
    return parts[0] == "numerics" and parts[-2] in OPERANDS and parts[2] != "log2_scale"
