"""Unit-scaled operations: closed forms of their RMS, constants by quadrature, the `unit-scaling` package as oracle."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from snowflake.numerics.unit import functional as U
from snowflake.numerics.unit import loss_factor, scale
from snowflake.numerics.unit.scale import GELU, RELU, SIGMOID, SILU, TANH, constrain

ROWS = 4096


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rms(x: Tensor) -> float:
    return float(x.detach().double().square().mean().sqrt())


def backward(y: Tensor, *inputs: Tensor, seed: int = 99) -> list[Tensor]:
    """Return the gradients of inputs when that of y is N(0, 1)."""
    return list(torch.autograd.grad(y, inputs, normal(*y.shape, seed=seed), retain_graph=True))


def test_scale_multiplies_forward_and_backward_apart() -> None:
    x = torch.tensor([2.0, -3.0], requires_grad=True)
    y = scale(x, 5.0, 0.25)
    assert y.tolist() == [10.0, -15.0]
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.25, 0.25]
    view = scale(x, 1.0, 0.5)
    assert (view.data_ptr(), view._version) == (x.data_ptr(), x._version)
    with torch.no_grad():
        x.add_(1.0)
    assert view._version == x._version, "what is cached by version must notice that the parameter has changed"
    assert scale(x, 1.0, 1.0) is x


@pytest.mark.parametrize(
    ("constraint", "out", "dx"), [("none", 1.0, 1.0), ("to_output_scale", 1.0, 2.0), ("gmean", 0.5**0.5, 2.0**0.5)]
)
def test_oracle_15_linear_has_the_rms_of_its_constraint(constraint: str, out: float, dx: float) -> None:
    x, w, b = (
        normal(ROWS, 64).requires_grad_(),
        normal(256, 64, seed=1).requires_grad_(),
        torch.zeros(256).requires_grad_(),
    )
    y = U.linear(x, w, b, constraint=constraint)
    grads = backward(y, x, w, b)
    assert [rms(y), *map(rms, grads[:2])] == [pytest.approx(v, rel=0.03) for v in (out, dx, 1.0)]
    assert rms(grads[2]) == pytest.approx(1.0, rel=0.15)  # of 256 numbers


def test_oracle_18_read_out_starts_small_and_passes_on_unit_gradients() -> None:
    x, w = normal(ROWS, 256).requires_grad_(), normal(64, 256, seed=1).requires_grad_()
    y = U.linear(x, w, readout=True)
    dx, dw = backward(y, x, w)
    assert [rms(y), rms(dx), rms(dw)] == [pytest.approx(v, rel=0.03) for v in (256**-0.5, 1.0, 1.0)]


def test_a_product_of_ones_own_sees_unit_operands_and_gives_the_same() -> None:
    x, w, b = (t.requires_grad_() for t in (normal(ROWS, 64), normal(256, 64, seed=1), normal(256, seed=2)))
    seen: list[float] = []

    def gemm(a: Tensor, c: Tensor) -> Tensor:
        y = F.linear(a, c)
        seen.extend([rms(a), rms(c)])
        y.register_hook(lambda g: seen.append(rms(g)))
        return y

    for readout in (False, True):
        plain, own = U.linear(x, w, b, readout=readout), U.linear(x, w, b, readout=readout, gemm=gemm)
        torch.testing.assert_close(own, plain)
        for mine, theirs in zip(backward(own, x, w, b), backward(plain, x, w, b), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert seen == [pytest.approx(1.0, rel=0.03)] * 6


def test_rows_make_the_weight_gradient_linear_in_the_batch() -> None:
    x, w = normal(64, 8), normal(4, 8, seed=1).requires_grad_()
    whole, first, second = (U.linear(part, w, rows=64).sum() for part in (x, x[:10], x[10:]))
    grads = [torch.autograd.grad(y, w)[0] for y in (whole, first, second)]
    torch.testing.assert_close(grads[1] + grads[2], grads[0])
    own = [torch.autograd.grad(U.linear(part, w).sum(), w)[0] for part in (x[:10], x[10:])]
    assert not torch.allclose(own[0] + own[1], grads[0], rtol=0.1), "control: rows of the call do not add up"


@pytest.mark.parametrize(
    ("function", "constants"),
    [(torch.tanh, TANH), (torch.sigmoid, SIGMOID), (F.relu, RELU), (F.gelu, GELU), (F.silu, SILU)],
)
def test_constants_of_nonlinearities(function: Callable[[Tensor], Tensor], constants: tuple[float, float]) -> None:
    nodes = torch.linspace(-12, 12, 400_001, dtype=torch.float64, requires_grad=True)
    density = torch.exp(-0.5 * nodes.detach() ** 2) / math.sqrt(2 * math.pi) * (24 / 400_000)
    y = function(nodes)
    value = y.detach()
    (slope,) = torch.autograd.grad(y.sum(), nodes)
    mean = float((value * density).sum())
    std = math.sqrt(float((value * value * density).sum()) - mean**2)
    assert constants == pytest.approx((1 / std, float((slope**2 * density).sum()) ** -0.5), rel=1e-4)


@pytest.mark.parametrize("function", [U.tanh, U.relu, U.gelu, U.silu])
def test_oracle_16_nonlinearities_are_unit(function: Callable[..., Tensor]) -> None:
    x = normal(ROWS, 64).requires_grad_()
    y = function(x, "none")
    assert float(y.detach().std()) == pytest.approx(1.0, rel=0.03)
    assert rms(backward(y, x)[0]) == pytest.approx(1.0, rel=0.03)
    tied = function(x)
    torch.testing.assert_close(tied, y)
    alpha, other = rms(backward(tied, x)[0]), rms(backward(y, x)[0])
    table = {U.tanh: TANH, U.relu: RELU, U.gelu: GELU, U.silu: SILU}[function]
    assert alpha / other == pytest.approx(table[0] / table[1], rel=1e-4)


def test_tanh_is_tanh() -> None:
    x = torch.linspace(-6, 6, 1001, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(U.tanh(x), TANH[0] * torch.tanh(x))
    assert torch.autograd.gradcheck(U.tanh, (x[::100].detach().requires_grad_(),))
    with pytest.raises(ValueError, match="is none of"):
        constrain("both", 1.0, 1.0)


def test_oracle_16_losses_have_unit_gradients() -> None:
    logits, target = (
        normal(ROWS, 10).requires_grad_(),
        torch.randint(10, (ROWS,), generator=torch.Generator().manual_seed(1)),
    )
    loss = U.cross_entropy(logits * 1e-3, target)  # near the start of training: classes equally likely
    assert float(loss.detach()) == pytest.approx(math.log(10), rel=0.01)
    assert rms(torch.autograd.grad(loss, logits)[0]) * 1e3 == pytest.approx(1.0, rel=0.06)
    x, y = normal(ROWS, 4).requires_grad_(), normal(ROWS, 4, seed=1)
    loss = U.mse_loss(x, y)
    assert float(loss.detach()) == pytest.approx(float(F.mse_loss(x.detach(), y)))
    assert rms(torch.autograd.grad(loss, x)[0]) == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("tau", [0.1, 0.7, 3.0])
def test_oracle_16_residual_is_unit_both_ways_for_any_weight(tau: float) -> None:
    x, w = normal(ROWS, 128).requires_grad_(), normal(128, 128, seed=1)
    inside: list[float] = []
    branch, skip = U.residual_split(x, tau)
    f = U.linear(branch, w)
    f.register_hook(lambda g: inside.append(rms(g)))
    y = U.residual_add(f, skip, tau)
    assert [rms(y), rms(backward(y, x)[0]), *inside] == [pytest.approx(1.0, rel=0.03)] * 3
    # The gradient is the true one: that of the plain expression.
    plain = (tau * F.linear(x, w) / 128**0.5 + x) / math.sqrt(1 + tau * tau)
    torch.testing.assert_close(backward(y, x)[0], backward(plain, x)[0], rtol=1e-4, atol=1e-5)


def test_other_operations_are_unit() -> None:
    x, gain = normal(ROWS, 64).requires_grad_(), torch.ones(64).requires_grad_()
    for norm in (U.layer_norm, U.rms_norm):
        y = norm(x, gain)
        assert [rms(y), *map(rms, backward(y, x, gain))] == [pytest.approx(1.0, rel=0.1)] * 3
    assert [rms(U.add(x, normal(ROWS, 64, seed=1))), rms(U.dropout(x, 0.4))] == [pytest.approx(1.0, rel=0.03)] * 2
    table = normal(32, 64, seed=1).requires_grad_()
    y = U.embedding(table, torch.randint(32, (ROWS,), generator=torch.Generator().manual_seed(1)))
    assert [rms(y), rms(backward(y, table)[0])] == [pytest.approx(1.0, rel=0.05)] * 2
    q, k, v = (normal(64, 32, 16, seed=i) for i in range(3))
    assert rms(U.attention(q, k, v)) == pytest.approx(1.0, rel=0.1)
    near_zero = U.softmax(1e-3 * x)
    assert [rms(near_zero), rms(backward(near_zero, x)[0]) * 1e3] == [pytest.approx(1.0, rel=0.03)] * 2


def test_loss_factor_is_a_power_of_two_near_the_batch() -> None:
    assert [loss_factor(b) for b in (1, 2, 64, 100, 2048)] == [1.0, 2.0, 64.0, 128.0, 2048.0]
    assert loss_factor(64, std=math.exp(-1.0)) == 32.0  # 23.5
    assert np.log2(loss_factor(1000, 0.3)) % 1 == 0


def test_agrees_with_the_unit_scaling_package() -> None:
    oracle = pytest.importorskip("unit_scaling.functional")
    x, w = normal(128, 64).requires_grad_(), normal(32, 64, seed=1).requires_grad_()
    target = torch.randint(32, (128,), generator=torch.Generator().manual_seed(1))
    gain, shift = torch.ones(64).requires_grad_(), torch.zeros(64).requires_grad_()
    q, k, v = (normal(2, 16, 8, seed=i).requires_grad_() for i in range(3))
    pairs: list[tuple[Tensor, Tensor, tuple[Tensor, ...]]] = [
        (U.linear(x, w), oracle.linear(x, w, None), (x, w)),
        (U.linear(x, w, constraint="gmean"), oracle.linear(x, w, None, constraint="gmean"), (x, w)),
        (U.linear(x, w, constraint="none"), oracle.linear(x, w, None, constraint=None), (x, w)),
        (U.linear(x, w, readout=True), oracle.linear_readout(x, w, None), (x, w)),
        (U.cross_entropy(x[:, :32], target), oracle.cross_entropy(x[:, :32], target), (x,)),
        (U.mse_loss(x, normal(128, 64, seed=2)), oracle.mse_loss(x, normal(128, 64, seed=2)), (x,)),
        (U.layer_norm(x, gain, shift), oracle.layer_norm(x, (64,), gain, shift), (x, gain, shift)),
        (U.rms_norm(x, gain, eps=1e-5), oracle.rms_norm(x, (64,), gain, eps=1e-5), (x, gain)),
        (U.attention(q, k, v), oracle.scaled_dot_product_attention(q, k, v), (q, k, v)),
        (U.attention(q, k, v, causal=True), oracle.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v)),
    ]
    for i, (mine, theirs, inputs) in enumerate(pairs):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, msg=lambda m, i=i: f"pair {i}: {m}")
        for a, b in zip(backward(mine, *inputs), backward(theirs, *inputs), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, msg=lambda m, i=i: f"gradient of pair {i}: {m}")
    branch, skip = oracle.residual_split(x, 0.7)
    mine = U.residual_split(x, 0.7)
    y, z = oracle.residual_add(torch.sin(branch), skip, 0.7), U.residual_add(torch.sin(mine[0]), mine[1], 0.7)
    torch.testing.assert_close(z, y)
    torch.testing.assert_close(backward(z, x)[0], backward(y, x)[0])
