"""The quantised product: exactness, errors as theory has them, which GEMMs are computed, guards."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snowflake.numerics import E4M3, E5M2, GemmConfig, OperandConfig, Recipe, find_recipe
from snowflake.numerics.gemm import QuantisedGemm
from snowflake.numerics.linear import QuantisedLinear
from snowflake.numerics.stats import Statistics

FP8 = ("fp8-amax", "fp8-cscale", "fp8-mor", "fp8-mor-blocks")
ALL = ("bf16", *FP8)
TENSOR = OperandConfig(kind="fp32")
TORCHAO = Recipe("tensor-wise", TENSOR, TENSOR, replace(TENSOR, formats=("e5m2",)))
PLAIN_AMAX = replace(find_recipe("fp8-amax"), x=OperandConfig())
Triple = tuple[Tensor, Tensor, Tensor]


def make(recipe: str | Recipe, backend: str = "emulate") -> tuple[QuantisedGemm, Statistics]:
    recipe = find_recipe(recipe) if isinstance(recipe, str) else recipe
    statistics = Statistics(["l/x", "l/w", "l/g"])
    return QuantisedGemm("l", recipe, statistics, backend), statistics


def run(gemm: QuantisedGemm, x: Tensor, w: Tensor, g: Tensor) -> Triple:
    """Return y, dx, dw."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    y = gemm(x, w)
    y.backward(g)
    assert x.grad is not None
    assert w.grad is not None
    return y.detach(), x.grad, w.grad


def exact(x: Tensor, w: Tensor, g: Tensor) -> Triple:
    return x @ w.t(), g @ w, g.t() @ x


def gaussian(m: int = 512, k: int = 256, n: int = 128, g_scale: float = 1.0) -> Triple:
    generator = torch.Generator().manual_seed(0)
    x, w, g = (torch.randn(shape, generator=generator) for shape in ((m, k), (n, k), (m, n)))
    return x, w, g * g_scale


def relative(a: Tensor, b: Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize("backend", ["emulate", "scaled_mm"])
@pytest.mark.parametrize("recipe", ["fp8-amax", "fp8-unit"])
def test_oracle_8_small_integers_are_exact(recipe: str, backend: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w, g = (torch.randint(-4, 5, s, generator=generator).float() for s in ((40, 256), (24, 256), (40, 24)))
    for got, wanted in zip(run(make(recipe, backend)[0], x, w, g), exact(x, w, g), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("recipe", [TORCHAO, PLAIN_AMAX, find_recipe("fp8-amax")], ids=["fp32", "pow2", "rows"])
def test_oracle_9_gaussian_errors(recipe: Recipe) -> None:
    x, w, g = gaussian()
    got = run(make(recipe)[0], x, w, g)
    errors = [relative(a, b) for a, b in zip(got, exact(x, w, g), strict=True)]
    assert errors == pytest.approx([0.0375, 0.0593, 0.0593], rel=0.05)


def test_oracle_9_bf16() -> None:
    x, w, g = gaussian()
    errors = [relative(a, b) for a, b in zip(run(make("bf16")[0], x, w, g), exact(x, w, g), strict=True)]
    assert errors == pytest.approx([math.sqrt(2) * 0.00166] * 3, rel=0.05)


@pytest.mark.parametrize("public", [True, False], ids=["functional", "_scaled_mm"])
def test_oracle_10_torchao(public: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit through `_scaled_mm`, which torchao calls.

    The public function may take another kernel for two E4M3 operands. Each number of y is then a sum of the same K
    products in another order, and the two sums in float32 differ by K 2^-24 |x| |w|^T at most.
    """
    pytest.importorskip("torchao", reason="oracle: pip install torchao")
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    if not public:
        monkeypatch.delattr(F, "scaled_mm", raising=False)
    x, w, g = gaussian(96, 64, 48)
    other = nn.Sequential(nn.Linear(64, 48, bias=False))
    other[0].weight = nn.Parameter(w.clone())
    other = convert_to_float8_training(other, config=Float8LinearConfig(emulate=False))
    x_other = x.clone().requires_grad_()
    y = other(x_other)
    y.backward(g)
    ours = make(TORCHAO, "scaled_mm")[0]
    got = run(ours, x, w, g)
    assert x_other.grad is not None
    wanted = (y.detach(), x_other.grad, other[0].weight.grad)
    for a, b, name in zip(got, wanted, ("y", "dx", "dw"), strict=True):
        if public and name == "y":
            sizes = [ours.quantisers[k](t).values().abs().double() for k, t in (("x", x), ("w", w))]
            assert ((a - b).abs() <= 64 * 2.0**-24 * (sizes[0] @ sizes[1].t())).all()
        else:
            assert torch.equal(a, b), name


@pytest.mark.parametrize("recipe", ["fp8-amax", "fp8-cscale", PLAIN_AMAX], ids=["rows", "const", "tensor"])
@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 192), (1, 13, 5), (50, 50, 1)])
def test_oracle_11_emulation_is_scaled_mm(recipe: str | Recipe, m: int, k: int, n: int) -> None:
    x, w, g = gaussian(m, k, n)
    emulated, real = make(recipe, "emulate")[0], make(recipe, "scaled_mm")[0]
    for a, b in zip(run(emulated, x, w, g), run(real, x, w, g), strict=True):
        assert torch.equal(a, b)
    assert real.arithmetic["output"] == "scaled_mm"


@pytest.mark.parametrize("backend", ["emulate", "scaled_mm"])
def test_oracle_12_small_gradients_are_not_flushed(backend: str) -> None:
    x, w, g = gaussian(g_scale=1e-3)
    dx = run(make("fp8-amax", backend)[0], x, w, g)[1]
    assert relative(dx, g @ w) == pytest.approx(0.0593, rel=0.05)
    # Negative control: what autograd does to a gradient that comes back through a cast to E4M3, with no scale. What is
    # below 2^-10 is lost: of 1e-3 N(0, 1), erf(2^-10 / (1e-3 sqrt 2)) = 67 %.
    y = torch.zeros_like(g, requires_grad=True)
    y.to(torch.float8_e4m3fn).float().backward(g)
    assert y.grad is not None
    assert (y.grad == 0).float().mean() == pytest.approx(math.erf(2.0**-10 / (1e-3 * 2**0.5)), rel=0.02)
    assert relative(y.grad @ w, g @ w) == pytest.approx(0.55, rel=0.05)


@pytest.mark.parametrize("recipe", FP8)
def test_oracle_13_rows_do_not_depend_on_the_batch(recipe: str) -> None:
    x = gaussian(1024, 64, 64)[0]
    x[100:] *= 4
    quantiser = make(recipe)[0].quantisers["x"]
    assert torch.equal(quantiser(x[:64]).values(), quantiser(x).values()[:64])
    assert find_recipe(recipe).x.independent_of_batch


def test_oracle_13_tensor_scales_depend_on_it_a_little_if_powers_of_two() -> None:
    x, _, _ = gaussian(1024, 64, 64)
    x[100:] *= 3.3
    for config, low, high in ((OperandConfig(), 0.999, 1.0), (TENSOR, 0.0, 0.1)):
        quantiser = make(replace(TORCHAO, x=config))[0].quantisers["x"]
        same = (quantiser(x[:64]).values() == quantiser(x).values()[:64]).float().mean().item()
        assert low <= same <= high
        assert not config.independent_of_batch


@pytest.mark.parametrize("recipe", ALL)
@pytest.mark.parametrize("backend", ["emulate", "scaled_mm"])
@pytest.mark.parametrize(("m", "k", "n"), [(0, 16, 16), (1, 13, 7), (3, 50, 1), (1, 1, 1)])
def test_oracle_14_odd_sizes_and_zeros(recipe: str, backend: str, m: int, k: int, n: int) -> None:
    x, w, g = gaussian(m, k, n)
    y, dx, dw = run(make(recipe, backend)[0], x, w, g)
    assert (y.shape, dx.shape, dw.shape) == ((m, n), (m, k), (n, k))
    assert all(t.isfinite().all() for t in (y, dx, dw))
    for zeros in run(make(recipe, backend)[0], x * 0, w, g * 0):
        assert torch.equal(zeros, torch.zeros_like(zeros))
    y = make(recipe, backend)[0](torch.ones(m, k), torch.ones(n, k))
    torch.testing.assert_close(y, torch.full((m, n), float(k)), rtol=0.15, atol=0)


@pytest.mark.parametrize("recipe", ALL)
@pytest.mark.parametrize("backend", ["emulate", "scaled_mm"])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_oracle_14_one_number_that_is_not_finite(recipe: str, backend: str, bad: float) -> None:
    x, w, _ = gaussian(8, 16, 4)
    x = x.clamp(-1, 1)
    clean = make(recipe, backend)[0](x, w)
    x[3, 5] = bad
    gemm, statistics = make(recipe, backend)
    y = gemm(x, w)
    others = [i for i in range(8) if i != 3]
    assert not y[3].isfinite().any()
    assert torch.equal(y[others], clean[others])
    assert statistics.read()["l/x"].nonfinite == 1


def test_oracle_14_gradient_that_is_not_finite_is_counted() -> None:
    x, w, g = gaussian(8, 16, 4)
    g[2, 1] = math.nan
    gemm, statistics = make("fp8-amax")
    _, dx, _ = run(gemm, x, w, g)
    assert dx[2].isnan().all()
    assert dx[[0, 1, 3]].isfinite().all()
    assert statistics.read()["l/g"].nonfinite == 1


@pytest.mark.parametrize("recipe", ALL)
@pytest.mark.parametrize(("x_grad", "w_grad"), [(True, True), (True, False), (False, True), (False, False)])
def test_only_needed_gemms_are_computed(recipe: str, x_grad: bool, w_grad: bool) -> None:
    x, _, g = gaussian(8, 16, 4)
    x.requires_grad_(x_grad)
    layer = QuantisedLinear(nn.Linear(16, 4), make(recipe)[0])
    layer.weight.requires_grad_(w_grad)
    layer(x).backward(g)  # the bias wants a gradient in any case
    assert layer.gemm.gemms == {"output": 1, "grad_input": int(x_grad), "grad_weight": int(w_grad)}
    assert (layer.weight.grad is not None) == w_grad
    assert layer.bias.grad is not None
    assert layer.gemm.quantisers["g"].tensors == int(x_grad or w_grad)
    torch.testing.assert_close(layer.bias.grad, g.sum(0))


def test_nothing_is_saved_that_backward_does_not_need() -> None:
    sizes: list[int] = []
    x, w, _ = gaussian(8, 16, 4)
    for x_grad, w_grad, wanted in ((True, False, [4 * 16]), (False, True, [8 * 16]), (True, True, [4 * 16, 8 * 16])):
        sizes.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):  # type: ignore[func-returns-value]
            make("fp8-amax")[0](x.clone().requires_grad_(x_grad), w.clone().requires_grad_(w_grad))
        assert sorted(sizes) == wanted


def test_weight_is_quantised_once_per_optimiser_step() -> None:
    x, w, g = gaussian(8, 16, 4)
    layer = QuantisedLinear(nn.Linear(16, 4), make("fp8-amax")[0])
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    count = layer.gemm.quantisers["w"]
    with torch.inference_mode():
        layer(x)
    for step in range(3):
        for _ in range(4):
            layer(x).backward(g)
        assert count.tensors == step + 1
        before = layer(x)
        optimiser.step()
        assert not torch.equal(before, layer(x))
    with torch.no_grad():
        layer.weight.copy_(w)
    torch.testing.assert_close(layer(x), F.linear(x, w, layer.bias), rtol=0.2, atol=1.0)
    layer.weight.data.zero_()  # leaves the version counter: the caller's word is needed
    assert (layer(x) - layer.bias).abs().max() > 0
    layer.gemm.forget_weight()
    assert torch.equal(layer(x), layer.bias.expand(8, 4))


@pytest.mark.parametrize("name", ["output", "grad_input", "grad_weight"])
def test_gemms_are_configured_separately(name: str) -> None:
    x, w, g = gaussian()
    got = run(make(replace(find_recipe("fp8-amax"), **{name: GemmConfig(operands="bf16")}))[0], x, w, g)
    errors = [relative(a, b) for a, b in zip(got, exact(x, w, g), strict=True)]
    # In grad_input and grad_weight the gradient is in BF16; the other operand has 8 bits, as it was saved by output.
    wanted = {"output": [0.0023, 0.0593, 0.0593], "grad_input": [0.0375, 0.0265, 0.0593]}
    wanted["grad_weight"] = [0.0375, 0.0593, 0.0265]
    assert errors == pytest.approx(wanted[name], rel=0.06)


def test_operands_are_in_their_formats() -> None:
    gemm, _ = make("fp8-amax", "scaled_mm")
    x, w, g = gaussian(8, 16, 4)
    run(gemm, x, w, g)
    kinds = {name: gemm.quantise(name, t, False).data.dtype for name, t in (("x", x), ("w", w), ("g", g))}
    assert kinds == {"x": E4M3.dtype, "w": E4M3.dtype, "g": E5M2.dtype}
    assert gemm.arithmetic["grad_weight"] == "dequantised: scales along the sum"


def test_leading_dimensions() -> None:
    x, w, _ = gaussian(12, 16, 4)
    gemm = make("fp8-amax")[0]
    assert torch.equal(gemm(x.view(3, 4, 16), w), gemm(x, w).view(3, 4, 4))
    assert gemm(x[0], w).shape == (4,)
