"""A stack of linear layers with tanh between them by the compiled library, as one operation of autograd."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snowflake.networks.native.library import Library, address, addresses
from snowflake.networks.workspace import Pool


class Call(ctypes.Structure):
    """`MlpCall` in mlp.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "depth", "final_tanh", "bf16", "keep")),
        *((name, ctypes.c_void_p) for name in ("sizes", "x", "weights", "out", "memory", "upper", "d_x", "grads")),
    )


class _Key(NamedTuple):
    """What calls a piece of memory fits: rows, widths, whether products are of bfloat16, and outputs of layers kept."""

    library: Library
    rows: int
    sizes: tuple[int, ...]
    final_tanh: bool
    dtype: torch.dtype
    bf16: bool
    keep: bool

    def call(self) -> Call:
        """Return a call with these sizes, without any array. The sizes live as long as it."""
        sizes = (ctypes.c_int64 * len(self.sizes))(*self.sizes)
        call = Call(self.rows, len(self.sizes) - 1, self.final_tanh, self.bf16, self.keep)
        call.sizes = ctypes.cast(sizes, ctypes.c_void_p)
        call.kept = sizes
        return call

    def numbers(self) -> int:
        """Return how many numbers it takes."""
        return self.library.call("mlp_numbers", self.dtype, self.call())

    def space(self, memory: Tensor) -> _Space:
        """Lay it out in memory."""
        return _Space(self, memory)


@dataclass(frozen=True)
class _Space:
    key: _Key
    memory: Tensor


def mlp(
    library: Library,
    pool: Pool,
    x: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    *,
    final_tanh: bool,
    bf16: bool = False,
) -> Tensor:
    """Apply layers, each a weight (out, in) and a bias (out,).

    Args:
        library: the compiled library.
        pool: of memory.
        x: (..., in of the first layer), float32 or float64, on the CPU.
        layers: first to last.
        final_tanh: whether tanh follows the last layer too.
        bf16: whether operands of products of float32 numbers are rounded to bfloat16; the CPU must multiply such. The
            gradients of weights, and a last layer of one output without tanh, are computed in float32 all the same.

    Returns:
        (..., out of the last layer).
    """
    weights = tuple(p for layer in layers for p in layer)
    rows = x.reshape(-1, x.shape[-1])
    sizes = (rows.shape[1], *(len(bias) for _, bias in layers))
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *weights))
    key = _Key(library, len(rows), sizes, final_tanh, x.dtype, bf16 and x.dtype == torch.float32, keep)
    if keep:
        out = _MLPFunction.apply(key, pool, rows.contiguous(), *weights)
    else:
        space = pool.borrow(key)
        out = _forward(space, rows.contiguous(), weights)
        pool.give_back(space)
    return out.view(*x.shape[:-1], sizes[-1])  # type: ignore[union-attr]


@torch.no_grad()
def _forward(space: _Space, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    out = x.new_empty(len(x), space.key.sizes[-1])
    call, _kept = _call(space, x, weights)
    call.out = address(out)
    space.key.library.call("mlp_forward", x.dtype, call)
    return out


def _call(space: _Space, x: Tensor, weights: Sequence[Tensor]) -> tuple[Call, Any]:
    """Return a call, and what must live as long as it."""
    call, whole = space.key.call(), [w.contiguous() for w in weights]
    places = addresses(whole)
    call.x, call.memory, call.weights = address(x), address(space.memory), ctypes.cast(places, ctypes.c_void_p)
    return call, (whole, places)


class _MLPFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, key: _Key, pool: Pool, x: Tensor, *weights: Tensor) -> Tensor:
        ctx.pool, ctx.space = pool, pool.borrow(key)
        ctx.key = key
        ctx.save_for_backward(x, *weights)
        return _forward(ctx.space, x, weights)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, *weights = ctx.saved_tensors
        space, ctx.space = ctx.space, None
        if space is None:  # differentiated before, and the graph kept
            space = ctx.pool.borrow(ctx.key)
            _forward(space, x, weights)
        needed = ctx.needs_input_grad[2:]
        d_x = torch.empty_like(x) if needed[0] else None
        grads = [torch.empty_like(w) if need else None for w, need in zip(weights, needed[1:], strict=True)]
        call, _kept = _call(space, x, weights)
        upper, places = grad.contiguous(), addresses(grads)
        call.upper, call.d_x, call.grads = address(upper), address(d_x), ctypes.cast(places, ctypes.c_void_p)
        ctx.key.library.call("mlp_backward", x.dtype, call)
        ctx.pool.give_back(space)
        return None, None, d_x, *grads
