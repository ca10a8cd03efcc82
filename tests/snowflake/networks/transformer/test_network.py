"""The limb transformer as actor and critic: parts, freezing, other bodies, precision, compilation, statistics."""

from __future__ import annotations

import math

import pytest
import torch

from snowflake.config.attention_presets import VARIANTS
from snowflake.config.policy import PolicyConfig
from snowflake.freezing import freeze
from snowflake.networks import TransformerActor, build_actor, build_critic
from snowflake.networks.transformer.statistics import ActivationStatistics
from snowflake.numerics import convert
from snowflake.policy import GraphActorCriticPolicy
from tests.snowflake.networks.transformer.helpers import actor_of, chain, draw, graph_of


@pytest.mark.parametrize("body", ["centipede-6", "ant"])
def test_components_hold_every_parameter_once(body: str) -> None:
    graph = graph_of(body)
    config = PolicyConfig(network="transformer", critic="transformer")
    for network in (build_actor([graph], config, torch.Generator()), build_critic([graph], config, torch.Generator())):
        names = [key for part in network.components for key in network.component_parameters(part)]
        assert sorted(names) == sorted(key for key, _ in network.named_parameters())
    actor = build_actor([graph], config, torch.Generator())
    counts = {part: sum(p.numel() for p in actor.component_parameters(part).values()) for part in actor.components}
    # of 3 blocks: 4 x 64 x 65, two norms of 32 and one of 64, 2 x 9 biases; 64 x 256 + 256 + 256 x 64 + 64 + 128
    attention, feedforward = 3 * (16_640 + 128 + 128 + 18), 3 * (33_088 + 128)
    assert (counts["attention"], counts["feedforward"]) == (attention, feedforward)
    if body == "centipede-6":  # as in the graph networks; a norm, 128 x 64 + 64, 64 x 65, 65
        assert (counts["encoder"], counts["decoder"], counts["log_std"]) == (1_056, 128 + 8_256 + 4_160 + 65, 6)


@pytest.mark.parametrize(
    ("source", "target"), [("centipede-4", "centipede-12"), ("ant", "drone"), ("drone", "humanoid")]
)
def test_weights_load_strictly_into_any_body_of_the_feature_set(source: str, target: str) -> None:
    config = PolicyConfig(network="transformer", hidden_size=16)
    policy = GraphActorCriticPolicy.for_graphs([graph_of(source)], config)
    moved = policy.for_bodies([graph_of(target)])
    for key, value in policy.actor.state_dict().items():
        assert torch.equal(moved.actor.state_dict()[key], value)
    action, _, log_prob, _ = moved.act(draw(graph_of(target), 3), deterministic=True)
    assert action.shape == (3, graph_of(target).act_dim)
    assert bool(log_prob.isfinite().all())


@pytest.mark.parametrize("name", ["encoder", "attention", "feedforward", "decoder"])
def test_a_frozen_component_gets_no_gradient_and_the_others_do(name: str) -> None:
    actor = actor_of("centipede-4")
    freeze(actor, [name])
    prepared = actor.prepare(draw(actor.graphs[0], 5), 0)
    assert len(prepared) == (1 if name == "encoder" else 2)  # the first states once a batch, or the inputs
    assert not prepared[0].requires_grad
    actor.distribution_of(prepared)[0].square().sum().backward()
    for key, parameter in actor.named_parameters():
        assert (parameter.grad is None) == (key.split(".")[0] in (name, "log_std")), key


def test_a_frozen_encoder_prepares_what_an_unfrozen_one_computes() -> None:
    actor, obs = actor_of("ant", qk_source="context"), draw(graph_of("ant"), 5)
    before = actor.distribution(obs)[0]
    freeze(actor, ["encoder"])
    torch.testing.assert_close(actor.distribution(obs)[0], before)


@pytest.mark.parametrize("body", ["centipede-4", "ant"])
@pytest.mark.parametrize("source", ["state", "context"])
def test_the_swap_to_low_precision_finds_every_linear_layer(body: str, source: str) -> None:
    actor = actor_of(body, qk_source=source)
    obs = draw(actor.graphs[0], 8)
    actor.decoder.readout.layers[-1].weight.data *= 100.0
    exact = actor.distribution(obs)[0].detach()
    conversion = convert(actor, "fp8-amax")
    blocks = [f"attention.{i}.{part}" for i in range(3) for part in ("q", "k", "v", "proj")]
    blocks += [f"feedforward.{i}.{part}" for i in range(3) for part in ("fc1", "fc2")]
    assert set(blocks) <= set(conversion.layers)
    rough = actor.distribution(obs)[0]
    error = float((rough.detach() - exact).norm() / exact.norm())
    assert 1e-4 < error < 0.3
    conversion.revert()
    assert torch.equal(actor.distribution(obs)[0], exact)


@pytest.mark.slow
def test_compiled_and_not_agree() -> None:
    actor = actor_of("centipede-4", hidden_size=8, layers=1)
    obs = draw(actor.graphs[0], 4)
    compiled = torch.compile(actor.distribution_of, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(actor.prepare(obs, 0))[0], actor.distribution(obs)[0])


def test_initial_weights_come_from_the_generator_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = (actor_of("ant", seed=s, position="index", qk_source="context") for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    for key, value in first.state_dict().items():
        assert torch.equal(again.state_dict()[key], value)
    assert not torch.equal(first.attention[0].q.weight, other.attention[0].q.weight)
    assert not torch.equal(first.attention[0].q.weight, first.attention[0].k.weight)


def measured(actor: TransformerActor, rows: int = 6) -> dict[str, float]:
    with ActivationStatistics(actor) as statistics:
        for k, graph in enumerate(actor.graphs):
            actor.distribution(draw(graph, rows), k)
    return statistics.scalars()


def test_statistics_are_those_of_the_outputs() -> None:
    actor = actor_of("centipede-4", "centipede-8", norm="none", bias="none")
    outputs: dict[str, list[torch.Tensor]] = {}
    for name, layer in actor.named_modules():
        if isinstance(layer, torch.nn.Linear) and name.split(".")[1] == "0":
            layer.register_forward_hook(lambda _m, _x, y, name=name: outputs.setdefault(name, []).append(y.flatten()))
    tags = measured(actor)
    joined = {name: torch.cat(parts) for name, parts in outputs.items()}
    q, k, v = (joined[f"attention.0.{part}"] for part in "qkv")
    rms = torch.cat([q, k, v]).square().mean().sqrt()
    assert tags["act/L0/qkv/y_rms"] == pytest.approx(float(rms), rel=1e-5)
    assert tags["act/L0/qkv/k_rms"] == pytest.approx(float(k.square().mean().sqrt()), rel=1e-5)
    assert tags["act/L0/qkv/x_rms"] == pytest.approx(1.0, abs=1e-3)  # it comes out of a norm
    fc2 = joined["feedforward.0.fc2"]
    assert tags["act/L0/fc2/y_l2"] == pytest.approx(float(fc2.norm()), rel=1e-5)
    assert tags["act/L0/proj/y_rms"] == pytest.approx(
        float(joined["attention.0.proj"].square().mean().sqrt()), rel=1e-5
    )
    assert {tag.split("/")[1] for tag in tags} == {"L0", "L1", "L2"}
    # proj and fc2 are the only layers whose input is not the norm's output: act on them is told apart from the input's
    assert {tag.split("/")[2] for tag in tags if tag.startswith("act")} == {"qkv", "proj", "fc1", "fc2"}


@pytest.mark.parametrize("mask", ["none", "hard"])
def test_statistics_of_uniform_and_of_saturated_attention(mask: str) -> None:
    actor = actor_of(chain(5), mask=mask, norm="none", layers=1, hidden_size=8)
    layer = actor.attention[0]
    layer.q.weight.data.zero_()
    tags = measured(actor)
    assert tags["attn/L0/entropy"] == pytest.approx(1.0, abs=1e-6)
    assert tags["attn/L0/logit_absmax"] == tags["attn/L0/logit_std"] == 0.0
    # the root is seen by all, or by itself and its one neighbour: (1/2 + 1/3) / 5
    assert tags["attn/L0/root_mass"] == pytest.approx(0.2 if mask == "none" else 1 / 6, abs=1e-6)
    # mean of |i - j| over all pairs, or of 1/2, 2/3, 2/3, 2/3, 1/2
    assert tags["attn/L0/dist_mean"] == pytest.approx(1.6 if mask == "none" else 0.6, abs=1e-6)
    layer.hop_bias.data[:, 0] = 1e4  # every node sees itself only
    tags = measured(actor)
    assert tags["attn/L0/entropy"] == pytest.approx(0.0, abs=1e-6)
    assert tags["attn/L0/dist_mean"] == pytest.approx(0.0, abs=1e-6)
    assert tags["attn/L0/root_mass"] == pytest.approx(0.2, abs=1e-6)


def test_statistics_of_the_cap() -> None:
    actor = actor_of("centipede-4", softcap="1", bias="none", layers=1)
    tags = measured(actor)
    assert 0.0 < tags["attn/L0/cap_frac"] < 1.0
    assert tags["attn/L0/logit_absmax"] > 1.0 > tags["attn/L0/capped_absmax"]
    # without learned gains queries and keys have norm sqrt(d): logits are at most sqrt(8), about normal
    assert tags["attn/L0/logit_absmax"] <= math.sqrt(8)
    assert "attn/L0/cap_frac" not in measured(actor_of("centipede-4", layers=1))


@pytest.mark.parametrize("name", VARIANTS)
def test_statistics_of_one_node_and_of_context_are_finite(name: str) -> None:
    tags = measured(actor_of("drone", **VARIANTS[name]))
    assert "attn/L0/entropy" not in tags  # of one key there is none
    tags |= measured(actor_of("ant", qk_source="context", **VARIANTS[name]))
    assert all(math.isfinite(value) for value in tags.values())


def test_hooks_are_gone_afterwards() -> None:
    actor = actor_of("centipede-4")
    measured(actor)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in actor.modules())
