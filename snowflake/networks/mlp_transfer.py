"""Carry a flat actor over to another body: its columns and outputs go to the nodes that correspond.

The way of NerveNet's MLP baseline (Wang et al. 2018), which matches joints by name; here a node is known by its class
and its rank among the nodes of that class, so that the second ankle of one body answers to the second of another.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch
from torch import Tensor

from snowflake.graph import MorphologyGraph
from snowflake.networks.log_std import map_log_std

NEW = -1
"""Entry of a map for what the source has not."""


def map_mlp(state_dict: Mapping[str, Tensor], source: MorphologyGraph, target: MorphologyGraph) -> dict[str, Tensor]:
    """Map the state dict of an `MLPActor` onto another body.

    A column of the observation that corresponds to one of the source keeps its weights and statistics; a new one has
    weights 0, mean 0 and variance 1. An actuator whose node corresponds keeps its output weights, bias and log-std; a
    new one has weights and bias 0, so its mean action is 0, and the mean log-std of its node class.

    Args:
        state_dict: of an `MLPActor` of `source`.
        source: the body that it was trained on.
        target: the body to map to.

    Returns:
        A new dict that loads into an `MLPActor` of `target`; equal to `state_dict` if the two bodies are.

    Raises:
        UserError: the two bodies' node classes differ.
    """
    columns = torch.tensor(corresponding_columns(source, target), dtype=torch.int64)
    controls = torch.tensor(corresponding_controls(source, target), dtype=torch.int64)
    mapped = map_log_std(state_dict, source, target)
    kept = controls != NEW
    mapped["log_std"][kept] = state_dict["log_std"][controls[kept]]
    first = "hidden.layers.0.weight"
    mapped[first] = _pick(state_dict[first].t(), columns, 0.0).t().contiguous()
    for name, new in (("normalizer.mean", 0.0), ("normalizer.var", 1.0)):
        mapped[name] = _pick(state_dict[name].t(), columns, new).t().contiguous()
    for name in ("output.weight", "output.bias"):
        mapped[name] = _pick(state_dict[name], controls, 0.0)
    return mapped


def corresponding_columns(source: MorphologyGraph, target: MorphologyGraph) -> list[int]:
    """Return the column of the source's observation for each of the target's (D_target entries), `NEW` for none."""
    have = {key: column for column, keys in enumerate(_column_keys(source)) for key in keys}
    return [next((have[key] for key in keys if key in have), NEW) for keys in _column_keys(target)]


def corresponding_controls(source: MorphologyGraph, target: MorphologyGraph) -> list[int]:
    """Return the control of the source for each of the target's (A_target entries), `NEW` for none."""
    have = {key: control for control, key in enumerate(_control_keys(source))}
    return [have.get(key, NEW) for key in _control_keys(target)]


def _pick(rows: Tensor, index: Tensor, new: float) -> Tensor:
    """Return `rows[index]`, with rows of `new` where the index is `NEW`."""
    picked = rows[index.clamp(min=0).to(rows.device)].clone()
    picked[(index == NEW).to(rows.device)] = new
    return picked


def _ranked(keys: list[Hashable]) -> list[tuple[Hashable, int]]:
    """Return each key with the number of equal ones before it."""
    seen: dict[Hashable, int] = {}
    ranked = []
    for key in keys:
        ranked.append((key, seen.get(key, 0)))
        seen[key] = seen.get(key, 0) + 1
    return ranked


def _node_keys(graph: MorphologyGraph) -> list[tuple[Hashable, int]]:
    return _ranked([graph.vocabulary[kind] for kind in graph.node_class])


def _control_keys(graph: MorphologyGraph) -> list[tuple[Hashable, int]]:
    nodes = _node_keys(graph)
    return _ranked([nodes[node] for node in graph.output_node])


def _column_keys(graph: MorphologyGraph) -> list[list[Hashable]]:
    """Return what each column is, as (what reads it, which feature); two nodes may read one column."""
    keys: list[list[Hashable]] = [[] for _ in range(graph.obs_dim)]
    nodes = _node_keys(graph)
    for node, columns in enumerate([graph.root_columns, *graph.joint_columns]):
        for feature, column in enumerate(columns):
            if column >= 0:
                keys[column].append((nodes[node], feature))
    for control, column in zip(_control_keys(graph), graph.act_columns, strict=False):
        if column >= 0:
            keys[column].append((control, "act"))
    unseen = graph.unseen_columns
    for rank, column in enumerate(unseen):  # constants of the world, which every body has alike
        keys[column].append(("unseen", len(unseen), rank))
    return keys
