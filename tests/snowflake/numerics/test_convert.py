"""The swap on the package's networks: what is converted, parameters and checkpoints, ratio, state, errors."""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_post_hooks

from agents.errors import UserError
from snowflake.freezing import freeze
from snowflake.networks import Actor
from snowflake.numerics import OperandConfig, Recipe, Rule, convert, find_recipe, is_converted, recipe_names
from snowflake.numerics.linear import QuantisedLinear
from snowflake.numerics.unit import to_unit

MakeActor = Callable[..., Actor]
Observations = Callable[[int], Tensor]
STANDARD = [name for name in recipe_names() if name != "fp8-unit"]


def log_prob(actor: Actor, obs: Tensor, action: Tensor) -> Tensor:
    mean, log_std = actor.distribution(obs)
    z = (action - mean) / log_std.exp()
    return (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


def test_recipes_by_name() -> None:
    assert set(recipe_names()) >= {"fp32", "bf16", "fp8-amax", "fp8-cscale", "fp8-unit", "fp8-mor"}
    assert all(find_recipe(name).summary for name in recipe_names())


def test_default_recipes_do_not_mix_the_rows_of_a_batch() -> None:
    assert all(find_recipe(name).x.independent_of_batch for name in recipe_names() if name != "fp32")


def test_layers_of_the_graph_actor(make_actor: MakeActor) -> None:
    actor = make_actor()
    conversion = convert(actor, "fp8-amax")
    precision = {row.name: row.precision for row in conversion.rows}
    gru = [f"update.{kind}.{part}" for kind in ("root", "joint") for part in ("message", "gates", "candidate")]
    assert set(conversion.layers) == {
        *(f"message.layers.{i}" for i in range(3)), *gru, "decoder.layers.0", "decoder.layers.1"
    }  # fmt: skip
    kept = {"encoder.table", "encoder.root", "encoder.joint", "decoder.layers.2"}
    assert {name for name, p in precision.items() if p == "fp32"} == kept
    report = conversion.report()
    lines = [" ".join(line.split()) for line in report.splitlines()]
    assert "update.joint.message 48x16 fp8-amax update" in lines
    assert "decoder.layers.2 1x16 fp32 read-out: one output" in lines
    assert "encoder.joint 8x8 fp32 reads observations" in lines
    assert "precision fp8-amax: 15 weight matrices, 4 in fp32, 11 in fp8-amax" in report
    assert "backend emulate on cpu: no 8-bit products on cpu" in report


def test_layers_of_the_flat_actor(make_actor: MakeActor) -> None:
    conversion = convert(make_actor("mlp"), "fp8-mor")
    assert [(row.name, row.precision) for row in conversion.rows] == [
        ("hidden.layers.0", "fp32"),
        ("hidden.layers.1", "fp8-mor"),
        ("output", "fp32"),
    ]


def test_names_may_have_a_prefix(make_actor: MakeActor) -> None:
    policy = nn.ModuleDict({"actor": make_actor("mlp"), "extra": nn.Sequential(nn.Linear(4, 4))})
    conversion = convert(policy, "fp8-amax")
    found = {row.name: (row.precision, row.reason) for row in conversion.rows}
    assert found["actor.hidden.layers.1"] == ("fp8-amax", "hidden layer")
    assert found["actor.output"] == ("fp32", "read-out")
    assert found["extra.0"] == ("bf16", "no rule names it")
    assert conversion.layers["extra.0"].recipe.x.formats == ("bf16",)


def test_what_is_no_plain_linear_layer_is_named(make_actor: MakeActor) -> None:
    actor = make_actor(message_layer="GATv2Conv")
    rows = {row.name: row for row in convert(actor, "fp8-amax").rows}
    others = [row for name, row in rows.items() if name.startswith("message")]
    assert others
    assert all(row.precision == "fp32" and "is no linear layer" in row.reason for row in others)


@pytest.mark.parametrize("recipe", STANDARD)
@pytest.mark.parametrize("network", ["nervenet", "mlp"])
def test_ratio_of_the_first_minibatch_is_one(
    recipe: str, network: str, make_actor: MakeActor, observations: Observations
) -> None:
    """Old log-probabilities from rollouts of 16, new ones from shuffled minibatches of 50, for frozen networks too."""
    actor = make_actor(network)
    conversion = convert(actor, recipe)
    obs = observations(160)
    with torch.no_grad():
        means = torch.cat([actor.distribution(part)[0] for part in obs.split(16)])
        action = means + 0.4 * torch.randn(means.shape, generator=torch.Generator().manual_seed(1))
        old = torch.cat([log_prob(actor, o, a) for o, a in zip(obs.split(16), action.split(16), strict=True)])
    rows = torch.randperm(160, generator=torch.Generator().manual_seed(2))[:50]
    new = log_prob(actor, obs[rows], action[rows])
    assert (new - old[rows]).exp().sub(1).abs().max() < 1e-5
    if conversion.layers:
        assert (log_prob(make_actor(network), obs, action) - old).abs().max() > 1e-5  # it does round


def test_ratio_of_a_unit_scaled_network(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor()
    to_unit(actor, 50, torch.Generator().manual_seed(3))
    obs = observations(160)
    plain = actor.distribution(obs)[0]
    conversion = convert(actor, "fp8-unit", parametrization="unit")
    assert len(conversion.layers) == 11
    with torch.no_grad():
        means = torch.cat([actor.distribution(part)[0] for part in obs.split(16)])
    action = means + 0.4
    old = log_prob(actor, obs[:16], action[:16])
    assert (log_prob(actor, obs[:50], action[:50])[:16] - old).exp().sub(1).abs().max() < 1e-5
    assert 1e-4 < ((means - plain).norm() / plain.norm()).item() < 0.3


def test_scales_of_whole_tensors_do_not_keep_the_ratio(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor()
    convert(actor, replace(find_recipe("fp8-amax"), x=OperandConfig(kind="fp32")))
    obs = observations(160)
    obs[100:] *= 5
    with torch.no_grad():
        difference = actor.distribution(obs)[0][:16] - actor.distribution(obs[:16])[0]
    assert difference.abs().max() > 1e-4


@pytest.mark.parametrize("recipe", STANDARD)
def test_frozen_components_get_no_gradient_gemms(
    recipe: str, make_actor: MakeActor, observations: Observations
) -> None:
    actor = make_actor()
    freeze(actor, ("encoder", "message", "decoder"))
    conversion = convert(actor, recipe)
    actor.distribution(observations(8))[0].sum().backward()
    for name, gemm in conversion.layers.items():
        frozen = name.startswith(("message", "decoder"))
        assert gemm.gemms["output"] > 0
        assert (gemm.gemms["grad_weight"] == 0) == frozen, name
    if recipe != "fp32":
        # The first round's messages and gates read the frozen encoder's states: no gradient for them.
        first = conversion.layers["message.layers.0"].gemms
        assert (first["output"], first["grad_input"]) == (2, 1)
        gates = conversion.layers["update.joint.gates"].gemms
        assert (gates["output"], gates["grad_input"], gates["grad_weight"]) == (2, 1, 2)


@pytest.mark.parametrize("recipe", STANDARD)
def test_parameters_and_state_dict_stay(recipe: str, make_actor: MakeActor, observations: Observations) -> None:
    actor, obs = make_actor(), observations(4)
    plain = actor.distribution(obs)[0]
    before = dict(actor.named_parameters())
    conversion = convert(actor, recipe)
    assert all(p is before[name] for name, p in actor.named_parameters())
    assert is_converted(actor) == (recipe != "fp32")
    other = make_actor(hidden_size=16)
    other.load_state_dict(actor.state_dict(), strict=True)
    assert torch.equal(other.distribution(obs)[0], plain)
    conversion.revert()
    assert not is_converted(actor)
    assert torch.equal(actor.distribution(obs)[0], plain)
    assert type(actor.get_submodule("decoder.layers.0")) is nn.Linear


@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"fused": True}], ids=["plain", "foreach", "fused"])
def test_steps_of_every_kind_of_optimiser_are_noticed(
    how: dict[str, bool], make_actor: MakeActor, observations: Observations
) -> None:
    """Fused optimisers do not raise version counters. Weights that are not in the optimiser stay as they are."""
    actor, obs = make_actor(), observations(4)
    freeze(actor, ("message",))
    conversion = convert(actor, "fp8-amax")
    optimiser = torch.optim.Adam([p for p in actor.parameters() if p.requires_grad], lr=0.1, **how)
    counts = {name: gemm.quantisers["w"] for name, gemm in conversion.layers.items()}
    for step in range(3):
        actor.distribution(obs)[0].sum().backward()
        optimiser.step()
        fresh = make_actor()
        fresh.load_state_dict(actor.state_dict())
        convert(fresh, "fp8-amax")
        assert torch.equal(actor.distribution(obs)[0], fresh.distribution(obs)[0])
        assert counts["decoder.layers.0"].tensors == step + 2
        assert counts["message.layers.0"].tensors == 1


def test_a_conversion_goes_with_its_module(make_actor: MakeActor) -> None:
    gc.collect()
    hooks = len(_global_optimizer_post_hooks)
    actor = make_actor()
    conversion = convert(actor, "fp8-amax")
    assert len(_global_optimizer_post_hooks) == hooks + 1
    conversion.revert()
    assert len(_global_optimizer_post_hooks) == hooks
    convert(actor, "fp8-amax")
    gc.collect()
    assert len(_global_optimizer_post_hooks) == hooks + 1
    del actor, conversion
    gc.collect()
    assert len(_global_optimizer_post_hooks) == hooks


def test_fp32_is_the_network_as_it_is(make_actor: MakeActor, observations: Observations) -> None:
    actor, obs = make_actor(), observations(4)
    plain = actor.distribution(obs)[0]
    conversion = convert(actor, "fp32")
    assert torch.equal(actor.distribution(obs)[0], plain)
    assert conversion.step().flop_shares["fp32"] == 1.0
    assert "15 in fp32" in conversion.report()


def test_oracle_23_mixture_of_bf16_alone_is_the_bf16_recipe(make_actor: MakeActor, observations: Observations) -> None:
    obs = observations(16)
    mor = find_recipe("fp8-mor")
    for choice in ("immediate", "cached"):
        never = {name: replace(mor.operand(name), thresholds=(-1.0, -1.0)) for name in "xwg"}
        gradients = []
        for recipe in (replace(mor, mixture=replace(mor.mixture, choice=choice), **never), "bf16"):
            actor = make_actor()
            conversion = convert(actor, recipe)
            actor.distribution(obs)[0].square().sum().backward()
            if choice == "cached" and recipe != "bf16":
                assert conversion.step().operand_shares["e4m3"] == 1.0  # until there is something to go by
            actor.zero_grad()
            actor.distribution(obs)[0].square().sum().backward()
            gradients.append([p.grad for p in actor.parameters() if p.grad is not None])
        assert len(gradients[0]) > 10
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("recipe", [name for name in STANDARD if name != "fp32"])
@pytest.mark.parametrize("network", ["nervenet", "mlp"])
def test_odd_widths_one_row_and_zeros(
    recipe: str, network: str, make_actor: MakeActor, observations: Observations
) -> None:
    actor = make_actor(network, hidden_size=50, propagation_steps=1)
    conversion = convert(actor, recipe, sampling="always")
    for obs in (observations(1), torch.zeros_like(observations(3)), observations(0)):
        actor.zero_grad()
        actor.distribution(obs)[0].sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in actor.parameters())
    reading = conversion.step()
    assert reading.nonfinite == 0
    assert all(math.isfinite(value) for value in reading.scalars().values())


def test_state_comes_back(make_actor: MakeActor, observations: Observations) -> None:
    delayed = OperandConfig(scale="delayed", history=4)
    recipes = ["fp8-amax", "fp8-cscale", "fp8-mor", Recipe("delayed", delayed, delayed, replace(delayed, margin=1))]
    for recipe in recipes:
        first, second = make_actor("mlp"), make_actor("mlp")
        conversion, restored = convert(first, recipe), convert(second, recipe)
        first.distribution(1e3 * observations(8))[0].sum().backward()
        conversion.step()
        state = conversion.state_dict()
        assert all(value.device.type == "cpu" for value in state.values())
        restored.load_state_dict(copy.deepcopy(state))
        assert {k: v.tolist() for k, v in restored.state_dict().items()} == {k: v.tolist() for k, v in state.items()}
        assert torch.equal(second.distribution(observations(4))[0], first.distribution(observations(4))[0])
    assert set(state) == {f"hidden.layers.1/{operand}/amax_history" for operand in "xwg"}
    assert (state["hidden.layers.1/x/amax_history"] > 0).tolist() == [True, False, False, False]


def test_state_of_other_layers_is_refused(make_actor: MakeActor) -> None:
    state = convert(make_actor(), "fp8-cscale").state_dict()
    assert state["update.joint.gates/g/exponent"].item() == 8
    with pytest.raises(
        UserError, match=r"state of recipe 'fp8-cscale' does not fit, it differs in decoder\.layers\.0/g"
    ):
        convert(make_actor("mlp"), "fp8-cscale").load_state_dict(state)


def test_a_constant_comes_from_the_state(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor("mlp")
    conversion = convert(actor, "fp8-cscale")
    before = actor.distribution(observations(4))[0]
    state = conversion.state_dict()
    state["hidden.layers.1/w/exponent"] = torch.tensor(-4)
    conversion.load_state_dict(state)
    assert not torch.equal(actor.distribution(observations(4))[0], before)


def test_copies_compute_the_same(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor()
    convert(actor, "fp8-amax")
    wanted = actor.distribution(observations(3))[0]
    twin = copy.deepcopy(actor)
    assert torch.equal(twin.distribution(observations(3))[0], wanted)
    assert isinstance(twin.get_submodule("message.layers.0"), QuantisedLinear)


def test_rules_of_ones_own(make_actor: MakeActor) -> None:
    rules = (Rule("decoder*", "bf16", "demoted"), *find_recipe("fp8-amax").rules)
    rows = {
        row.name: row.precision for row in convert(make_actor(), replace(find_recipe("fp8-amax"), rules=rules)).rows
    }
    assert (rows["decoder.layers.0"], rows["message.layers.0"]) == ("bf16", "fp8-amax")


def test_errors_name_what_is_wrong(make_actor: MakeActor) -> None:
    actor = make_actor("mlp")
    for arguments, message in (
        ({"recipe": "fp8"}, r"precision = 'fp8' is not a recipe: .*fp8-amax"),
        ({"recipe": "fp8-unit"}, "'fp8-unit' is for networks with parametrization: unit, this one's is standard"),
        ({"recipe": "fp8-amax", "backend": "cutlass"}, "backend = 'cutlass' is unknown: choose from auto, emulate"),
        ({"recipe": "fp8-amax", "sampling": "often"}, "sampling = 'often' is unknown"),
        (
            {"recipe": "bf16", "backend": "scaled_mm"},
            "backend 'scaled_mm' computes in 8 bits, precision 'bf16' does not",
        ),
        ({"recipe": BLOCKS, "backend": "scaled_mm"}, "backend 'scaled_mm' cannot compute precision 'blocks'"),
    ):
        with pytest.raises(UserError, match=message):
            convert(actor, **arguments)  # type: ignore[arg-type]
    assert not is_converted(actor)
    convert(actor, "bf16")
    with pytest.raises(UserError, match="converted already"):
        convert(actor, "fp8-amax")


BLOCKS = Recipe("blocks", x=OperandConfig(granularity="block", block=(1, 8)))


def test_block_scales(make_actor: MakeActor, observations: Observations) -> None:
    obs = observations(6)
    plain = make_actor("mlp").distribution(obs)[0]
    actor = make_actor("mlp")
    convert(actor, BLOCKS)
    difference = (actor.distribution(obs)[0] - plain).abs().max()
    assert 0 < difference < 0.1 * plain.abs().max()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"formats": ()}, "an operand needs a format"),
        ({"formats": ("fp4",)}, "'fp4' is not a number format"),
        ({"scale": "max"}, "scale = 'max' is unknown"),
        ({"scale": "delayed", "granularity": "row"}, "delayed scales are the tensor's"),
        ({"block": (0, 8)}, "at least 1"),
        ({"formats": ("e4m3", "bf16"), "thresholds": ()}, "a mixture of 2 formats needs 1 thresholds"),
        ({"group": "row"}, "rows share a mantissa only where"),
        ({"exponent": 99}, "exponent = 99 of a constant scale"),
    ],
)
def test_wrong_operand_configs(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        OperandConfig(**arguments)  # type: ignore[arg-type]
