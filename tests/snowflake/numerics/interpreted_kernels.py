"""Results of the kernels, on a GPU or in Triton's interpreter; `test_kernels.py` runs this in a process of its own."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from snowflake.numerics import kernels
from snowflake.numerics.backends import dequantised_product, find_backend, verdict
from snowflake.numerics.formats import E4M3, E5M2, Format, decode, encode, quantise
from snowflake.numerics.kernels import Tile, cast, fused_mlp, gemm, interpreting, pack
from snowflake.numerics.operand import Operand
from snowflake.numerics.scales import amax, pow2_scale

DEVICE = torch.device("cpu" if interpreting() else "cuda")
FORMATS = pytest.mark.parametrize("fmt", [E4M3, E5M2], ids=lambda fmt: fmt.name)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def one(value: float = 1.0) -> Tensor:
    return torch.tensor(value, device=DEVICE)


def same_codes(a: Tensor, b: Tensor, fmt: Format) -> bool:
    """Compare bit for bit, a NaN equal to any NaN."""
    nan = decode(a, fmt).isnan()
    return torch.equal(nan, decode(b, fmt).isnan()) and torch.equal(
        a.view(torch.uint8)[~nan], b.view(torch.uint8)[~nan]
    )


@FORMATS
def test_cast_rounds_like_the_quantiser(fmt: Format) -> None:
    # Every number of the format, every midpoint with its two neighbours, overflow, NaN, both zeros; then random bits.
    grid = torch.arange(256, dtype=torch.uint8).view(fmt.dtype).float()
    grid = grid[grid.isfinite()].sort().values
    middle = (grid[1:] + grid[:-1]) / 2
    up, down = torch.nextafter(middle, one(torch.inf).cpu()), torch.nextafter(middle, one(-torch.inf).cpu())
    special = torch.tensor([0.0, -0.0, 464.0, 465.0, 61440.0, 1e9, -1e9, torch.inf, -torch.inf, torch.nan])
    bits = torch.randint(-(2**31), 2**31 - 1, (20_000,), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    x = torch.cat([grid, middle, up, down, special, bits.view(torch.float32)])
    x = x[: len(x) // 32 * 32].view(-1, 32).to(DEVICE)
    done = cast(x, one(), fmt)
    assert same_codes(done.data, encode(x, fmt), fmt)
    # Negative control: truncation, which the interpreter's own cast does, is something else.
    truncated = (x.view(torch.int32) & -(1 << (23 - fmt.mantissa_bits))).view(torch.float32)
    assert not same_codes(done.data, encode(truncated, fmt), fmt)


@FORMATS
@pytest.mark.parametrize("shape", [(1, 1), (1, 13), (70, 50), (33, 130)])
def test_cast_measures_and_transposes(fmt: Format, shape: tuple[int, int]) -> None:
    x = normal(*shape)
    done = cast(x, one(16.0), fmt, transpose=True)
    assert same_codes(done.data, encode(x * 16.0, fmt), fmt)
    assert done.transposed is not None
    assert torch.equal(done.transposed.view(torch.uint8), done.data.view(torch.uint8).t())
    assert float(done.amax) == float(x.abs().max())
    assert int(done.nonfinite) == 0


def test_cast_counts_what_is_not_finite() -> None:
    x = normal(5, 7)
    x[0, 0], x[2, 3], x[4, 6] = torch.inf, torch.nan, -torch.inf
    done = cast(x, one(), E4M3)
    assert int(done.nonfinite) == 3
    assert float(done.amax) == float(x[x.isfinite()].abs().max())
    values = decode(done.data, E4M3)
    assert [float(values[0, 0]), float(values[4, 6]), bool(values[2, 3].isnan())] == [448.0, -448.0, True]
    zeros = cast(torch.zeros(3, 5, device=DEVICE), one(), E4M3)
    assert [float(zeros.amax), float(decode(zeros.data, E4M3).abs().max())] == [0.0, 0.0]
    empty = cast(torch.zeros(0, 5, device=DEVICE), one(), E4M3)
    assert [empty.data.shape, float(empty.amax)] == [(0, 5), 0.0]


@pytest.mark.parametrize("pair", [(E4M3, E4M3), (E5M2, E4M3), (E5M2, E5M2)], ids=["4-4", "5-4", "5-5"])
@pytest.mark.parametrize("shape", [(1, 13, 1), (70, 50, 33), (40, 256, 20)])
def test_gemm_is_exact_on_integers(pair: tuple[Format, Format], shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(-4, 5, (rows, inner), generator=generator).float().to(DEVICE)
    b = torch.randint(-4, 5, (columns, inner), generator=generator).float().to(DEVICE)
    y = gemm(encode(a, pair[0]), encode(b, pair[1]), one(0.5), one(0.25))
    assert torch.equal(y, (a @ b.t()) * 0.125)


def test_gemm_with_row_scales_and_as_a_backend() -> None:
    x, w = normal(37, 50), normal(20, 50, seed=1)
    operands = []
    for matrix in (x, w):
        scale = pow2_scale(amax(matrix, "row"), E4M3)
        operands.append(Operand(encode(matrix * scale, E4M3), 1.0 / scale, E4M3, True))
    backend = find_backend("triton")
    assert verdict(backend, DEVICE) == (True, "")
    assert backend.refuses(*operands) == ""
    y = backend.product(*operands)
    torch.testing.assert_close(y, dequantised_product(*operands), rtol=0, atol=50 * 2.0**-24 * 100)
    error = float((y - x @ w.t()).norm() / (x @ w.t()).norm())
    assert error == pytest.approx(2**0.5 * 0.02654, rel=0.05)
    assert "along the sum" in backend.refuses(
        operands[0], Operand(operands[1].data.t(), operands[1].decode.t(), E4M3, True)
    )


def reference(
    x: Tensor, layers: list[tuple[Tensor, Tensor]], scales: Tensor | None, c: float, alpha: float, last: bool
) -> Tensor:
    """Apply an MLP of quantised weights and inputs in float64."""
    h = x
    for i, (w, b) in enumerate(layers):
        s = pow2_scale(amax(h, "row"), E4M3) if scales is None else scales[i]
        sw = pow2_scale(amax(w), E4M3)
        y = (quantise(h * s, E4M3) / s).double() @ (quantise(w * sw, E4M3) / sw).double().t() * alpha + b
        h = (c * torch.tanh(y) if last or i < len(layers) - 1 else y).float()
    return h


@pytest.mark.parametrize("row_scales", [True, False])
@pytest.mark.parametrize(
    ("widths", "tile", "final_tanh"),
    [
        ((64, 64, 64, 64), None, True),
        ((50, 33, 7), None, False),
        ((13, 40, 64, 64, 3), Tile(64, 32, 4), True),
        ((1, 1), None, False),
    ],
)
def test_fused_mlp(row_scales: bool, widths: tuple[int, ...], tile: Tile | None, final_tanh: bool) -> None:
    shapes = list(zip(widths[1:], widths[:-1], strict=True))
    layers = [(normal(n, k, seed=i), 0.1 * normal(n, seed=9 + i)) for i, (n, k) in enumerate(shapes)]
    weights, biases = [w for w, _ in layers], [b for _, b in layers]
    scales = None if row_scales else torch.full((len(layers),), 16.0, device=DEVICE)
    alpha, c = 0.125, 1.5925
    packed = pack(weights, biases, final_tanh=final_tanh, alphas=[alpha] * len(layers), tanh_factor=c)
    x = normal(300, widths[0], seed=20)
    y, nonfinite = fused_mlp(x, packed, scales, tile=tile)
    assert (y.shape, int(nonfinite)) == ((300, widths[-1]), 0)
    want = reference(x, layers, scales, c, alpha, final_tanh)
    # A float32 sum may fall on the other side of a tie than the float64 one: one step of the grid, in a few numbers.
    off = (y - want).abs() > 1e-5 * (1 + want.abs())
    assert float(off.float().mean()) < 0.02
    assert float((y - want).norm() / want.norm()) < 5e-3
    exact = x
    for i, (w, b) in enumerate(layers):
        exact = exact @ w.t() * alpha + b
        exact = c * torch.tanh(exact) if final_tanh or i < len(layers) - 1 else exact
    assert 1e-3 < float((y - exact).norm() / exact.norm()) < 0.1  # it is FP8, and near the real thing
    alone, _ = fused_mlp(x[100:103], packed, scales, tile=tile)
    assert torch.equal(alone, y[100:103])


def test_fused_mlp_keeps_to_itself_what_is_not_finite() -> None:
    packed = pack([normal(32, 32), normal(32, 32, seed=1)], [None, None], final_tanh=True)
    x = normal(6, 32, seed=2)
    want, _ = fused_mlp(x, packed)
    x[1, 0], x[4, 31] = torch.inf, torch.nan
    y, nonfinite = fused_mlp(x, packed)
    assert int(nonfinite) == 2
    assert y[[1, 4]].isnan().all()
    rest = [0, 2, 3, 5]
    assert torch.equal(y[rest], want[rest])
    zeros, _ = fused_mlp(torch.zeros(2, 32, device=DEVICE), packed)
    assert torch.equal(zeros, torch.zeros_like(zeros))
    assert fused_mlp(x[:0], packed)[0].shape == (0, 32)
    with pytest.raises(RuntimeError, match="forward only"):
        fused_mlp(x.requires_grad_(), packed)


def test_the_gpu_benchmark_calls_the_kernels_rightly() -> None:
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "fp8_gpu.py"
    benchmark = runpy.run_path(str(path))
    weights = [normal(32, 32, seed=i) * 1.6 * 32**-0.5 for i in range(3)]
    x = normal(64, 32, seed=5).to(torch.bfloat16)
    want = benchmark["exact_mlp"](x, weights)
    variants = benchmark["mlp_variants"](weights, kernels)
    assert len([name for name in variants if name.startswith("fused")]) == 4
    for name, run in variants.items():
        if "scaled_mm" not in name or DEVICE.type == "cuda" or "Triton" in name:
            assert benchmark["relative_error"](run(x), want) < 0.1, name
    for name, run in benchmark["gemm_variants"](x, weights[0], kernels).items():
        exact = x.double() @ weights[0].double().t() if name.startswith("product") else x.double()
        result = run(x)
        assert benchmark["relative_error"](result.float(), exact) < 0.06, name
