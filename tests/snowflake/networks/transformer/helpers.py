"""Graphs, networks and observations that the tests of the transformer share."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

import agents
from envs.observation import paper_layout
from snowflake.config.attention import AttentionConfig
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.networks import TransformerActor
from snowflake.networks.init import Initializer
from snowflake.networks.transformer.attention import Attention
from snowflake.networks.transformer.structure import BodyStructures, Structure
from tests.snowflake.graph.models import from_xml, general_graph

DRONE = (
    '<body><freejoint/><geom size="0.1"/><site name="p" pos="1 0 0"/><site name="q" pos="-1 0 0"/></body>',
    '<motor site="p" gear="0 0 1 0 0 0.1"/><motor site="q" gear="0 0 1 0 0 -0.1"/>',
)
"""A robot without joints: its graph is one node."""


@cache
def graph_of(name: str) -> MorphologyGraph:
    """The paper graph of a Centipede, the general graph of any other body."""
    if name == "drone":
        return from_xml(*DRONE)[1]
    morphology = agents.load(name)
    model = morphology.compile()
    if name.startswith("centipede"):
        return build_graph(model, paper_layout(model), morphology.node_class(model), name)
    return general_graph(model, name)


def actor_of(*names: str | MorphologyGraph, seed: int = 0, hidden_size: int = 16, **attention: Any) -> TransformerActor:
    """A small actor; further keywords are the attention's."""
    config = PolicyConfig(network="transformer", hidden_size=hidden_size, attention=AttentionConfig(**attention))
    graphs = [graph_of(name) if isinstance(name, str) else name for name in names]
    return TransformerActor(graphs, config, torch.Generator().manual_seed(seed))


def draw(graph: MorphologyGraph, rows: int, seed: int = 0) -> Tensor:
    """Random observations (rows, D)."""
    return torch.randn(rows, graph.obs_dim, generator=torch.Generator().manual_seed(seed))


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attention_of(width: int = 8, masked: bool = False, seed: int = 0, **config: Any) -> Attention:
    """One attention in float64, hop biases drawn so that they matter."""
    init = Initializer("independent", torch.Generator().manual_seed(seed))
    attention = Attention(width, AttentionConfig(**config), masked, init).double()
    if attention.hop_bias is not None:
        attention.hop_bias.data = normal(*attention.hop_bias.shape, seed=seed + 1)
    return attention


def chain(nodes: int) -> MorphologyGraph:
    """A graph of nodes in a row, the root at one end, all joints of one class, one observed number and motor each."""
    links = np.array([[i, i + 1] for i in range(nodes - 1)]).reshape(-1, 2).T
    return MorphologyGraph(
        name=f"chain-{nodes}",
        vocabulary=("root", "joint"),
        feature_set="paper",
        obs_dim=nodes,
        act_dim=nodes - 1,
        node_type=np.minimum(np.arange(nodes), 1),
        node_class=np.minimum(np.arange(nodes), 1),
        joint_id=np.arange(nodes) - 1,
        edge_index=np.concatenate([links, links[::-1]], axis=1),
        root_columns=np.array([0]),
        joint_columns=np.arange(1, nodes)[:, None],
        output_node=np.arange(1, nodes),
    )


def renumbered(graph: MorphologyGraph, order: np.ndarray) -> MorphologyGraph:
    """The same body whose joint nodes are numbered in another order; columns and motors stay as they are.

    Args:
        graph: the body.
        order: old node of each new one, (V,), 0 first.
    """
    new = np.argsort(order)
    changes: dict[str, Any] = {
        "node_type": graph.node_type[order],
        "node_class": graph.node_class[order],
        "joint_id": graph.joint_id[order],
        "joint_columns": graph.joint_columns[order[1:] - 1],
        "edge_index": new[graph.edge_index],
        "output_node": new[graph.output_node],
    }
    if graph.feature_set == "general":
        changes["joint_static"] = graph.joint_static[order[1:] - 1]
        changes["attachment"] = np.stack([graph.attachment[0], new[graph.attachment[1]]])
        changes["shared_act"] = np.stack([new[graph.shared_act[0]], graph.shared_act[1]])
    return dataclasses.replace(graph, **changes)


def structure_of(graph: MorphologyGraph, max_hops: int = 8) -> Structure:
    """What attention knows of a body."""
    return BodyStructures([graph], max_hops).one(0, None)
