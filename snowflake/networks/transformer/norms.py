"""Norms of the transformer's blocks, computed in float32 at least, and the learned scale of what a block adds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_HALF = (torch.float16, torch.bfloat16)

EPSILON = 1e-5


def at_least_fp32(x: Tensor) -> Tensor:
    """Return a tensor in float32 if it has fewer bits, as it is otherwise."""
    return x.float() if x.dtype in _HALF else x


class LayerNorm(nn.LayerNorm):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis (Ba et al. 2016). Shapes: (..., F) -> same."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise."""
        return super().forward(at_least_fp32(input)).to(input.dtype)


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich 2019). Shapes: (..., F) -> same."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise."""
        return super().forward(at_least_fp32(x)).to(x.dtype)


def make_norm(kind: str, width: int, wanted: bool = True) -> nn.Module:
    """Return a norm over ``width`` features, gain 1 and bias 0; the identity where none is wanted.

    Args:
        kind: layernorm or rmsnorm.
        width: F.
        wanted: whether there is one.
    """
    if not wanted:
        return nn.Identity()
    return LayerNorm(width, eps=EPSILON) if kind == "layernorm" else RMSNorm(width, eps=EPSILON)


class LayerScale(nn.Module):
    """A learned factor per feature (Touvron et al. 2021). Shapes: (..., F) -> same.

    Args:
        width: F.
        initial: value of every factor at the start.
    """

    def __init__(self, width: int, initial: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((width,), initial))

    def forward(self, x: Tensor) -> Tensor:
        """Scale."""
        return x * self.factor


def make_scale(width: int, initial: float | None) -> nn.Module:
    """Return the scale of what a block adds, or the identity for None."""
    return nn.Identity() if initial is None else LayerScale(width, initial)
