"""Statistics of operands, against values worked out by hand, and shares of formats and operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from snowflake.networks import Actor
from snowflake.numerics import OperandConfig, convert, find_recipe
from snowflake.numerics.config import MixtureConfig
from snowflake.numerics.gemm import SAMPLES
from snowflake.numerics.operand import Quantiser
from snowflake.numerics.stats import OperandStatistics, Statistics

MakeActor = Callable[..., Actor]
Observations = Callable[[int], Tensor]


def look_at(x: Tensor, config: OperandConfig) -> OperandStatistics:
    statistics = Statistics(["other", "x"])
    Quantiser("x", config, MixtureConfig(), statistics)(x, sample=True)
    found = statistics.read()
    assert set(found) == {"x"}
    return found["x"]


def test_every_number_by_hand() -> None:
    """Constant scale 1: 500 saturates to 448, 448 does not, 2^-11 is flushed, 2^-8 is subnormal, 1.0625 rounds to 1."""
    x = torch.tensor([[500.0, 2.0**-11, 2.0**-8, 1.0625], [0.0, -2.0, 448.0, 2.0**-6]])
    seen = look_at(x, OperandConfig(scale="const"))
    assert (seen.tensors, seen.amax, seen.nonfinite) == (1, 500.0, 0)
    assert (seen.log2_scale, seen.log2_scale_min, seen.log2_scale_max) == (0.0, 0.0, 0.0)
    assert (seen.sat_frac, seen.flush_frac, seen.subnormal_frac) == (1 / 8, 1 / 8, 2 / 8)
    assert seen.mean_rel == pytest.approx((52 / 500 + 1 + 0.0625 / 1.0625) / 7)
    assert seen.rms == pytest.approx(math.sqrt(x.double().square().mean().item()))
    error = math.sqrt(52**2 + 2.0**-22 + 0.0625**2)
    assert seen.rms_rel == pytest.approx(error / x.double().norm().item())
    assert seen.formats == {"e4m3": 1.0, "e5m2": 0.0, "bf16": 0.0}


def test_scales_of_rows() -> None:
    x = torch.tensor([[1.0, 0.5], [2.0**-4, 0.0], [0.0, 0.0]])
    seen = look_at(x, OperandConfig(granularity="row"))
    assert (seen.log2_scale_min, seen.log2_scale_max) == (0.0, 12.0)  # all zero: scale 1
    assert seen.log2_scale == pytest.approx((8 + 12 + 0) / 3)
    assert (seen.mean_rel, seen.rms_rel) == (0.0, 0.0)


@pytest.mark.parametrize("scale", ["gam", "amax"])
def test_the_largest_number_under_its_own_scale_is_not_saturated(scale: str) -> None:
    """Rounded to float32, 448 / amax times amax is often more than 448, by one part in 2^24."""
    x = torch.rand(4096, 1, generator=torch.Generator().manual_seed(0)) + 0.5
    seen = look_at(x, OperandConfig(scale=scale, kind="fp32", granularity="row"))
    assert (x.double() * (448.0 / x.double()).float().double() > 448.0).double().mean() > 0.1
    assert seen.sat_frac == 0.0


def test_numbers_that_are_not_finite_are_counted_and_left_out() -> None:
    seen = look_at(torch.tensor([[1.0, math.inf], [math.nan, 2.0], [3.0, 4.0]]), OperandConfig(granularity="row"))
    assert seen.nonfinite == 2
    assert seen.amax == 4.0
    assert seen.rms == pytest.approx(math.sqrt((1 + 4 + 9 + 16) / 6))


def test_reading_starts_anew_and_tensors_add_up() -> None:
    statistics = Statistics(["x"])
    quantiser = Quantiser("x", OperandConfig(), MixtureConfig(), statistics)
    quantiser(torch.full((2, 2), 4.0), sample=True)
    quantiser(torch.full((4, 1), 2.0), sample=True)
    quantiser(torch.full((4, 1), 99.0))  # not looked at
    seen = statistics.read()["x"]
    assert (seen.tensors, seen.amax, seen.rms) == (2, 4.0, pytest.approx(math.sqrt(10)))
    assert statistics.read() == {}


def test_one_transfer_from_the_device_per_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = Statistics(["a", "b"])
    for key in ("a", "b"):
        Quantiser(key, OperandConfig(), MixtureConfig(), statistics)(torch.ones(2, 2), sample=True)
    transfers = []
    cpu = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda t: transfers.append(t.shape) or cpu(t))
    assert set(statistics.read()) == {"a", "b"}
    assert len(transfers) == 1


@pytest.mark.parametrize("scale", ["amax", "delayed"])
def test_rollouts_in_inference_mode_come_before_training(
    scale: str, make_actor: MakeActor, observations: Observations
) -> None:
    config = OperandConfig(scale=scale)
    actor = make_actor("mlp")
    conversion = convert(actor, replace(find_recipe("fp8-amax"), x=config, w=config, g=config), sampling="always")
    for _ in range(2):
        with torch.inference_mode():
            actor.distribution(observations(4))
            conversion.step()
            actor.distribution(observations(4))
        actor.distribution(observations(4))[0].sum().backward()
        assert conversion.step().operands["hidden.layers.1/x"].tensors == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("recipe", ["fp8-amax", "fp8-cscale", "fp8-mor"])
def test_nothing_waits_for_the_gpu(recipe: str, make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor().cuda()
    conversion = convert(actor, recipe, sampling="always")
    obs = observations(32).cuda()
    actor.distribution(obs)[0].sum().backward()  # the probe waits
    conversion.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        actor.distribution(obs)[0].sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert conversion.step().operands


def test_training_is_sampled_and_rollouts_are_not(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor("mlp")
    conversion = convert(actor, "fp8-amax")
    with torch.no_grad():
        actor.distribution(observations(4))
    assert set(conversion.step().operands) == {"hidden.layers.1/w"}
    for _ in range(SAMPLES + 3):
        actor.distribution(observations(4))[0].sum().backward()
    operands = conversion.step().operands
    assert {key: seen.tensors for key, seen in operands.items()} == {
        "hidden.layers.1/x": SAMPLES, "hidden.layers.1/w": 1, "hidden.layers.1/g": SAMPLES
    }  # fmt: skip
    always = convert(make_actor("mlp"), "fp8-amax", sampling="always")
    assert always.step().operands == {}


@pytest.mark.parametrize("recipe", ["fp8-amax", "fp8-mor", "bf16"])
def test_sampling_does_not_change_results(recipe: str, make_actor: MakeActor, observations: Observations) -> None:
    results = []
    for sampling in ("off", "always"):
        actor = make_actor()
        convert(actor, recipe, sampling=sampling)
        mean = actor.distribution(observations(5))[0]
        mean.sum().backward()
        results.append([mean, *(p.grad for p in actor.parameters() if p.grad is not None)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_shares_of_operations(make_actor: MakeActor, observations: Observations) -> None:
    """Of a flat actor, 16 wide: the first layer and the output stay in fp32, x w^T is E4M3, g w and g^T x are E5M2."""
    actor = make_actor("mlp")
    conversion = convert(actor, "fp8-amax")
    obs = observations(6)
    actor.distribution(obs)[0].sum().backward()
    # The first layer has no grad_input: observations want none.
    width, actions = (
        actor.get_submodule("hidden.layers.0").weight.shape[1],
        actor.get_submodule("output").weight.shape[0],
    )
    plain, hidden = 2 * width * 16 + 3 * 16 * actions, 16 * 16
    reading = conversion.step()
    total = plain + 3 * hidden
    assert reading.flop_shares == pytest.approx(
        {"e4m3": hidden / total, "e5m2": 2 * hidden / total, "bf16": 0.0, "fp32": plain / total}
    )
    assert reading.operand_shares == pytest.approx({"e4m3": 2 / 3, "e5m2": 1 / 3, "bf16": 0.0})
    assert conversion.step().flop_shares == {"e4m3": 0.0, "e5m2": 0.0, "bf16": 0.0, "fp32": 0.0}


def test_shares_of_blocks(make_actor: MakeActor, observations: Observations) -> None:
    """Formats within a tensor are told by what was sampled, and a product counts as the wider of its two."""
    mor = find_recipe("fp8-mor")
    always, never = (1e9, 1e9), (-1.0, -1.0)
    recipe = replace(
        mor,
        x=replace(mor.x, thresholds=always),
        w=replace(mor.w, thresholds=never),
        g=replace(mor.g, thresholds=(-1.0, 1e9)),
        mixture=replace(mor.mixture, choice="immediate"),
    )
    actor = make_actor("mlp")
    conversion = convert(actor, recipe)
    actor.distribution(observations(6))[0].sum().backward()
    reading = conversion.step()
    shares = {key: seen.formats for key, seen in reading.operands.items()}
    assert [max(s, key=s.__getitem__) for s in shares.values()] == ["e4m3", "bf16", "e5m2"]
    assert reading.operand_shares == pytest.approx({"e4m3": 1 / 3, "e5m2": 1 / 3, "bf16": 1 / 3})
    flops = reading.flop_shares
    assert flops["e4m3"] == 0.0
    assert flops["bf16"] == pytest.approx(2 * flops["e5m2"])  # y and dx against dw


def test_scalars_have_tags(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor()
    conversion = convert(actor, "fp8-amax")
    actor.distribution(observations(3))[0].sum().backward()
    tags = conversion.step().scalars()
    assert tags["update.joint.gates/x/log2_scale"] >= 7
    assert tags["update.joint.gates/g/share_e5m2"] == 1.0
    assert tags["share/operands/e4m3"] == pytest.approx(2 / 3)
    scales = [value for tag, value in tags.items() if tag.endswith("/w/log2_scale")]
    assert len(scales) == 11
    assert (tags["log2_scale/w/min"], tags["log2_scale/w/max"]) == (min(scales), max(scales))
    assert min(scales) <= tags["log2_scale/w/median"] <= max(scales)
    assert tags["share/flops/fp32"] < 0.2
    assert (tags["nonfinite"], tags["format_changes"]) == (0.0, 0.0)
