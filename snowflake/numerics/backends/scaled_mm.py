"""Products of 8-bit operands by `torch.nn.functional.scaled_mm`, or `torch._scaled_mm` where that is all there is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from snowflake.numerics.backends.base import Verdict, register_backend
from snowflake.numerics.backends.codes import CodesBackend
from snowflake.numerics.formats import E5M2
from snowflake.numerics.operand import Operand

_ALIGNMENT = 16  # of both dimensions of the second operand, on CUDA


class ScaledMM(CodesBackend):
    """Tensor-wise and row-wise scales. On CUDA it needs compute capability 8.9 or more."""

    name = "scaled_mm"

    def probe(self, device: torch.device) -> Verdict:
        """See `Backend.probe`: 32 x 32 x 32, against `emulate`."""
        if not (hasattr(F, "scaled_mm") or hasattr(torch, "_scaled_mm")):
            return Verdict(False, f"torch {torch.__version__} has no scaled_mm")
        return self.agrees(device)

    def refuses(self, a: Operand, b: Operand) -> str:
        """See `Backend.refuses`."""
        if a.format is E5M2 and b.format is E5M2 and a.data.device.type == "cuda":
            return "both operands in E5M2"
        return super().refuses(a, b)

    def product(self, a: Operand, b: Operand, fast_accum: bool = False) -> Tensor:
        """See `Backend.product`. Row-wise products on CUDA come in BF16, which is then widened."""
        rows, columns = len(a.data), len(b.data)
        x, y = a.data, b.data
        if not x.numel() or not y.numel():
            return torch.zeros(rows, columns, device=x.device)
        cuda = x.device.type == "cuda"
        if cuda:
            x, y = _pad(x, False), _pad(y, True)
        assert a.decode is not None
        assert b.decode is not None
        by_row = bool(a.decode.dim() or b.decode.dim())
        scale_a, scale_b = a.decode, b.decode
        if by_row:
            # Copies: a tensor of one number passes for contiguous whatever its strides, but not here.
            scale_a = scale_a.new_empty(rows, 1).copy_(scale_a.expand(rows, 1))
            scale_b = scale_b.new_ones(1, len(y))
            scale_b[:, :columns] = b.decode.expand(columns, 1).t()
        dtype = torch.bfloat16 if by_row and cuda else torch.float32
        result = _scaled_mm(x.contiguous(), y.contiguous().t(), scale_a, scale_b, dtype, fast_accum and cuda)
        return result[:, :columns].to(torch.float32)


def _pad(x: Tensor, rows: bool) -> Tensor:
    """Return a matrix with zero columns, and rows, up to a multiple of the alignment."""
    wide, tall = -x.shape[1] % _ALIGNMENT, -x.shape[0] % _ALIGNMENT if rows else 0
    if not (wide or tall):
        return x
    padded = torch.zeros(x.shape[0] + tall, x.shape[1] + wide, dtype=torch.uint8, device=x.device)
    padded[: x.shape[0], : x.shape[1]] = x.view(torch.uint8)
    return padded.view(x.dtype)


def _scaled_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, dtype: torch.dtype, fast: bool) -> Tensor:
    """Return the product of row-major a (M, K) and column-major b (K, N)."""
    if hasattr(F, "scaled_mm"):
        kinds: Any = F.ScalingType  # type: ignore[attr-defined]
        kind = kinds.RowWise if scale_a.dim() else kinds.TensorWise
        return F.scaled_mm(a, b, scale_a, kind, scale_b, kind, output_dtype=dtype, use_fast_accum=fast)
    private: Any = torch
    return private._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=dtype, use_fast_accum=fast)


register_backend(ScaledMM.name, ScaledMM)
