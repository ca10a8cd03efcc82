"""The graph actor: sizes, formulas written out, transfer of weights, wiring."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.errors import UserError
from snowflake.graph import MorphologyGraph
from snowflake.networks import NerveNetActor
from snowflake.networks.init import Initializer
from snowflake.networks.nervenet import GRUUpdate

MakeActor = Callable[..., NerveNetActor]
Observations = Callable[..., Tensor]


@pytest.mark.parametrize("name", ["centipede-4", "centipede-20", "centipede-6-crippled"])
def test_parameter_counts_do_not_depend_on_the_body(name: str, make_actor: MakeActor) -> None:
    actor = make_actor(name)
    counts = {c: sum(p.numel() for p in actor.component_parameters(c).values()) for c in actor.components}
    assert counts == {"encoder": 192 + 864, "message": 12_480, "update": 49_536, "decoder": 8_385, "log_std": 6}
    assert sum(p.numel() for p in actor.parameters()) == 71_457 + 6
    assert actor.encoder.table.shape == (6, 32)
    assert make_actor("centipede-6", log_std="per_actuator").log_std.shape == (16,)


def test_every_parameter_is_in_one_component(make_actor: MakeActor) -> None:
    actor = make_actor("centipede-4")
    names = [name for component in actor.components for name in actor.component_parameters(component)]
    assert sorted(names) == sorted(name for name, _ in actor.named_parameters())


def test_unknown_component_is_refused(make_actor: MakeActor) -> None:
    with pytest.raises(UserError, match="NerveNetActor has no component 'decodr': did you mean 'decoder'"):
        make_actor("centipede-4").component_parameters("decodr")


def test_gru_against_a_loop_in_float64() -> None:
    size, rows = 5, 3
    gru = GRUUpdate(size, Initializer("independent", torch.Generator().manual_seed(0))).double()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        gru.message.bias.copy_(torch.tensor(rng.normal(size=3 * size)))
    m, h = rng.normal(size=(2, rows, size))
    weights, bias, gates, candidate = (
        p.detach().numpy() for p in (gru.message.weight, gru.message.bias, gru.gates.weight, gru.candidate.weight)
    )
    wanted = np.empty((rows, size))
    for n in range(rows):
        keep, reset = np.empty(size), np.empty(size)
        for i in range(size):
            z, r = bias[i], bias[size + i]
            for j in range(size):
                z += weights[i, j] * m[n, j] + gates[i, j] * h[n, j]
                r += weights[size + i, j] * m[n, j] + gates[size + i, j] * h[n, j]
            keep[i], reset[i] = 1 / (1 + np.exp(-z)), 1 / (1 + np.exp(-r))
        for i in range(size):
            u = bias[2 * size + i]
            for j in range(size):
                u += weights[2 * size + i, j] * m[n, j] + candidate[i, j] * reset[j] * h[n, j]
            wanted[n, i] = keep[i] * h[n, i] + (1 - keep[i]) * np.tanh(u)
    np.testing.assert_allclose(gru(torch.tensor(m), torch.tensor(h)).detach(), wanted, rtol=1e-12)


def numpy_policy(actor: NerveNetActor, graph: MorphologyGraph, obs: np.ndarray) -> np.ndarray:
    """The whole network for one observation, node by node and edge by edge, in float64, from the paper's formulas."""
    weights = {name: p.detach().double().numpy() for name, p in actor.state_dict().items()}

    def layer(name: str, x: np.ndarray) -> np.ndarray:
        return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    kinds = ["root"] + ["joint"] * (graph.num_nodes - 1)
    states = []
    for node, kind in enumerate(kinds):
        columns = graph.root_columns if node == 0 else graph.joint_columns[node - 1]
        group = 0 if node == 0 else graph.node_class[node]
        mean, var = (weights[f"normalizer.{kind}.{key}"][group] for key in ("mean", "var"))
        x = np.clip((obs[columns] - mean) / np.sqrt(np.maximum(var, 0.01) + 1e-6), -5, 5)
        states.append(
            np.concatenate([weights["encoder.table"][graph.node_class[node]], np.tanh(layer(f"encoder.{kind}", x))])
        )
    for _ in range(4):
        messages = []
        for state in states:
            for i in range(3):
                state = np.tanh(layer(f"message.layers.{i}", state))
            messages.append(state)
        new = []
        for node, (kind, h) in enumerate(zip(kinds, states, strict=True)):
            m = np.mean([messages[a] for a, b in graph.edge_index.T if b == node], axis=0)
            z, r, u = np.split(layer(f"update.{kind}.message", m), 3)
            hz, hr = np.split(weights[f"update.{kind}.gates.weight"] @ h, 2)
            z, r = sigmoid(z + hz), sigmoid(r + hr)
            u = np.tanh(u + weights[f"update.{kind}.candidate.weight"] @ (r * h))
            new.append(z * h + (1 - z) * u)
        states = new
    actions = []
    for node in graph.output_node:
        x = np.tanh(layer("decoder.layers.0", states[node]))
        actions.append(layer("decoder.layers.2", np.tanh(layer("decoder.layers.1", x)))[0])
    return np.array(actions)


def test_whole_network_against_the_formulas(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor("centipede-7")
    graph = actor.graphs[0]
    actor.update_normalizer(3 + 2 * observations(graph, 100, seed=1), 0)
    obs = observations(graph, 3)
    mean, _ = actor.distribution(obs, 0)
    wanted = np.stack([numpy_policy(actor, graph, row) for row in obs.double().numpy()])
    np.testing.assert_allclose(mean.detach(), wanted, atol=2e-6)


def test_normalizer_counts_by_class_and_ignores_the_world(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor("centipede-6")
    graph = actor.graphs[0]
    obs = observations(graph, 50)
    actor.update_normalizer(obs, 0)
    assert actor.normalizer.root.count.tolist() == [50]
    assert actor.normalizer.joint.count.tolist() == [0, 150, 300, 150, 100, 100]
    ankles = graph.joint_columns[graph.node_class[1:] == 2]  # (6, 8)
    rows = obs.double().numpy()[:, ankles].reshape(-1, 8)
    np.testing.assert_allclose(actor.normalizer.joint.mean[2], rows.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(actor.normalizer.joint.var[2], rows.var(axis=0), rtol=1e-10)


@pytest.mark.parametrize("target", ["centipede-20", "centipede-4-crippled", "centipede-5", "centipede-6-crippled-2-3"])
def test_state_dict_loads_strictly_into_any_other_body(
    target: str, make_actor: MakeActor, observations: Observations
) -> None:
    source, other = make_actor("centipede-4"), make_actor(target, seed=1)
    source.update_normalizer(3 * observations(source.graphs[0], 20), 0)
    other.load_state_dict(source.state_dict(), strict=True)
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in source.state_dict().items())
    obs = observations(other.graphs[0], 5)
    mean, log_std = other.distribution(obs, 0)
    assert mean.shape == (5, other.graphs[0].act_dim)
    assert log_std.shape == (other.graphs[0].act_dim,)
    # the actor that also serves both bodies agrees with each of them
    both = make_actor("centipede-4", target)
    both.load_state_dict(source.state_dict(), strict=True)
    torch.testing.assert_close(both.distribution(obs, 1)[0], mean)


def test_columns_to_the_right_are_ignored(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor("centipede-4", "centipede-6")
    obs = observations(actor.graphs[0], 4)
    padded = torch.cat([obs, torch.full((4, 43), 7.0)], dim=1)
    assert torch.equal(actor.distribution(padded, 0)[0], actor.distribution(obs, 0)[0])
    actor.update_normalizer(padded, 0)
    wanted = make_actor("centipede-4", "centipede-6")
    wanted.update_normalizer(obs, 0)
    assert all(torch.equal(a, b) for a, b in zip(actor.buffers(), wanted.buffers(), strict=True))


def test_official_wiring_hands_outputs_over_in_node_order(make_actor: MakeActor, observations: Observations) -> None:
    correct, official = make_actor("centipede-6"), make_actor("centipede-6", actuator_wiring="official")
    graph = correct.graphs[0]
    obs = observations(graph, 4)
    mean, log_std = correct.distribution(obs, 0)
    wired, wired_log_std = official.distribution(obs, 0)
    # actuators: segment 0, then per segment lefthip, ankle, righthip, ankle, body, bodyupdown
    computed_by = [0, 1, 2, 3]
    for first in (4, 10):
        computed_by += [first + 4, first + 5, first, first + 1, first + 2, first + 3]
    assert torch.equal(wired, mean[:, computed_by])
    with torch.no_grad():
        for actor in (correct, official):
            actor.log_std.copy_(torch.arange(6.0))
    assert torch.equal(correct.distribution(obs, 0)[1], official.distribution(obs, 0)[1])
    assert wired_log_std.tolist() == log_std.tolist()


@pytest.mark.parametrize("aggregation", ["mean", "sum", "max"])
def test_information_travels_one_link_a_step(
    aggregation: str, make_actor: MakeActor, observations: Observations
) -> None:
    actor = make_actor("centipede-12", aggregation=aggregation)
    graph = actor.graphs[0]
    obs = observations(graph, 1).requires_grad_()
    mean, _ = actor.distribution(obs, 0)
    distance = graph.distances()[:, graph.output_node]
    for actuator in (0, 5, 33):
        (gradient,) = torch.autograd.grad(mean[0, actuator], obs, retain_graph=True)
        felt = {
            node for node in range(1, graph.num_nodes) if gradient[0, graph.joint_columns[node - 1, :2].tolist()].any()
        }
        felt |= {0} if gradient[0, graph.root_columns.tolist()].any() else set()
        assert felt == set(np.flatnonzero(distance[:, actuator] <= 4).tolist())


def test_no_steps_and_an_odd_width(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor("centipede-4", propagation_steps=0, hidden_size=7)
    obs = observations(actor.graphs[0], 3)
    assert actor.distribution(obs, 0)[0].shape == (3, 10)
    assert torch.isfinite(actor.distribution(obs, 0)[0]).all()


def test_frozen_parts_get_no_gradient_and_the_rest_the_same(make_actor: MakeActor, observations: Observations) -> None:
    free, frozen = make_actor("centipede-4"), make_actor("centipede-4")
    for component in ("encoder", "message", "decoder"):
        for p in frozen.component_parameters(component).values():
            p.requires_grad_(False)
    obs = observations(free.graphs[0], 8)
    for actor in (free, frozen):
        mean, log_std = actor.distribution(obs, 0)
        (mean.square().sum() + log_std.sum()).backward()
    for (name, p), q in zip(free.named_parameters(), frozen.parameters(), strict=True):
        if q.requires_grad:
            torch.testing.assert_close(q.grad, p.grad, msg=name)
        else:
            assert q.grad is None, name
        assert p.grad is not None
        assert p.grad.any(), name


def test_bodies_that_cannot_share_weights_are_refused(
    graph_of: Callable[[str], MorphologyGraph], make_actor: MakeActor
) -> None:
    with pytest.raises(UserError, match="centipede-4 and ant cannot share a policy, their node classes differ"):
        make_actor("centipede-4", "ant")
    with pytest.raises(UserError, match="ant and walker2d cannot share a policy, their root input widths differ"):
        make_actor("ant", "walker2d")
