"""What backends have in common that multiply 8-bit data with decode factors of tensors or rows."""

from __future__ import annotations

import torch

from snowflake.numerics.backends.base import Backend, Verdict
from snowflake.numerics.backends.emulate import dequantised_product
from snowflake.numerics.formats import BF16, E4M3, quantise
from snowflake.numerics.operand import Operand


class CodesBackend(Backend):
    """Base of such backends."""

    codes = True

    def agrees(self, device: torch.device) -> Verdict:
        """Compare one product, 32 x 32 x 32, with the emulated one, bit by bit."""
        values = (torch.arange(32 * 32, device=device).reshape(32, 32) % 17 - 8).to(torch.float32)
        operand = Operand(quantise(values, E4M3).to(E4M3.dtype), torch.ones((), device=device), E4M3, True)
        try:
            y = self.product(operand, operand)
        except Exception as error:  # the errors of compilers and drivers have many types
            return Verdict(False, (str(error).splitlines() or [type(error).__name__])[0])
        if not torch.equal(y, dequantised_product(operand, operand)):
            return Verdict(False, "its product differs from the emulated one")
        return Verdict(True, "")

    def refuses(self, a: Operand, b: Operand) -> str:
        """See `Backend.refuses`."""
        for operand in (a, b):
            if operand.format is None:
                return "numbers of several formats"
            if operand.format is BF16:
                return "an operand in BF16"
            if operand.decode is None:
                return "scales of blocks"
            if operand.decode.dim() and operand.decode.shape[1] != 1:
                return "scales along the sum"
        return ""
