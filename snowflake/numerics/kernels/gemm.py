"""Product of FP8 matrices with scales of tensors or rows, and the backend `triton` made of it."""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from snowflake.numerics.backends import Verdict, register_backend
from snowflake.numerics.backends.codes import CodesBackend
from snowflake.numerics.kernels.device import interpreting, multiplies_fp8
from snowflake.numerics.operand import Operand


@triton.jit
def _gemm_kernel(
    a_pointer, b_pointer, scale_a_pointer, scale_b_pointer, out_pointer, rows, columns, inner,
    ROW_A: tl.constexpr, ROW_B: tl.constexpr, MAX_IMPRECISE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, inner, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a_mask = (row < rows)[:, None] & (k < inner)[None, :]
        b_mask = (column < columns)[None, :] & (k < inner)[:, None]
        a = tl.load(a_pointer + row[:, None] * inner + k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_pointer + column[None, :].to(tl.int64) * inner + k[:, None], mask=b_mask, other=0.0)
        # Hopper keeps about 14 bits inside a sum: MAX_IMPRECISE products at most, then it is added up in float32.
        total = tl.dot(a, b, total, max_num_imprecise_acc=MAX_IMPRECISE)
    scale_a = tl.load(scale_a_pointer + row, mask=row < rows, other=0.0)[:, None] if ROW_A else tl.load(scale_a_pointer)
    scale_b = (
        tl.load(scale_b_pointer + column, mask=column < columns, other=0.0)[None, :]
        if ROW_B
        else tl.load(scale_b_pointer)
    )
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(out_pointer + row[:, None] * columns + column[None, :], total * scale_a * scale_b, mask=inside)


def gemm(a: Tensor, b: Tensor, decode_a: Tensor, decode_b: Tensor, *, fast_accum: bool = False) -> Tensor:
    """Return (a decode_a) (b decode_b)^T, float32 (M, N).

    Args:
        a: (M, K) FP8, row-major.
        b: (N, K) FP8, row-major.
        decode_a: float32, () or (M, 1).
        decode_b: float32, () or (N, 1).
        fast_accum: do not add blocks of the sum up in float32.
    """
    rows, inner = a.shape
    columns = len(b)
    out = torch.zeros(rows, columns, device=a.device)
    if a.numel() and b.numel():
        row_a, row_b = decode_a.numel() > 1, decode_b.numel() > 1
        block_n, block_k = (min(max(triton.next_power_of_2(n), 32), 128) for n in (columns, inner))
        block_m = 64 if rows > 32 else 32
        grid = (triton.cdiv(rows, block_m), triton.cdiv(columns, block_n))
        _gemm_kernel[grid](
            a.contiguous(), b.contiguous(), decode_a.contiguous(), decode_b.contiguous(), out, rows, columns, inner,
            ROW_A=row_a, ROW_B=row_b, MAX_IMPRECISE=block_k if fast_accum else 32,
            BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        )  # fmt: skip
    return out


class Triton(CodesBackend):
    """Products by a kernel of this package: scales of tensors and rows, every pair of FP8 formats, any shape."""

    name = "triton"

    def probe(self, device: torch.device) -> Verdict:
        """See `Backend.probe`: 32 x 32 x 32, against `emulate`."""
        if device.type != "cuda" and not interpreting():
            return Verdict(False, "Triton needs CUDA, or its interpreter (TRITON_INTERPRET=1)")
        if not multiplies_fp8(device):
            return Verdict(False, "FP8 needs compute capability 8.9")
        return self.agrees(device)

    def product(self, a: Operand, b: Operand, fast_accum: bool = False) -> Tensor:
        """See `Backend.product`."""
        assert a.decode is not None
        assert b.decode is not None
        return gemm(a.data, b.data, a.decode, b.decode, fast_accum=fast_accum)


register_backend(Triton.name, Triton)
