"""Number formats of 8 and 16 bits and the quantiser, bit for bit what a saturating hardware cast does.

E4M3 (the `fn` variant: no infinity, one NaN per sign) and E5M2 are those of Micikevicius et al. (2022),
arXiv 2209.05433; torch calls them `float8_e4m3fn` and `float8_e5m2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.errors import UserError, nearest

_EXPONENT_BITS = 0x7F800000  # of float32
_SIGN_BIT = -(2**31)


@dataclass(frozen=True)
class Format:
    """A binary floating-point format with subnormals.

    Attributes:
        name: as in recipes: e4m3, e5m2 or bf16.
        mantissa_bits: p, without the implicit one.
        min_exponent: exponent of the smallest normal number.
        max: largest finite number.
        dtype: torch's type of the same numbers.
    """

    name: str
    mantissa_bits: int
    min_exponent: int
    max: float
    dtype: torch.dtype

    @property
    def bits(self) -> int:
        """Return the size of a number in bits."""
        return self.dtype.itemsize * 8

    @property
    def max_exponent(self) -> int:
        """Return the exponent of the largest finite number."""
        return math.frexp(self.max)[1] - 1

    @property
    def min_normal(self) -> float:
        """Return the smallest positive normal number."""
        return 2.0**self.min_exponent

    @property
    def min_subnormal(self) -> float:
        """Return the smallest positive number."""
        return 2.0 ** (self.min_exponent - self.mantissa_bits)


E4M3 = Format("e4m3", 3, -6, 448.0, torch.float8_e4m3fn)
E5M2 = Format("e5m2", 2, -14, 57344.0, torch.float8_e5m2)
BF16 = Format("bf16", 7, -126, float(torch.finfo(torch.bfloat16).max), torch.bfloat16)
FORMATS = {fmt.name: fmt for fmt in (E4M3, E5M2, BF16)}


def find_format(name: str) -> Format:
    """Return the format of a name.

    Raises:
        UserError: no such format.
    """
    if name not in FORMATS:
        raise UserError(f"{name!r} is not a number format: {nearest(name, tuple(FORMATS))}")
    return FORMATS[name]


def quantise(x: Tensor, fmt: Format) -> Tensor:
    """Round to the nearest number of a format, ties to even.

    Finite overflow and infinity saturate in the 8-bit formats, NaN stays NaN, the sign of zero is kept. BF16 is the
    plain cast, in which infinity stays.

    Args:
        x: any shape; float32, or float16 and bfloat16, which are widened first.
        fmt: the format.

    Returns:
        The rounded numbers as float32, same shape.
    """
    x = x.detach()
    if fmt is BF16:
        return x.to(torch.bfloat16).to(torch.float32)
    return _round_(x.to(torch.float32).clamp(-fmt.max, fmt.max), fmt)


def quantise_(x: Tensor, fmt: Format) -> Tensor:
    """Do what `quantise` does to a float32 tensor in place, for E4M3 and E5M2."""
    return _round_(x.detach().clamp_(-fmt.max, fmt.max), fmt)


def _round_(x: Tensor, fmt: Format) -> Tensor:
    """Round float32 numbers within a format's range, in place."""
    bits = x.view(torch.int32)
    sign = bits & _SIGN_BIT
    # 1.5 * 2^23 steps of the local grid: adding that leaves no bits finer than the grid, subtracting it gives the sum
    # rounded half to even. It only uses float32 arithmetic, so it holds on devices without 8-bit types.
    shift = (bits & _EXPONENT_BITS).view(torch.float32)  # 2^exponent; infinity for NaN
    shift = shift.clamp_(min=fmt.min_normal).mul_(1.5 * 2.0 ** (23 - fmt.mantissa_bits))
    x.add_(shift).sub_(shift)
    bits.bitwise_or_(sign)  # of zeros; copysign is slower
    return x


def encode(x: Tensor, fmt: Format) -> Tensor:
    """Return numbers in a format's own type: `quantise`, then an exact cast."""
    return x.to(torch.bfloat16) if fmt is BF16 else quantise(x, fmt).to(fmt.dtype)


def decode(codes: Tensor, fmt: Format) -> Tensor:
    """Return the float32 numbers behind codes, given as `fmt.dtype` or as integers of as many bits (uint8, int16)."""
    return (codes if codes.dtype == fmt.dtype else codes.view(fmt.dtype)).to(torch.float32)
