"""The log standard deviation of the action: one entry per node class, or one per actuator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from agents.errors import UserError
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph


def initial_log_std(graphs: Sequence[MorphologyGraph], config: PolicyConfig) -> Tensor:
    """Return the initial values: (classes,) for `per_class`, (A,) for `per_actuator`, float32.

    Raises:
        UserError: `per_actuator` with several bodies.
    """
    if config.log_std == "per_class":
        return torch.full((len(graphs[0].vocabulary),), config.log_std_init)
    if len(graphs) > 1:
        names = ", ".join(graph.name for graph in graphs)
        raise UserError(
            f"policy.log_std = 'per_actuator' serves one body, not {names}: set policy.log_std to 'per_class'"
        )
    return torch.full((graphs[0].act_dim,), config.log_std_init)


def map_log_std(
    state_dict: Mapping[str, Tensor], source: MorphologyGraph, target: MorphologyGraph
) -> dict[str, Tensor]:
    """Map the state dict of a `per_actuator` actor onto another body.

    An actuator of the target gets the mean log-std of the source's actuators on joints of the same node class; a class
    that the source does not actuate gets the mean over all of the source's.

    Args:
        state_dict: of an actor of `source` with `log_std` (A_source,).
        source: the body that it was trained on.
        target: the body to map to.

    Returns:
        A new dict, the same but for `log_std` (A_target,).

    Raises:
        UserError: the two bodies' node classes differ, or the log-std is not the source's per-actuator one.
    """
    log_std = state_dict["log_std"]
    if source.vocabulary != target.vocabulary:
        raise UserError(f"cannot map the log-std of {source.name} onto {target.name}: their node classes differ")
    if log_std.shape != (source.act_dim,):
        raise UserError(
            f"cannot map a log-std of shape {tuple(log_std.shape)} from {source.name}, which has {source.act_dim} "
            "actuators: it is not a per-actuator one"
        )
    source_class, target_class = (torch.tensor(g.node_class[g.output_node]) for g in (source, target))
    mapped = log_std.new_empty(target.act_dim)
    for index, kind in enumerate(target_class):
        same = log_std[(source_class == kind).to(log_std.device)]
        mapped[index] = (same if len(same) else log_std).mean()
    return {**state_dict, "log_std": mapped}
