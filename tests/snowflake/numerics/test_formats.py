"""The 8-bit formats and the quantiser, against their definitions, torch's casts and ml_dtypes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agents.errors import UserError
from snowflake.numerics.formats import BF16, E4M3, E5M2, Format, decode, encode, find_format, quantise

EIGHT_BITS = [pytest.param(E4M3, id="e4m3"), pytest.param(E5M2, id="e5m2")]


def numbers(fmt: Format) -> list[float]:
    """Return what the 256 codes of a format stand for, from the definition: sign, exponent, mantissa."""
    exponent_bits = 7 - fmt.mantissa_bits
    bias, steps = 2 ** (exponent_bits - 1) - 1, 2**fmt.mantissa_bits
    result = []
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        exponent, mantissa = (code & 0x7F) >> fmt.mantissa_bits, code & (steps - 1)
        top = exponent == 2**exponent_bits - 1
        if fmt is E5M2 and top:
            value = math.inf if mantissa == 0 else math.nan
        elif fmt is E4M3 and top and mantissa == steps - 1:
            value = math.nan
        elif exponent == 0:
            value = mantissa / steps * 2.0 ** (1 - bias)
        else:
            value = (1 + mantissa / steps) * 2.0 ** (exponent - bias)
        result.append(sign * value)
    return result


def nearest_even(x: float, grid: list[float]) -> float:
    """Return the number of a sorted grid of magnitudes that is nearest to x, of equally near ones the even one.

    The codes of neighbours follow each other, so the even one is at an even place.
    """
    distances = [abs(Fraction(abs(x)) - Fraction(value)) for value in grid]
    best = min(distances)
    places = [i for i, d in enumerate(distances) if d == best]
    place = places[0] if len(places) == 1 or places[0] % 2 == 0 else places[1]
    return math.copysign(grid[place], x)


def magnitudes(fmt: Format) -> list[float]:
    return [value for value in numbers(fmt)[:128] if math.isfinite(value)]


def near_midpoints(fmt: Format) -> Tensor:
    """Return all midpoints between neighbours with the float32 numbers on both sides of them, both signs."""
    grid = np.array(magnitudes(fmt), dtype=np.float32)
    middle = (grid[:-1] + grid[1:]) / 2
    inf = np.float32(np.inf)
    x = np.concatenate([middle, np.nextafter(middle, inf), np.nextafter(middle, -inf), grid])
    return torch.tensor(np.concatenate([x, -x]))


@pytest.mark.parametrize("fmt", EIGHT_BITS)
def test_oracle_1_all_256_codes(fmt: Format) -> None:
    wanted = torch.tensor(numbers(fmt))
    codes = torch.arange(256, dtype=torch.uint8)
    values = decode(codes, fmt)
    torch.testing.assert_close(values, wanted, rtol=0, atol=0, equal_nan=True)
    finite = torch.isfinite(wanted)
    assert torch.equal(encode(values[finite], fmt).view(torch.uint8), codes[finite])
    assert len(set(wanted[finite].tolist())) == {"e4m3": 253, "e5m2": 247}[fmt.name]
    assert int(wanted.isnan().sum()) == {"e4m3": 2, "e5m2": 6}[fmt.name]
    positive = wanted[finite & (wanted > 0)]
    assert (positive.max(), positive.min()) == (fmt.max, fmt.min_subnormal)
    table = {"e4m3": (448.0, 2.0**-6, 2.0**-9, 8), "e5m2": (57344.0, 2.0**-14, 2.0**-16, 15)}[fmt.name]
    assert (fmt.max, fmt.min_normal, fmt.min_subnormal, fmt.max_exponent) == table


@pytest.mark.parametrize("fmt", EIGHT_BITS)
def test_oracle_2_midpoints_and_their_neighbours(fmt: Format) -> None:
    x = near_midpoints(fmt)
    grid = magnitudes(fmt)
    wanted = torch.tensor([nearest_even(v, grid) for v in x.tolist()])
    assert torch.equal(quantise(x, fmt), wanted)
    assert torch.equal(torch.signbit(quantise(x, fmt)), torch.signbit(wanted))
    assert torch.equal(x.clamp(-fmt.max, fmt.max).to(fmt.dtype).to(torch.float32), wanted)


@pytest.mark.parametrize("fmt", EIGHT_BITS)
def test_oracle_2_random_bit_patterns_against_the_clamped_cast(fmt: Format) -> None:
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=torch.Generator().manual_seed(0))
    x = torch.cat([bits.to(torch.int32).view(torch.float32), torch.arange(2**16).to(torch.int16).view(torch.bfloat16)])
    wanted = x.clamp(-fmt.max, fmt.max).to(fmt.dtype).view(torch.uint8)
    nan = x.isnan()
    assert torch.equal(encode(x, fmt).view(torch.uint8)[~nan], wanted[~nan])
    assert quantise(x, fmt)[nan].isnan().all()
    assert quantise(x, fmt)[~nan].isfinite().all()


@pytest.mark.parametrize("fmt", EIGHT_BITS)
def test_oracle_2_against_ml_dtypes(fmt: Format) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    spread = torch.randn(20_000, generator=torch.Generator().manual_seed(1)) * torch.exp2(
        torch.linspace(-20, 8, 20_000)
    )
    x = torch.cat([near_midpoints(fmt), spread]).clamp(-fmt.max, fmt.max)
    other = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[fmt.name]
    np.testing.assert_array_equal(quantise(x, fmt).numpy(), x.numpy().astype(other).astype(np.float32))


@pytest.mark.parametrize("fmt", EIGHT_BITS)
def test_oracle_2_against_gfloat(fmt: Format) -> None:
    """It rounds numbers one by one, in float64, from the definition of the format."""
    gfloat = pytest.importorskip("gfloat")
    formats = pytest.importorskip("gfloat.formats")
    info = {"e4m3": formats.format_info_ocp_e4m3, "e5m2": formats.format_info_ocp_e5m2}[fmt.name]
    special = [464.0, 465.0, 61440.0, 1e9, -1e9, math.inf, -math.inf]
    x = torch.cat([near_midpoints(fmt), torch.tensor(special)])
    wanted = [gfloat.round_float(info, v, gfloat.RoundMode.TiesToEven, True) for v in x.tolist()]
    assert quantise(x, fmt).tolist() == wanted


@pytest.mark.parametrize(("fmt", "normal"), [(E4M3, 1 / 17), (E5M2, 1 / 9)], ids=["e4m3", "e5m2"])
def test_oracle_3_error_bounds(fmt: Format, normal: float) -> None:
    x = torch.exp2(torch.empty(200_000).uniform_(-20, fmt.max_exponent, generator=torch.Generator().manual_seed(0)))
    x = torch.cat([x, near_midpoints(fmt).abs()])
    error = (quantise(x, fmt) - x).abs()
    big = (x >= fmt.min_normal) & (x <= fmt.max)
    assert (error[big] / x[big]).max() <= normal
    assert (error[big] / x[big]).max() > 0.999 * normal
    assert error[~big & (x < 1)].max() <= fmt.min_subnormal / 2
    half = fmt.min_subnormal / 2  # 2^-10 and 2^-17
    assert quantise(torch.tensor([half, 0.7 * half, 3 * half / 2]), fmt).tolist() == [0.0, 0.0, 2 * half]


def test_oracle_4_ties_saturation_and_signs() -> None:
    x = torch.tensor([1.0625, 1.1875, 464.0, 465.0, 1e9, math.inf, -math.inf, -0.0, 0.0])
    y = quantise(x, E4M3)
    assert y.tolist() == [1.0, 1.25, 448.0, 448.0, 448.0, 448.0, -448.0, 0.0, 0.0]
    assert torch.signbit(y[-2:]).tolist() == [True, False]
    assert quantise(torch.tensor([61440.0, math.inf]), E5M2).tolist() == [57344.0, 57344.0]
    assert quantise(torch.tensor([math.nan, -math.nan]), E4M3).isnan().all()
    assert quantise(torch.tensor([math.nan, -math.nan]), E5M2).isnan().all()
    assert torch.signbit(quantise(torch.tensor([-1e-9]), E5M2)).item()


@pytest.mark.parametrize("fmt", [E4M3, E5M2, BF16], ids=lambda f: f.name)
def test_oracle_5_mean_and_rms_relative_error(fmt: Format) -> None:
    x = torch.exp2(torch.rand(200_000, generator=torch.Generator().manual_seed(0)))
    relative = ((quantise(x, fmt) - x) / x).abs()
    assert relative.mean().item() == pytest.approx(2.0**-fmt.mantissa_bits / (8 * math.log(2)), rel=0.02)
    rms = relative.square().mean().sqrt().item()
    assert rms == pytest.approx(2.0**-fmt.mantissa_bits * math.sqrt(1 / (32 * math.log(2))), rel=0.02)


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(floats, min_size=1, max_size=20), st.sampled_from([E4M3, E5M2, BF16]))
@settings(max_examples=60, deadline=None)
def test_oracle_7_idempotent(values: list[float], fmt: Format) -> None:
    once = quantise(torch.tensor(values), fmt)
    assert torch.equal(quantise(once, fmt), once)


@given(st.lists(floats, min_size=1, max_size=20), st.integers(-8, 8), st.sampled_from([E4M3, E5M2]))
@settings(max_examples=60, deadline=None)
def test_oracle_7_scaling_commutes_away_from_the_ends(values: list[float], k: int, fmt: Format) -> None:
    x = torch.tensor(values)
    scaled = x * 2.0**k
    inside = (x.abs() >= fmt.min_normal) & (x.abs() <= fmt.max)
    inside &= (scaled.abs() >= fmt.min_normal) & (scaled.abs() <= fmt.max)
    assert torch.equal(quantise(scaled, fmt)[inside], quantise(x, fmt)[inside] * 2.0**k)


@given(st.lists(floats, min_size=2, max_size=20), st.sampled_from([E4M3, E5M2]))
@settings(max_examples=60, deadline=None)
def test_quantisation_is_odd_and_monotone(values: list[float], fmt: Format) -> None:
    x = torch.tensor(sorted(values))
    y = quantise(x, fmt)
    assert torch.equal(quantise(-x, fmt), -y)
    assert (y.diff() >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_inputs_are_widened_first(dtype: torch.dtype) -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert torch.equal(quantise(x, E4M3), quantise(x.float(), E4M3))
    assert quantise(x, E4M3).dtype == torch.float32


def test_layout_does_not_matter() -> None:
    x = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    assert torch.equal(quantise(x.t()[::2], E4M3), quantise(x, E4M3).t()[::2])
    assert quantise(x[:0], E4M3).shape == (0, 10)


def test_bf16_is_the_plain_cast_and_keeps_infinity() -> None:
    x = torch.tensor([1.0 + 2.0**-8, math.inf, 3.4e38])
    assert quantise(x, BF16).tolist() == [1.0, math.inf, math.inf]


def test_unknown_format() -> None:
    with pytest.raises(UserError, match=r"'e4m4' is not a number format: did you mean 'e4m3'"):
        find_format("e4m4")


@pytest.mark.slow
@pytest.mark.parametrize("fmt", EIGHT_BITS)
def test_compiled_is_the_same(fmt: Format) -> None:
    bits = torch.randint(-(2**31), 2**31, (100_000,), generator=torch.Generator().manual_seed(0))
    x = torch.cat([bits.to(torch.int32).view(torch.float32), near_midpoints(fmt), torch.tensor([-0.0, math.nan])])
    compiled, eager = torch.compile(quantise)(x, fmt), quantise(x, fmt)
    nan = eager.isnan()
    assert torch.equal(compiled.isnan(), nan)
    assert torch.equal(compiled[~nan].view(torch.int32), eager[~nan].view(torch.int32))
