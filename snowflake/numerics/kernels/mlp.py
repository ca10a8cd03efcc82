"""A whole tanh MLP in one kernel: hidden numbers never leave the multiprocessor, and are rounded to FP8 on the way.

Forward only, for rollouts and evaluation. The scale of what enters a layer is a constant, as in unit scaling, or a
power of two for every row; neither waits for other rows, so a row's result does not depend on its batch.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from snowflake.numerics.formats import E4M3, encode
from snowflake.numerics.kernels.device import hardware_cast
from snowflake.numerics.kernels.rounding import pow2_scale, tanh, to_fp8
from snowflake.numerics.scales import amax
from snowflake.numerics.scales import pow2_scale as tensor_scale


class Tile(NamedTuple):
    """How a kernel splits its work.

    Attributes:
        rows: of a tile.
        outputs: of a layer computed at once, a power of two; below the width, hidden numbers pass through memory.
        warps: of a program.
    """

    rows: int
    outputs: int
    warps: int


def default_tile(size: int) -> Tile:
    """Return a tile for a padded width: no spilled registers to speak of, and weights that fit into shared memory."""
    if size <= 64:
        return Tile(128, size, 4)
    if size <= 128:
        return Tile(64, size, 4)
    return Tile(64, size if size <= 256 else 64, 8)


@dataclass(frozen=True)
class PackedMLP:
    """Weights of an MLP as `fused_mlp` takes them.

    Attributes:
        weights: (L, P, P) E4M3, rows are outputs; P is the largest width, padded to a power of two with zeros.
        biases: (L, P) float32.
        factors: (L,) float32, alpha / weight scale of each layer.
        inputs: K of the first layer.
        outputs: N of the last.
        tanh_factor: c of c tanh(x) between layers.
        final_tanh: whether it follows the last layer too.
    """

    weights: Tensor
    biases: Tensor
    factors: Tensor
    inputs: int
    outputs: int
    tanh_factor: float
    final_tanh: bool


def pack(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    *,
    final_tanh: bool,
    alphas: Sequence[float] | None = None,
    weight_scales: Sequence[float] | None = None,
    tanh_factor: float = 1.0,
) -> PackedMLP:
    """Quantise weights to E4M3 and pad them.

    Args:
        weights: (N, K) of each layer, first to last, any widths.
        biases: (N,) of each layer.
        final_tanh: whether tanh follows the last layer.
        alphas: factor on the product of each layer, 1 by default; K^-1/2 under unit scaling.
        weight_scales: of each layer's weight; by default the largest power of two that fits.
        tanh_factor: of tanh; 1 / std of tanh under unit scaling.
    """
    width = max(max(w.shape) for w in weights)
    size = max(triton.next_power_of_2(width), 32)
    device = weights[0].device
    packed, shifts, factors = [], [], []
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        w = weight.detach().to(torch.float32)
        given = None if weight_scales is None else torch.tensor(weight_scales[i], device=device)
        scale = tensor_scale(amax(w), E4M3) if given is None else given
        packed.append(encode(F.pad(w * scale, (0, size - w.shape[1], 0, size - w.shape[0])), E4M3).view(torch.uint8))
        shift = torch.zeros(len(w), device=device) if bias is None else bias.detach().to(torch.float32)
        shifts.append(F.pad(shift, (0, size - len(w))))
        factors.append((1.0 if alphas is None else alphas[i]) / scale)
    return PackedMLP(
        torch.stack(packed).view(torch.float8_e4m3fn), torch.stack(shifts), torch.stack(factors),
        weights[0].shape[1], weights[-1].shape[0], tanh_factor, final_tanh,
    )  # fmt: skip


@triton.jit
def _layer(q, row_factor, w_pointer, bias_pointer, column, P: tl.constexpr):
    """Return q W^T * row_factor + bias for the outputs `column`."""
    w = tl.load(w_pointer + column[None, :] * P + tl.arange(0, P)[:, None])
    return tl.dot(q, w) * row_factor[:, None] + tl.load(bias_pointer + column)[None, :]


@triton.jit
def _mlp_kernel(
    x_pointer, w_pointer, bias_pointer, factor_pointer, scale_pointer, scratch_pointer, out_pointer, nonfinite_pointer,
    rows, inputs, outputs, stride,
    LAYERS: tl.constexpr, TANH_LAYERS: tl.constexpr, TANH_FACTOR: tl.constexpr, P: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ROW_SCALES: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    lane = tl.arange(0, BLOCK_M)
    k = tl.arange(0, P)
    scratch = scratch_pointer + (tl.program_id(0).to(tl.int64) * BLOCK_M + lane)[:, None] * P
    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK_M), tl.num_programs(0)):
        row = (tile * BLOCK_M + lane).to(tl.int64)
        mask = (row < rows)[:, None] & (k < inputs)[None, :]
        h = tl.load(x_pointer + row[:, None] * stride + k[None, :], mask=mask, other=0.0).to(tl.float32)
        bad = tl.sum((tl.abs(h) < float("inf")).to(tl.int32), 1) < P  # rows with infinity or NaN
        tl.atomic_add(nonfinite_pointer, tl.sum(bad.to(tl.int32), 0))
        h = tl.where(bad[:, None], 0.0, h)
        for layer in range(LAYERS):
            if ROW_SCALES:
                scale = pow2_scale(tl.max(tl.abs(h), 1), False)
            else:
                scale = tl.zeros((BLOCK_M,), dtype=tl.float32) + tl.load(scale_pointer + layer)
            q = to_fp8(h * scale[:, None], False, HARDWARE)
            factor = tl.load(factor_pointer + layer) / scale
            w, bias = w_pointer + layer * P * P, bias_pointer + layer * P
            if BLOCK_N == P:
                h = _layer(q, factor, w, bias, k, P)
            else:  # by way of memory of the program's own, small enough to stay in the cache
                for start in range(0, P, BLOCK_N):
                    column = start + tl.arange(0, BLOCK_N)
                    tl.store(scratch + column[None, :], _layer(q, factor, w, bias, column, P))
                tl.debug_barrier()
                h = tl.load(scratch + k[None, :])
                tl.debug_barrier()
            if layer < TANH_LAYERS:
                h = tanh(h) * TANH_FACTOR
        h = tl.where(bad[:, None], float("nan"), h)
        mask = (row < rows)[:, None] & (k < outputs)[None, :]
        tl.store(out_pointer + row[:, None] * outputs + k[None, :], h.to(out_pointer.dtype.element_ty), mask=mask)


def fused_mlp(
    x: Tensor,
    mlp: PackedMLP,
    scales: Tensor | None = None,
    *,
    out_dtype: torch.dtype = torch.float32,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor]:
    """Apply an MLP in FP8, forward only.

    Args:
        x: (M, K) float32 or bfloat16, columns next to each other.
        mlp: see `pack`.
        scales: (L,) float32, powers of two or not: of what enters each layer. None: one power of two for each row.
        out_dtype: of the result; Triton's interpreter rounds bfloat16 wrongly.
        tile: by default that of `default_tile`.

    Returns:
        (M, N), NaN in rows whose input is not finite, and how many those are, () int32.

    Raises:
        RuntimeError: a gradient is wanted, or the number of columns is not that of the first layer.
    """
    if torch.is_grad_enabled() and x.requires_grad:
        raise RuntimeError("fused_mlp is forward only: call it under torch.no_grad, or use the FP8 linear layers")
    layers, size = len(mlp.weights), mlp.weights.shape[-1]
    rows, inputs = x.shape
    if inputs != mlp.inputs:
        raise RuntimeError(f"fused_mlp got {inputs} columns, its first layer takes {mlp.inputs}")
    out = torch.empty(rows, mlp.outputs, dtype=out_dtype, device=x.device)
    nonfinite = torch.zeros((), dtype=torch.int32, device=x.device)
    if not rows:
        return out, nonfinite
    x = x if x.stride(1) == 1 else x.contiguous()
    tile = tile or default_tile(size)
    programs = min(triton.cdiv(rows, tile.rows), _programs(x.device))
    scratch = torch.empty(programs * tile.rows * size if tile.outputs < size else 1, device=x.device)
    _mlp_kernel[(programs,)](
        x, mlp.weights, mlp.biases, mlp.factors, mlp.factors if scales is None else scales, scratch, out, nonfinite,
        rows, inputs, mlp.outputs, x.stride(0),
        LAYERS=layers, TANH_LAYERS=layers - (not mlp.final_tanh), TANH_FACTOR=mlp.tanh_factor, P=size,
        BLOCK_M=tile.rows, BLOCK_N=tile.outputs, ROW_SCALES=scales is None, HARDWARE=hardware_cast(x.device),
        num_warps=tile.warps,
    )  # fmt: skip
    return out, nonfinite


def _programs(device: torch.device) -> int:
    """Return how many programs share the rows."""
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
