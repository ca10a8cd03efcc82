"""The flat networks: sizes, formulas, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.errors import UserError
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks import FlatCritic, MLPActor, Network, build_actor, build_critic

GraphOf = Callable[[str], MorphologyGraph]


def flat_actor(*graphs: MorphologyGraph, **config: object) -> MLPActor:
    actor = build_actor(graphs, PolicyConfig(network="mlp", **config), torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert isinstance(actor, MLPActor)
    return actor


def flat_critic(*graphs: MorphologyGraph) -> FlatCritic:
    critic = build_critic(graphs, PolicyConfig(critic="flat"), torch.Generator().manual_seed(0))
    assert isinstance(critic, FlatCritic)
    return critic


@pytest.mark.parametrize(
    ("name", "actor_count", "critic_count"), [("centipede-6", 14_176, 13_185), ("centipede-20", 35_764, 32_001)]
)
def test_parameter_counts(name: str, actor_count: int, critic_count: int, graph_of: GraphOf) -> None:
    graph = graph_of(name)
    assert sum(p.numel() for p in flat_actor(graph).parameters()) == actor_count
    assert sum(p.numel() for p in flat_critic(graph).parameters()) == critic_count


@pytest.mark.parametrize("make", [flat_actor, flat_critic])
def test_every_parameter_is_in_one_component(make: Callable[..., Network], graph_of: GraphOf) -> None:
    network = make(graph_of("centipede-4"))
    names = [name for component in network.components for name in network.component_parameters(component)]
    assert sorted(names) == sorted(name for name, _ in network.named_parameters())


def numpy_mlp(network: Network, obs: np.ndarray) -> np.ndarray:
    weights = {name: value.double().numpy() for name, value in network.state_dict().items()}
    x = (obs - weights["normalizer.mean"]) / np.sqrt(np.maximum(weights["normalizer.var"], 0.01) + 1e-6)
    x = np.clip(x, -5, 5)
    for name in ("hidden.layers.0", "hidden.layers.1"):
        x = np.tanh(x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])
    return x @ weights["output.weight"].T + weights["output.bias"]


def test_values_against_the_formulas(graph_of: GraphOf, observations: Callable[..., Tensor]) -> None:
    graph = graph_of("centipede-4")
    actor, critic = flat_actor(graph, log_std_init=-0.5), flat_critic(graph)
    obs = 2 + 3 * observations(graph, 40)
    wide = torch.cat([obs, torch.full((40, 3), 5.0)], dim=1)
    for network in (actor, critic):
        network.update_normalizer(wide, 0)
    mean, log_std = actor.distribution(wide, 0)
    np.testing.assert_allclose(mean.detach(), numpy_mlp(actor, obs.double().numpy()), atol=1e-6)
    np.testing.assert_allclose(critic.value(wide, 0).detach(), numpy_mlp(critic, obs.double().numpy())[:, 0], atol=1e-6)
    assert log_std.tolist() == [-0.5] * 10
    np.testing.assert_allclose(actor.normalizer.mean[0], obs.double().mean(dim=0), rtol=1e-10)


def test_several_bodies_are_refused_with_the_way_out(graph_of: GraphOf) -> None:
    graphs = (graph_of("centipede-4"), graph_of("centipede-6"))
    with pytest.raises(
        UserError, match=r"serves one body, not centipede-4, centipede-6: set policy.network to 'nervenet'"
    ):
        flat_actor(*graphs)
    with pytest.raises(UserError, match=r"serves one body, not centipede-4, centipede-6: set policy.critic to 'graph'"):
        flat_critic(*graphs)
