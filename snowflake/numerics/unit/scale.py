"""Constant factors of unit scaling, and the primitive that multiplies forward and backward apart.

Unit scaling (Blake, Orr and Luschi 2023, arXiv 2303.11257) gives every operation a forward factor alpha and a backward
factor beta for each operand, chosen from shapes, so that weights, activations and gradients start with RMS about 1.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

CONSTRAINTS = ("to_output_scale", "gmean", "none")
"""How alpha ties the input's beta: beta := alpha; both := sqrt(alpha beta); not at all, which is legal on cut edges."""

# For x ~ N(0, 1), by quadrature: 1 / std of f(x), and 1 / RMS of f'(x).
TANH = (1.592537, 1.467414)
SIGMOID = (4.801313, 4.722646)
RELU = (math.sqrt(2.0 / (1.0 - 1.0 / math.pi)), math.sqrt(2.0))
GELU = (1.700926, 1.481114)
SILU = (1.787187, 1.623320)


class _Scale(torch.autograd.Function):
    """The identity with independent multipliers; saves no tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: float, backward: float) -> Tensor:
        ctx.factor = backward
        return x.view_as(x) if forward == 1.0 else x * forward

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return grad if ctx.factor == 1.0 else grad * ctx.factor, None, None


def scale(x: Tensor, forward: float = 1.0, backward: float = 1.0) -> Tensor:
    """Return `forward * x`, whose gradient reaches `x` multiplied by `backward`.

    With `forward` 1 the result is a view of `x`, so that it shares the version counter of a parameter. A backward
    factor other than the forward one gives true gradients, up to one positive factor per parameter, only where the
    edge from `x` is a cut edge of the graph: weights, biases, inputs, and all that follows the last merge.
    """
    if forward == backward:
        return x if forward == 1.0 else x * forward
    if not (torch.is_grad_enabled() and x.requires_grad):
        return x if forward == 1.0 else x * forward
    return _Scale.apply(x, forward, backward)  # type: ignore[no-any-return]


def constrain(constraint: str, alpha: float, beta: float) -> tuple[float, float]:
    """Return forward and backward factor of an operand under one of `CONSTRAINTS`.

    Raises:
        ValueError: no such constraint.
    """
    match constraint:
        case "to_output_scale":
            return alpha, alpha
        case "gmean":
            return (alpha * beta) ** 0.5, (alpha * beta) ** 0.5
        case "none":
            return alpha, beta
    raise ValueError(f"constraint {constraint!r} is none of {', '.join(CONSTRAINTS)}")


def loss_factor(batch_size: int, std: float = 1.0) -> float:
    """Return by what to multiply the loss of a minibatch so that the gradient of the outputs has RMS about 1.

    2^round(log2(B std)) undoes the 1 / B of a mean loss and, for a policy, the 1 / std of the log-density's gradient
    at the mean. One factor for all losses of a network keeps their mix; Adam sees it through its epsilon and
    clipping only.

    Args:
        batch_size: B.
        std: standard deviation of the actions; 1 for a critic.
    """
    return 2.0 ** round(math.log2(max(batch_size, 1) * std))
