"""Scales: invariants over the whole range, guards, group mantissas."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from snowflake.numerics.formats import E4M3, E5M2, Format, quantise
from snowflake.numerics.scales import amax, best_exponent, exp2, expand_blocks, fp32_scale, gam_scale, pow2_scale

EIGHT_BITS = [pytest.param(E4M3, id="e4m3"), pytest.param(E5M2, id="e5m2")]


def magnitudes(count: int = 100_000) -> Tensor:
    """Return magnitudes over 2^-100..2^100, and those at and next to 448 * 2^k."""
    spread = torch.exp2(torch.empty(count).uniform_(-100, 100, generator=torch.Generator().manual_seed(0)))
    exact = 448.0 * exp2(torch.arange(-100, 101, dtype=torch.int32))
    around = [torch.nextafter(exact, torch.tensor(end)) for end in (math.inf, 0.0)]
    return torch.cat([spread, exact, *around, exp2(torch.arange(-100, 101, dtype=torch.int32))])


@pytest.mark.parametrize("fmt", EIGHT_BITS)
def test_oracle_6_power_of_two_scale(fmt: Format) -> None:
    largest = magnitudes()
    scale = pow2_scale(largest, fmt)
    assert (torch.frexp(scale)[0] == 0.5).all()
    scaled = largest.double() * scale.double()
    assert (scaled <= fmt.max).all()
    assert (2 * scaled > fmt.max).all()
    mantissa, exponent = torch.frexp(largest)
    rule = fmt.max_exponent - (exponent - 1) - (2 * mantissa > 1.75).int()
    assert torch.equal(torch.log2(scale), rule.float())


def test_oracle_6_at_448_exactly() -> None:
    k = torch.arange(-100, 101, dtype=torch.int32)
    assert torch.equal(pow2_scale(448.0 * exp2(k), E4M3), exp2(-k))


def test_margin_and_limit() -> None:
    assert pow2_scale(torch.tensor([1.0, 2.0**-60, 2.0**60]), E4M3, limit=31).tolist() == [256.0, 2.0**31, 2.0**-31]
    assert pow2_scale(torch.tensor(1.0), E5M2, margin=3).item() == 2.0**12
    assert fp32_scale(torch.tensor(1.0), E4M3, margin=1).item() == 224.0


@pytest.mark.parametrize("scale", [pow2_scale, fp32_scale, lambda a, fmt: gam_scale(a, a, fmt)])
def test_oracle_14_zero_infinity_and_nan_have_no_scale(scale: object) -> None:
    largest = torch.tensor([0.0, math.inf, math.nan, 1e-45, 3e38])
    result = scale(largest, E4M3)  # type: ignore[operator]
    assert result[:3].tolist() == [1.0, 1.0, 1.0]
    assert result.isfinite().all()
    assert (1 / result).isfinite().all()
    assert (result > 0).all()


def test_fp32_scale_is_the_rounded_quotient() -> None:
    largest = torch.tensor([3.0, 0.1, 7.7e4])
    wanted = [448.0 / v for v in largest.tolist()]
    assert fp32_scale(largest, E4M3).tolist() == torch.tensor(wanted, dtype=torch.float64).float().tolist()


def test_amax_of_tensor_rows_and_blocks() -> None:
    x = torch.tensor([[1.0, -5.0, 2.0], [0.0, 0.0, -3.0], [4.0, 0.5, 0.0]])
    assert amax(x).item() == 5.0
    assert amax(x, "row").tolist() == [[5.0], [3.0], [4.0]]
    assert amax(x, "block", (2, 2)).tolist() == [[5.0, 3.0], [4.0, 0.0]]
    assert amax(torch.tensor([[1.0, math.nan], [math.inf, 2.0]]), "row")[0].isnan().all()
    assert amax(torch.tensor([[1.0], [-math.inf]])).item() == math.inf
    for granularity, shape in (("tensor", ()), ("row", (0, 1)), ("block", (0, 1))):
        assert amax(torch.zeros(0, 3), granularity).shape == shape
    assert amax(torch.zeros(0, 3)).item() == 0.0
    assert expand_blocks(torch.tensor([[1, 2], [3, 4]]), (2, 2), (3, 3)).tolist() == [[1, 1, 2], [1, 1, 2], [3, 3, 4]]


@pytest.mark.parametrize("fmt", EIGHT_BITS)
def test_oracle_21_group_amax_mantissa(fmt: Format) -> None:
    generator = torch.Generator().manual_seed(0)
    spread = torch.exp2(torch.empty(64, 1).uniform_(-12, 12, generator=generator))
    x = torch.randn(64, 32, generator=generator) * spread
    largest, group = amax(x, "row"), amax(x)
    scale = gam_scale(largest, group, fmt)
    ideal = fp32_scale(largest, fmt)
    assert (scale <= ideal).all()
    assert (scale > ideal / 2).all()
    assert (largest.double() * scale.double() <= fmt.max * (1 + 2.0**-23)).all()  # the scale is rounded to float32
    assert (quantise(x * scale, fmt).abs().amax(1) <= fmt.max).all()
    assert torch.frexp(scale)[0].unique().numel() == 1  # one mantissa for the whole tensor
    top = largest.argmax()
    assert quantise(largest.flatten()[top] * scale.flatten()[top], fmt).item() == fmt.max


@given(st.floats(2.0**-60, 2.0**60), st.sampled_from([E4M3, E5M2]))
@settings(max_examples=50, deadline=None)
def test_oracle_24_gam_of_a_whole_tensor_is_amax_scaling(largest: float, fmt: Format) -> None:
    value = torch.tensor(largest)
    assert gam_scale(value, value, fmt).item() == fp32_scale(value, fmt).item()


def test_best_exponent_uses_the_range() -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    b = best_exponent(x, E4M3)
    assert 448 / 2 < 2 * x.abs().max().item() * 2.0**b <= 4 * 448
    assert best_exponent(x * 2.0**-10, E4M3) == b + 10
