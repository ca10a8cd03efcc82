"""Unit-scaled operations. X is (..., K), W is (N, K), M the number of rows of X.

| operation | alpha | beta of the input | beta of the weight |
|---|---|---|---|
| linear | K^-1/2 | N^-1/2, tied to alpha off cut edges | M^-1/2, bias too |
| read-out | K^-1 | N^-1/2 | M^-1/2 |
| a + b | 2^-1/2 | 2^-1/2 | |
| tanh, relu, gelu, silu | 1 / std of f(x), x ~ N(0, 1) | the same, or 1 / RMS of f'(x) | |
| softmax over s | s | s | |
| cross-entropy over s | 1 | s / sqrt(s - 1) | |
| squared error | 1 | 8^-1/2 | |
| layer norm, RMS norm | 1 | 1 | (width / elements)^1/2 |
| dropout p | (1 - p)^1/2 | the same | |
| table of V rows, B looked up | 1 | | (V / B)^1/2 |

Constants are exact for Gaussian inputs (the `unit-scaling` package fits one formula to gelu and silu), and biases
come after alpha (there before it, so attenuated by K^-1/2). Losses sum over the batch in their gradient, whatever
they return.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from snowflake.numerics.unit.scale import GELU, RELU, SILU, TANH, constrain, scale

Gemm = Callable[[Tensor, Tensor], Tensor]
"""Product x W^T of (..., K) and (N, K), differentiable in both; for instance one whose operands are FP8."""


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    constraint: str = "to_output_scale",
    readout: bool = False,
    rows: float | None = None,
    gemm: Gemm | None = None,
) -> Tensor:
    """Return alpha x W^T + bias.

    Args:
        x: (..., K).
        weight: (N, K), N(0, 1) at first.
        bias: (N,).
        constraint: see `CONSTRAINTS`; a read-out follows the last merge and is not constrained.
        readout: alpha = 1 / K, so that outputs start at RMS K^-1/2 and learn at a rate free of width (u-muP).
        rows: M, times the uses of the weight in one pass; by default the rows of `x`. A number that does not depend on
            the call keeps gradients of several calls in proportion.
        gemm: takes the place of the product; it sees operands and a gradient of RMS 1. By default alpha is folded into
            the weight, which costs no pass over the rows.

    Returns:
        (..., N).
    """
    outputs, inputs = weight.shape
    rows = max(x.numel() // inputs if rows is None else rows, 1)
    alpha, beta = (1.0 / inputs, outputs**-0.5) if readout else constrain(constraint, inputs**-0.5, outputs**-0.5)
    bias = None if bias is None else scale(bias, 1.0, rows**-0.5)
    if gemm is None:
        return F.linear(scale(x, 1.0, beta / alpha), scale(weight, alpha, rows**-0.5), bias)
    y = scale(gemm(scale(x, 1.0, beta), scale(weight, 1.0, rows**-0.5)), alpha, 1.0)
    return y if bias is None else y + bias


class _ScaledTanh(torch.autograd.Function):
    """c tanh(x); saves the output only. On the CPU PyTorch's sigmoid is several times as fast as its tanh."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        y = x.mul(2.0).sigmoid_().mul_(2.0 * factor).sub_(factor) if x.device.type == "cpu" else torch.tanh(x) * factor
        ctx.factor = factor
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return grad * (ctx.factor - y.square() / ctx.factor), None


def tanh(x: Tensor, constraint: str = "to_output_scale") -> Tensor:
    """Return tanh(x) of unit variance."""
    alpha, beta = constrain(constraint, *TANH)
    return _ScaledTanh.apply(scale(x, 1.0, beta / alpha), alpha)  # type: ignore[no-any-return]


def _elementwise(function: Callable[[Tensor], Tensor], x: Tensor, factors: tuple[float, float], tie: str) -> Tensor:
    alpha, beta = constrain(tie, *factors)
    return scale(function(scale(x, 1.0, beta)), alpha, 1.0)


def relu(x: Tensor, constraint: str = "to_output_scale") -> Tensor:
    """Return relu(x) of unit variance."""
    return _elementwise(torch.relu, x, RELU, constraint)


def gelu(x: Tensor, constraint: str = "to_output_scale") -> Tensor:
    """Return gelu(x) of unit variance."""
    return _elementwise(F.gelu, x, GELU, constraint)


def silu(x: Tensor, constraint: str = "to_output_scale") -> Tensor:
    """Return silu(x) of unit variance."""
    return _elementwise(F.silu, x, SILU, constraint)


def add(a: Tensor, b: Tensor) -> Tensor:
    """Return (a + b) / sqrt(2) of tensors of one shape; its gradient is the true one."""
    return (a + b) * 2.0**-0.5


def residual_split(x: Tensor, tau: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the inputs of a residual branch of weight tau and of its skip connection; see `residual_add`."""
    norm = (1.0 + tau * tau) ** -0.5
    return scale(x, 1.0, tau * norm), scale(x, 1.0, norm)


def residual_add(branch: Tensor, skip: Tensor, tau: float = 1.0) -> Tensor:
    """Return (tau f(x) + x) / sqrt(1 + tau^2).

    In backward the branch's factor acts at the split, so that gradients inside the branch keep RMS 1. Branch and
    skip must come from one `residual_split` with the same tau.
    """
    norm = (1.0 + tau * tau) ** -0.5
    return scale(branch, tau * norm, 1.0) + scale(skip, norm, 1.0)


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Return s softmax(x) over a dimension of size s."""
    return torch.softmax(x, dim) * float(x.shape[dim])


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits (M, s) and classes (M,); its gradient is that of the sum, of RMS 1."""
    rows, classes = logits.shape
    loss = F.cross_entropy(scale(logits, 1.0, classes / math.sqrt(max(classes - 1, 1))), target, reduction="sum")
    return scale(loss, 1.0 / max(rows, 1), 1.0)


def mse_loss(x: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared error of unit inputs and targets; its gradient is that of the sum, of RMS 1."""
    loss = F.mse_loss(scale(x, 1.0, 8.0**-0.5), scale(target, 1.0, 8.0**-0.5), reduction="sum")
    return scale(loss, 1.0 / max(x.numel(), 1), 1.0)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return the layer norm over the last dimension; gain (D,) one and bias (D,) zero at first."""
    beta = (weight.numel() / max(x.numel(), 1)) ** 0.5
    shift = None if bias is None else scale(bias, 1.0, beta)
    return F.layer_norm(x, weight.shape, scale(weight, 1.0, beta), shift, eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """Return the RMS norm over the last dimension; gain (D,) one at first."""
    beta = (weight.numel() / max(x.numel(), 1)) ** 0.5
    return F.rms_norm(x, tuple(weight.shape), scale(weight, 1.0, beta), eps)


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Return dropout(x) of the RMS of `x`."""
    return F.dropout(x, p, training) * (1.0 - p) ** 0.5 if training else x


def embedding(table: Tensor, index: Tensor, lookups: float | None = None) -> Tensor:
    """Return rows of a table (V, D), N(0, 1) at first.

    Args:
        table: (V, D).
        index: (...,) int64.
        lookups: B, how often rows are used in one pass; by default the size of `index`.
    """
    lookups = max(index.numel() if lookups is None else lookups, 1)
    return F.embedding(index, scale(table, 1.0, (len(table) / lookups) ** 0.5))


def attention(q: Tensor, k: Tensor, v: Tensor, *, mult: float = 1.0, causal: bool = False) -> Tensor:
    """Return scaled dot-product attention of unit RMS; queries, keys, values (..., S, D); logits are q k^T mult / D.

    log sigma = (1 - a) log(s^-1/2), a = 1 / (1 + 4 D / mult^2), where causal attention has (log s / s)^1/2 for s^-1/2.
    """
    keys, width = k.shape[-2], q.shape[-1]
    spread = math.sqrt(max(math.log(keys), 1e-9) / keys) if causal and keys > 1 else keys**-0.5
    sigma = spread ** (1.0 - 1.0 / (1.0 + 4.0 * width / mult**2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=mult / width)
    return y / sigma
