"""Cast to FP8 in one pass over the data: scale, round, largest magnitude, non-finite numbers, transposed copy."""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from snowflake.numerics.formats import E5M2, Format
from snowflake.numerics.kernels.device import hardware_cast
from snowflake.numerics.kernels.rounding import to_fp8


class CastResult(NamedTuple):
    """What `cast` returns.

    Attributes:
        data: (M, K), the format's type.
        transposed: (K, M), or None.
        amax: () float32, the largest finite magnitude of the input, before scaling.
        nonfinite: () int32, how many numbers were infinite or NaN.
    """

    data: Tensor
    transposed: Tensor | None
    amax: Tensor
    nonfinite: Tensor


@triton.jit
def _cast_kernel(
    x_pointer, scale_pointer, out_pointer, transposed_pointer, amax_pointer, nonfinite_pointer,
    rows, columns, stride,
    E5M2: tl.constexpr, TRANSPOSE: tl.constexpr, HARDWARE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_pointer + row[:, None] * stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    magnitude = tl.abs(x)
    finite = magnitude < float("inf")  # False for NaN
    largest = tl.max(tl.max(tl.where(finite, magnitude, 0.0), 1), 0)
    tl.atomic_max(amax_pointer, largest.to(tl.int32, bitcast=True))  # non-negative floats order like their bits
    tl.atomic_add(nonfinite_pointer, tl.sum(tl.sum((inside & (finite == 0)).to(tl.int32), 1), 0))
    q = to_fp8(x * tl.load(scale_pointer), E5M2, HARDWARE)
    tl.store(out_pointer + row[:, None] * columns + column[None, :], q, mask=inside)
    if TRANSPOSE:
        tl.store(
            transposed_pointer + column[:, None].to(tl.int64) * rows + row[None, :], tl.trans(q), mask=tl.trans(inside)
        )


def cast(x: Tensor, scale: Tensor, fmt: Format, *, transpose: bool = False) -> CastResult:
    """Cast `x * scale`, saturating, and measure `x` in the same pass.

    The scale is known beforehand, a constant or one that earlier amaxes gave, so nothing waits for a reduction.

    Args:
        x: (M, K) float32 or bfloat16, columns next to each other.
        scale: () float32 on the same device.
        fmt: E4M3 or E5M2.
        transpose: also write the transposed matrix, which the weight gradient's product reads.
    """
    rows, columns = x.shape
    if x.stride(1) != 1:
        x = x.contiguous()
    out = torch.empty(rows, columns, dtype=fmt.dtype, device=x.device)
    transposed = torch.empty(columns, rows, dtype=fmt.dtype, device=x.device) if transpose else None
    amax = torch.zeros((), dtype=torch.int32, device=x.device)
    nonfinite = torch.zeros((), dtype=torch.int32, device=x.device)
    if x.numel():
        block_m, block_k = 32, min(max(triton.next_power_of_2(columns), 16), 128)
        grid = (triton.cdiv(rows, block_m), triton.cdiv(columns, block_k))
        _cast_kernel[grid](
            x, scale, out, out if transposed is None else transposed, amax, nonfinite, rows, columns, x.stride(0),
            E5M2=fmt is E5M2, TRANSPOSE=transpose, HARDWARE=hardware_cast(x.device), BLOCK_M=block_m, BLOCK_K=block_k,
        )  # fmt: skip
    return CastResult(out, transposed, amax.view(torch.float32), nonfinite)
