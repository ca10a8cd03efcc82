"""Tanh, by way of the sigmoid where that is faster."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def tanh(x: Tensor) -> Tensor:
    """Return tanh(x) elementwise.

    On CPUs that are not Intel's, PyTorch's sigmoid is about six times as fast as its tanh, and 2 sigmoid(2x) - 1 is the
    same to 2e-7 absolute in float32. Elsewhere this is `torch.tanh`.
    """
    if x.device.type != "cpu":
        return torch.tanh(x)
    if torch.compiler.is_compiling():  # whose own tanh is about three times as slow as its sigmoid
        return 2.0 * torch.sigmoid(2.0 * x) - 1.0
    if native_is_fast():
        return torch.tanh(x)
    if torch.is_grad_enabled() and x.requires_grad:
        return _Tanh.apply(x)  # type: ignore[no-any-return]
    return tanh_(x.clone())


def tanh_(x: Tensor) -> Tensor:
    """Replace the entries of a tensor on the CPU by their tanh, outside autograd; see `tanh`."""
    if native_is_fast():
        return x.tanh_()
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


@cache
def native_is_fast() -> bool:
    """Return whether PyTorch's own tanh is the fast one: it is Intel MKL's, which serves Intel's CPUs well only.

    By the maker, not by a measurement, so that a machine always computes the same numbers.
    """
    if not torch.backends.mkl.is_available():
        return False
    listing = Path("/proc/cpuinfo")
    return "GenuineIntel" in (listing.read_text() if listing.exists() else platform.processor())


class _Tanh(torch.autograd.Function):
    """Saves one tensor and takes one pass backward, where the plain expression takes three."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = tanh_(x.clone())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(grad, y)  # type: ignore[no-any-return]
