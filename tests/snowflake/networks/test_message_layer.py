"""Convolutions of PyTorch Geometric as the message layer: equal to PyG's own, and refused with the reason."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.nn import GATv2Conv

import snowflake.networks
from agents.errors import UserError
from snowflake.config.policy import PolicyConfig
from snowflake.freezing import freeze, rows
from snowflake.networks import GraphCritic, NerveNetActor
from snowflake.networks.message_layer import ConvMessage
from snowflake.networks.pyg_reference import PyGActor

MakeActor = Callable[..., NerveNetActor]
Observations = Callable[..., Tensor]
SMALL = {"hidden_size": 8, "propagation_steps": 2}


def make_small(make_actor: MakeActor, *names: str, layer: str = "GATv2Conv", **config: object) -> NerveNetActor:
    return make_actor(*names, message_layer=layer, **(SMALL | config))


@pytest.mark.parametrize(
    ("layer", "arguments"),
    [
        ("SimpleConv", {}),
        ("GraphConv", {"aggr": "max"}),
        ("GATv2Conv", {"heads": 2, "out_channels": 4}),
        ("GATv2Conv", {"heads": 2, "concat": False}),
        ("GatedGraphConv", {"num_layers": 2}),
        ("CGConv", {}),
    ],
)
def test_a_batch_equals_the_convolution_on_each_graph_alone(
    layer: str, arguments: dict, make_actor: MakeActor, observations: Observations
) -> None:
    actor = make_small(make_actor, "centipede-5", layer=layer, message_layer_args=arguments)
    graph = actor.graphs[0]
    obs = observations(graph, 3)
    states = actor.first_states(actor.prepare(obs, 0), 0)  # (V, N, H)
    edges = torch.tensor(graph.edge_index)
    for _ in range(2):
        received = torch.stack([actor.message.conv(states[:, n], edges) for n in range(3)], dim=1)
        torch.testing.assert_close(actor.receive(states, actor.body(0)), received, atol=1e-6, rtol=1e-5)
        states = actor.update(received, states)
    wanted = actor.decoder(states[graph.output_node.tolist()]).squeeze(-1).t()
    mean = actor.distribution(obs, 0)[0]
    torch.testing.assert_close(mean, wanted, atol=1e-6, rtol=1e-5)
    # and the reference, on a batch that PyG itself puts together
    data = Batch.from_data_list([graph.to_data(row) for row in obs])
    torch.testing.assert_close(PyGActor(actor)(data).view_as(mean), mean, atol=1e-5, rtol=0)


def test_simple_conv_is_a_sum_of_the_neighbours_by_hand() -> None:
    layer = ConvMessage("SimpleConv", 2, {}, seed=0)
    states = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])[:, None] * torch.tensor([1.0, -1.0])[None, :, None]
    chain = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    wanted = torch.tensor([[2.0, 20.0], [5.0, 50.0], [2.0, 20.0]])
    assert torch.equal(layer(states, chain), torch.stack([wanted, -wanted], dim=1))


def test_several_bodies_and_loading_into_another(make_actor: MakeActor, observations: Observations) -> None:
    source = make_small(make_actor, "centipede-4")
    other = make_small(make_actor, "centipede-6-crippled", "centipede-4", seed=1)
    other.load_state_dict(source.state_dict(), strict=True)
    obs = observations(source.graphs[0], 4)
    torch.testing.assert_close(other.distribution(obs, 1)[0], source.distribution(obs, 0)[0])
    assert other.distribution(observations(other.graphs[0], 4), 0)[0].shape == (4, 12)
    assert "message.conv.att" in source.state_dict()


def test_initial_weights_come_from_the_generator_and_nothing_else_moves(make_actor: MakeActor) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (make_small(make_actor, "centipede-4", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    for (name, a), b in zip(first.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert not torch.equal(first.message.conv.lin_l.weight, other.message.conv.lin_l.weight)
    assert isinstance(first.message.conv, GATv2Conv)
    shared = [make_small(make_actor, "centipede-4", seed=seed, init="shared_seed") for seed in (0, 1)]
    assert torch.equal(*(actor.message.conv.lin_l.weight for actor in shared))


def test_it_is_the_component_message(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_small(make_actor, "centipede-4")
    count = sum(p.numel() for p in GATv2Conv(8, 8).parameters())
    assert ("message", count, True) in rows(actor)
    freeze(actor, ["message"])
    assert ("message", count, False) in rows(actor)
    actor.distribution(observations(actor.graphs[0], 4), 0)[0].square().sum().backward()
    assert all(p.grad is None for p in actor.message.parameters())
    assert actor.update.joint.message.weight.grad.any()


def test_trained_it_gets_a_gradient_and_the_critic_has_its_own(make_actor, graph_of, observations) -> None:
    actor = make_small(make_actor, "centipede-4")
    actor.distribution(observations(actor.graphs[0], 4), 0)[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in actor.message.parameters())
    critic = GraphCritic([graph_of("centipede-4")], actor.config, torch.Generator().manual_seed(0))
    assert isinstance(critic.message.conv, GATv2Conv)
    assert critic.value(observations(critic.graphs[0], 4), 0).shape == (4,)


def test_edges_of_a_batch_size_are_made_once_and_few_are_kept(make_actor: MakeActor) -> None:
    actor = make_small(make_actor, "centipede-4")
    layer, body = actor.message, actor.body(0)
    first = layer._batch_edges(body.edge_index, 3)
    assert layer._batch_edges(body.edge_index, 3) is first
    for rows_ in range(4, 30):
        layer._batch_edges(body.edge_index, rows_)
    assert len(layer._batches) == 8
    assert layer._batch_edges(body.edge_index, 3) is not first
    assert not any("edge" in key for key in actor.state_dict())


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("GATv3Conv", {}, "is not a convolution of torch_geometric.nn: did you mean 'GATv2Conv'"),
        ("PointNetConv", {}, r"takes \(x, pos, edge_index\)"),
        ("HypergraphConv", {}, r"takes \(x, hyperedge_index"),
        ("RGCNConv", {"num_relations": 2}, "fails on states"),
        ("GMMConv", {"dim": 1, "kernel_size": 2}, "fails on states"),
        ("GINConv", {}, "needs nn"),
        ("GATv2Conv", {"head": 1}, "unexpected keyword argument 'head'"),
        ("GATv2Conv", {"heads": 2}, r"returns \(16,\) features per node, not \(8,\)"),
        ("GATv2Conv", {"dropout": 0.1}, "drops out"),
        ("GATv2Conv", {"share_weights": True}, "one parameter under two names"),
        ("GENConv", {}, r"keeps statistics of batches \(BatchNorm1d\)"),
        ("SAGEConv", {"in_channels": -1}, "size is not known yet"),
        ("SuperGATConv", {}, "draws random numbers"),
        ("GCNConv", {"cached": True}, "another result when a second graph is in the batch"),
        ("GPSConv", {"conv": None, "norm": None}, "another result when a second graph is in the batch"),
    ],
)
def test_others_are_refused_with_the_reason(name: str, arguments: dict, words: str) -> None:
    states = torch.get_rng_state(), np.random.get_state()[2]
    with pytest.raises(UserError, match=words) as caught:
        ConvMessage(name, 8, arguments, seed=0)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[2] == states[1]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"message_layer_args": {"heads": 1}}, "name it in policy.message_layer"),
        ({"message_layer": "GCNConv", "aggregation": "max"}, "GCNConv aggregates by itself"),
        ({"message_layer": "GCNConv", "network": "mlp"}, "is for graph networks"),
    ],
)
def test_settings_without_effect_are_refused(config: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        PolicyConfig(**config)


def test_pyg_is_imported_only_where_it_is_asked_for() -> None:
    """No module imports PyG, or the modules here that do, at its top level, but those modules themselves."""
    pyg = ("torch_geometric", "snowflake.networks.message_layer", "snowflake.networks.pyg_reference")
    package = Path(snowflake.networks.__file__).parents[1]
    found = {
        path.name
        for path in package.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and (getattr(node, "module", None) or node.names[0].name).startswith(pyg)
    }
    assert found == {"pyg_reference.py"}
