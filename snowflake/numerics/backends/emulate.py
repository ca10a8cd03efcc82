"""Products of dequantised operands: the 8-bit numbers bit for bit, on any device, at no gain in speed."""

from __future__ import annotations

import torch
from torch import Tensor

from snowflake.numerics.backends.base import Backend, Verdict, register_backend
from snowflake.numerics.operand import Operand


def dequantised_product(a: Operand, b: Operand) -> Tensor:
    """Return a b^T of the values, float32, summed in float32.

    On CUDA, values that BF16 holds exactly are multiplied in it.
    """
    x, y = a.values(), b.values()
    if (
        x.device.type == "cuda"
        and a.exact_bf16
        and b.exact_bf16
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
    ):
        return torch.mm(x.to(torch.bfloat16), y.to(torch.bfloat16).t(), out_dtype=torch.float32)
    return x @ y.t()


class Emulate(Backend):
    """Float32 values through ordinary products."""

    name = "emulate"
    codes = False

    def probe(self, device: torch.device) -> Verdict:
        """See `Backend.probe`."""
        return Verdict(True, "")

    def product(self, a: Operand, b: Operand, fast_accum: bool = False) -> Tensor:
        """See `Backend.product`."""
        return dequantised_product(a, b)


register_backend(Emulate.name, Emulate)
