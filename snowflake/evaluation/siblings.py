"""The same body with its sibling limbs in another order: nothing moves but the numbers by which parts are known.

A policy that knows a limb by its place in the observation is at the mercy of that order; a graph policy is not.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from envs.observation import BODY, JOINT, ObservationLayout
from snowflake.evaluation.rollout import Controller
from snowflake.graph import MorphologyGraph

MIN_RETURN = 1e-6
"""Absolute return below which no change is given as a share of it."""


@dataclass(frozen=True)
class SiblingOrders:
    """A policy under random orders of siblings, mean action in float64, from the start states of the original order.

    Attributes:
        original: Mean return in the original order.
        returns: (orders,) float64, mean return in each order.
        action_change: (orders,) float64, largest absolute change of an action over the start states.
    """

    original: float
    returns: np.ndarray
    action_change: np.ndarray

    @property
    def drops(self) -> np.ndarray:
        """(orders,) drop of the mean return in percent of the original's size; NaN where that is 0."""
        size = abs(self.original)
        return 100.0 * (self.original - self.returns) / (size if size >= MIN_RETURN else math.nan)

    @property
    def worst_decile(self) -> float:
        """Drop that one order in ten reaches or exceeds, in percent (the 90th percentile)."""
        return float(np.percentile(self.drops, 90))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "original": self.original,
            "returns": self.returns.tolist(),
            "action_change": self.action_change.tolist(),
            "drop_percent": {"mean": float(self.drops.mean()), "worst_decile": self.worst_decile},
        }


@dataclass(frozen=True)
class Reordered:
    """A controller that reads the columns of an observation in another order.

    Attributes:
        controller: Maps observations in the new order to actions.
        columns: (D,) column of the given observation that stands at each place of the new one.
    """

    controller: Controller
    columns: np.ndarray

    def begin(self) -> None:
        """See ``Controller``."""
        begin = getattr(self.controller, "begin", None)
        if begin is not None:
            begin()

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Actions (N, A) for observations (N, D)."""
        return self.controller(obs[:, self.columns])


def reorder_siblings(
    graph: MorphologyGraph, model: mujoco.MjModel, layout: ObservationLayout, generator: np.random.Generator
) -> tuple[MorphologyGraph, np.ndarray]:
    """Shuffle the children of every body, as if the model's file had listed them in another order.

    Bodies and joints are numbered anew, depth first as MuJoCo does it; the observation's columns follow their owners.
    Actuators keep their order, which a file gives apart from the bodies.

    Args:
        graph: Graph of the body.
        model: Its compiled model.
        layout: What its columns are.
        generator: Source of the order.

    Returns:
        The graph in the new order, and the column of the original observation at each place of the new one, (D,).
    """
    bodies = _shuffled_bodies(model, generator)
    joints = np.concatenate([np.flatnonzero(model.jnt_bodyid == body) for body in bodies])
    columns = _column_order(layout, np.argsort(bodies), np.argsort(joints))
    return _renumber(graph, np.argsort(joints), np.argsort(columns)), columns


def _shuffled_bodies(model: mujoco.MjModel, generator: np.random.Generator) -> np.ndarray:
    """Return old body ids in their new order: depth first, the children of each body shuffled but for the world's."""
    order, stack = [], [0]
    while stack:
        body = stack.pop()
        order.append(body)
        children = np.flatnonzero(model.body_parentid == body)
        children = children[children != 0]
        stack += (generator.permutation(children) if body else children[::-1]).tolist()
    return np.array(order)


def _column_order(layout: ObservationLayout, body: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """Return old columns in their new order. A section, like all positions, keeps its place; its owners change theirs.

    Args:
        layout: The columns.
        body: New id of each body.
        joint: New id of each joint.
    """
    kind, owner = layout.owner_kind.astype(int), layout.owner_id.astype(int)
    starts = (np.diff(kind) != 0) | (np.diff(owner) < 0)
    section = np.concatenate([[0], np.cumsum(starts)])
    new = owner.copy()
    new[kind == JOINT] = joint[owner[kind == JOINT]]
    new[kind == BODY] = body[owner[kind == BODY]]
    return np.lexsort((np.arange(layout.size), new, section))


def _renumber(graph: MorphologyGraph, joint: np.ndarray, column: np.ndarray) -> MorphologyGraph:
    """Return the graph under new numbers.

    Args:
        graph: The graph.
        joint: New id of each joint.
        column: New place of each column.
    """
    order = np.concatenate([[0], 1 + np.argsort(joint[graph.joint_id[1:]])])  # old nodes in their new order
    node = np.argsort(order)

    def moved(columns: np.ndarray) -> np.ndarray:
        return np.where(columns < 0, columns, column[columns])

    attachment = np.stack([graph.attachment[0], node[graph.attachment[1]]])
    pairs = np.lexsort(attachment[::-1])
    return dataclasses.replace(
        graph,
        node_class=graph.node_class[order],
        joint_id=np.concatenate([[-1], np.sort(joint[graph.joint_id[1:]])]),
        edge_index=node[graph.edge_index],
        root_columns=moved(graph.root_columns),
        joint_columns=moved(graph.joint_columns[order[1:] - 1]),
        output_node=node[graph.output_node],
        act_columns=moved(graph.act_columns),
        shared_act=np.stack([node[graph.shared_act[0]], moved(graph.shared_act[1])]),
        attachment=attachment[:, pairs],
        attachment_weight=graph.attachment_weight[pairs],
        joint_static=graph.joint_static[order[1:] - 1] if graph.joint_static.size else graph.joint_static,
    )
