"""The graph network in unit-scaled form: RMS of every stage, true gradients, parameters that keep names, FP8 inside."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import agents
from agents.errors import UserError
from envs.observation import paper_layout
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.networks import build_actor, build_critic
from snowflake.numerics import convert
from snowflake.numerics.unit import loss_factor, record, to_unit, weight_gradients
from snowflake.numerics.unit import modules as unit_modules
from snowflake.numerics.unit.modules import UnitLinear
from snowflake.numerics.unit.record import StageRMS


@cache
def graph_of(name: str) -> MorphologyGraph:
    morphology = agents.load(name)
    model = morphology.compile()
    return build_graph(model, paper_layout(model), morphology.node_class(model), name)


def build(kind: str, *names: str, unit: bool = True, batch_size: int = 32, **config: Any) -> Any:
    """Build an actor, a graph critic or the flat critic of bodies."""
    generator = torch.Generator().manual_seed(0)
    settings = PolicyConfig(critic="flat" if kind == "flat" else "graph", **config)
    network = (build_actor if kind == "actor" else build_critic)([graph_of(n) for n in names], settings, generator)
    if unit:
        to_unit(network, batch_size, generator)
    return network


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def output(network: Any, obs: Tensor, k: int = 0) -> Tensor:
    return network.distribution(obs, k)[0] if hasattr(network, "distribution") else network.value(obs, k)


def measure(network: Any, rows: int) -> list[StageRMS]:
    with record(network) as stages:
        y = output(network, normal(rows, network.graphs[0].obs_dim))
        y.backward(normal(*y.shape, seed=2))
    return stages


def outside(stages: list[StageRMS], network: Any) -> list[str]:
    """Say what is outside of the bands: stages but for the read-out in [1/4, 4], weight gradients in [0.1, 4]."""
    readout = ("output", "decoder", "decoder.layers.2")
    found = [
        f"{s.stage}[{s.call}] forward {s.forward:.3g}"
        for s in stages
        if s.stage not in readout and not 0.25 <= s.forward <= 4
    ]
    # The root's last update reaches no action, so its gradient is zero in truth.
    found += [
        f"{s.stage}[{s.call}] gradient {s.gradient:.3g}"
        for s in stages
        if s.gradient != 0 and not 0.25 <= s.gradient <= 4
    ]
    gradients = {name: rms for name, rms in weight_gradients(network).items() if not name.endswith("bias")}
    assert len(gradients) >= 3
    return found + [f"{name} weight gradient {rms:.3g}" for name, rms in gradients.items() if not 0.1 <= rms <= 4]


@pytest.mark.parametrize("width", [64, 256])
@pytest.mark.parametrize("body", ["centipede-4", "centipede-20"])
@pytest.mark.parametrize("kind", ["actor", "critic"])
def test_oracle_18_every_stage_is_within_the_bands(kind: str, body: str, width: int) -> None:
    network = build(kind, body, hidden_size=width)
    stages = measure(network, 32)
    assert outside(stages, network) == []
    assert len(stages) == 2 + 1 + 4 * (3 + 1 + 1 + 2 * 3 + 1) + 3 + 1
    zero = {(s.stage, s.call) for s in stages if s.gradient == 0}
    last = {(f"update.root.{part}", 3) for part in ("message", "gates", "candidate")}
    assert zero == (last if kind == "actor" else set())


def test_the_flat_critic_is_within_the_bands() -> None:
    network = build("flat", "centipede-20", hidden_size=256)
    assert outside(measure(network, 32), network) == []


def test_the_standard_parametrisation_is_not() -> None:
    network = build("actor", "centipede-20", unit=False, kernels="reference")
    stages = measure(network, 32)
    assert len(stages) == 2 + 1 + 4 * (3 + 1 + 1 + 2 * 3 + 1) + 3 + 1
    assert len(outside(stages, network)) > 50


def test_stages_that_run_without_being_called_are_named() -> None:
    """The hand-written rounds read the weights of messages and updates, and call none of their layers."""
    with pytest.raises(ValueError, match=r"not called: message, .*update\.joint\.candidate.*; .*kernels: reference"):
        measure(build("actor", "centipede-4", unit=False), 2)


@pytest.mark.parametrize("width", [16, 64, 256])
def test_oracle_18_the_read_out_starts_at_one_over_sqrt_width(width: int) -> None:
    """Over 512 draws of the weights, 4096 rows; the mean square spreads by (2 / (512 H) + 2 / 4096)^1/2 < 2.7 %."""
    network = build("actor", "centipede-4", hidden_size=width)
    last = network.decoder.layers[-1]
    x, draws = normal(4096, width), normal(512, 1, width, seed=100)
    squares = []
    with torch.no_grad():
        for weight, rows in zip(draws, x.split(8), strict=True):
            last.weight.copy_(weight)
            squares.append(last(rows).square().mean())
    assert float(torch.stack(squares).mean().sqrt()) == pytest.approx(width**-0.5, rel=0.03)


def test_the_gradient_of_a_policy_loss_at_the_outputs_is_unit() -> None:
    network = build("actor", "centipede-4", batch_size=128)
    obs, advantages = normal(128, network.graphs[0].obs_dim), normal(128, seed=3)
    mean, log_std = network.distribution(obs)
    mean.retain_grad()
    actions = mean.detach() + normal(*mean.shape, seed=4) * log_std.exp().detach()
    log_prob = (-0.5 * ((actions - mean) / log_std.exp()) ** 2 - log_std).sum(-1)
    ratio = (log_prob - log_prob.detach()).exp()
    (-(advantages * ratio).mean() * loss_factor(128, std=math.exp(network.config.log_std_init))).backward()
    assert float(mean.grad.square().mean().sqrt()) == pytest.approx(1.0, rel=2**0.5)
    gradients = {k: v for k, v in weight_gradients(network).items() if not k.endswith("bias") and k != "log_std"}
    assert {k: v for k, v in gradients.items() if not 0.1 <= v <= 4} == {}


def ratios(network: Any, bodies: int, directions: int = 3) -> dict[str, list[float]]:
    """Return directional derivatives by autograd over those by finite differences, for every parameter, in float64."""
    network.double()
    obs = [normal(3, network.graphs[k].obs_dim, seed=5 + k).double() for k in range(bodies)]
    weight = [normal(*output(network, obs[k], k).shape, seed=7 + k).double() for k in range(bodies)]

    def loss() -> Tensor:
        return torch.stack([(output(network, obs[k], k) * weight[k]).sum() for k in range(bodies)]).sum()

    loss().backward()
    found = {}
    for name, parameter in network.named_parameters():
        if name == "log_std":
            continue
        found[name] = []
        for i in range(directions):
            # Along the sign of the gradient, in random places, so that no derivative is near zero.
            where = (normal(*parameter.shape, seed=11 + i) > 0).double()
            step = parameter.grad.sign() * where
            values = []
            for h in (1e-5, -1e-5):
                with torch.no_grad():
                    parameter.add_(h * step)
                    values.append(float(loss()))
                    parameter.sub_(h * step)
            numeric = (values[0] - values[1]) / 2e-5
            if abs(numeric) > 1e-4:
                found[name].append(float((parameter.grad * step).sum()) / numeric)
    return found


@pytest.mark.parametrize("kind", ["actor", "critic"])
def test_oracle_17_gradients_are_true_up_to_a_positive_factor_per_parameter(kind: str) -> None:
    network = build(kind, "centipede-4", "centipede-8", hidden_size=8, propagation_steps=2)
    found = ratios(network, bodies=2)
    sizes = {name: parameter.numel() for name, parameter in network.named_parameters()}
    assert {name: len(values) for name, values in found.items() if len(values) < min(sizes[name], 2)} == {}
    for name, values in found.items():
        assert values[0] > 0, name
        assert values == pytest.approx([values[0]] * len(values), rel=1e-3), name


def test_oracle_17_a_factor_on_an_edge_that_is_no_cut_edge_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    network = build("actor", "centipede-4", hidden_size=8, propagation_steps=2)
    plain = unit_modules.U.linear
    monkeypatch.setattr(unit_modules.U, "linear", lambda x, w, b, **kw: plain(x, w, b, constraint="none", **kw))
    spread = [max(v) / min(v) for v in ratios(network, bodies=1).values() if min(v) > 0]
    assert max(spread) > 1.05


def test_parameters_keep_their_names_and_the_body_stays_out_of_them() -> None:
    standard, unit = build("actor", "centipede-4", unit=False), build("actor", "centipede-4")
    assert {k: v.shape for k, v in standard.state_dict().items()} == {k: v.shape for k, v in unit.state_dict().items()}
    for component in unit.components:
        assert list(unit.component_parameters(component)) == list(standard.component_parameters(component))
    for name, parameter in unit.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif name != "log_std":
            assert float(parameter.detach().std()) == pytest.approx(1.0, rel=0.2), name
    other = build("actor", "centipede-12")
    other.load_state_dict(unit.state_dict(), strict=True)
    again = build("actor", "centipede-4", batch_size=4096)  # the batch size is in no forward number
    obs = normal(5, unit.graphs[0].obs_dim)
    assert torch.equal(output(again, obs), output(unit, obs))


def test_aggregation_is_the_sum_over_the_root_of_the_degree() -> None:
    graph = graph_of("centipede-6")
    degree = torch.zeros(graph.num_nodes)
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes)
    for sender, receiver in graph.edge_index.T:
        adjacency[receiver, sender] = 1.0
        degree[receiver] += 1.0
    for aggregation in ("mean", "sum"):
        network = build("actor", "centipede-6", aggregation=aggregation)
        messages = normal(graph.num_nodes, 3, 4)
        want = (adjacency @ messages.flatten(1) / degree.sqrt()[:, None]).view_as(messages)
        torch.testing.assert_close(network.body(0).aggregate(messages), want)


def test_frozen_parts_get_no_gradient_and_draws_are_reproducible() -> None:
    network, same = build("actor", "centipede-4"), build("actor", "centipede-4")
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), same.parameters(), strict=True))
    for component in ("encoder", "message", "decoder"):
        for parameter in network.component_parameters(component).values():
            parameter.requires_grad_(False)
    measure(network, 8)
    assert {name.split(".")[0] for name in weight_gradients(network)} == {"update"}


def test_what_has_no_unit_form_is_refused() -> None:
    network = build("actor", "centipede-4", unit=False)
    network.message = torch.nn.Identity()  # a convolution has no `layers` either
    with pytest.raises(UserError, match="message_layer"):
        to_unit(network, 1, torch.Generator())
    with pytest.raises(UserError, match="has no form for Linear"):
        to_unit(torch.nn.Linear(2, 2), 1, torch.Generator())


def test_fp8_with_constant_scales_goes_into_the_unit_scaled_layers() -> None:
    network = build("actor", "centipede-4", hidden_size=50)
    obs = normal(32, network.graphs[0].obs_dim)
    exact = output(network, obs)
    exact.backward(normal(*exact.shape, seed=2))
    gradients = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    with pytest.raises(UserError, match="parametrization"):
        convert(network, "fp8-unit")
    conversion = convert(network, "fp8-unit", parametrization="unit")
    assert "update.joint.gates" in conversion.layers
    network.zero_grad()
    y = output(network, obs)
    torch.testing.assert_close(output(network, obs[3:4]), y[3:4], rtol=0, atol=1e-5)  # constant scales: not the batch's
    y.backward(normal(*y.shape, seed=2))
    assert 1e-3 < float(((y - exact).norm() / exact.norm()).detach()) < 0.3  # some 30 products deep
    for name, p in network.named_parameters():
        if name.endswith("weight"):
            assert float((p.grad - gradients[name]).norm() / gradients[name].norm()) < 0.5, name
    reading = conversion.step()
    used = {k: v for k, v in reading.operands.items() if v.tensors}
    assert used
    assert reading.nonfinite == 0
    conversion.revert()
    assert torch.equal(output(network, obs), exact)


def test_a_unit_linear_prints_its_kind_and_takes_parameters_over() -> None:
    layer = torch.nn.Linear(3, 2)
    unit = UnitLinear(layer, 10, "readout")
    assert unit.weight is layer.weight
    assert "kind=readout" in repr(unit)
    torch.testing.assert_close(unit(torch.ones(1, 3)), F.linear(torch.ones(1, 3), layer.weight / 3, layer.bias))
