"""Rotary position embedding (Su et al. 2021): logits depend on how far apart in time two steps are."""

from __future__ import annotations

import torch
from torch import Tensor

_BASE = 10_000.0


def rotate(x: Tensor, position: Tensor) -> Tensor:
    """Turn each pair of features by an angle in proportion to the position.

    Feature i and feature d / 2 + i make a pair; its angle is ``position * 10000 ** (-2 i / d)``.

    Args:
        x: (..., d), d even.
        position: (...) of x, or what broadcasts to it.
    """
    half = x.shape[-1] // 2
    rate = _BASE ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angle = position[..., None].to(x.dtype) * rate
    sin, cos = angle.sin(), angle.cos()
    first, second = x.split(half, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
