"""The graph critic: read-outs, sizes, several bodies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks import GraphCritic, build_critic

GraphOf = Callable[[str], MorphologyGraph]


def graph_critic(*graphs: MorphologyGraph, seed: int = 0, **config: object) -> GraphCritic:
    critic = build_critic(graphs, PolicyConfig(critic="graph", **config), torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
    assert isinstance(critic, GraphCritic)
    return critic


def test_parameter_count_and_components(graph_of: GraphOf) -> None:
    critic = graph_critic(graph_of("centipede-6"))
    counts = {c: sum(p.numel() for p in critic.component_parameters(c).values()) for c in critic.components}
    assert counts == {"encoder": 1_056, "message": 12_480, "update": 49_536, "decoder": 8_385}
    assert sum(counts.values()) == sum(p.numel() for p in critic.parameters())


@pytest.mark.parametrize("readout", ["mean", "sum", "root"])
def test_readouts(readout: str, graph_of: GraphOf, observations: Callable[..., Tensor]) -> None:
    graph = graph_of("centipede-6")
    critic = graph_critic(graph, critic_readout=readout)
    obs = observations(graph, 5)
    states = critic.final_states(critic.prepare(obs, 0), 0)
    assert states.shape == (17, 5, 64)
    pooled = {"mean": states.sum(dim=0) / 17, "sum": states.sum(dim=0), "root": states[0]}[readout]
    torch.testing.assert_close(critic.value(obs, 0), critic.decoder(pooled)[:, 0])


def test_several_bodies_share_the_weights(graph_of: GraphOf, observations: Callable[..., Tensor]) -> None:
    short, long = graph_of("centipede-4"), graph_of("centipede-12")
    both = graph_critic(short, long)
    both.update_normalizer(observations(long, 20), 1)
    obs = observations(short, 5)
    alone = graph_critic(short, seed=1)
    alone.load_state_dict(both.state_dict(), strict=True)
    torch.testing.assert_close(both.value(obs, 0), alone.value(obs, 0))
    assert both.value(observations(long, 3), 1).shape == (3,)
