"""Scales: what a tensor is multiplied by before it is cast to 8 bits, s; the decode factor is 1 / s.

A scale belongs to a group of numbers: the tensor, a row, or a block of rows and columns. Its shape broadcasts against
the matrix: () for the tensor, (R, 1) for rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snowflake.numerics.formats import Format, quantise

LIMIT = 31
"""Largest exponent, in size, of a power-of-two scale in Perez et al. (2023), arXiv 2309.17224."""


def amax(x: Tensor, granularity: str = "tensor", block: tuple[int, int] = (128, 128)) -> Tensor:
    """Return the largest magnitude of every group of a matrix (R, C); NaN and infinity come through.

    Args:
        x: (R, C).
        granularity: tensor, row or block.
        block: rows and columns of a block; the last ones of a matrix may be smaller.

    Returns:
        float32 () for the tensor, (R, 1) for rows, (ceil(R / r), ceil(C / c)) for blocks. 0 for a group of no numbers.
    """
    if granularity == "tensor":
        return _magnitude(x.reshape(1, -1)).reshape(())
    if granularity == "row":
        return _magnitude(x)
    rows, columns = -(-x.shape[0] // block[0]), -(-x.shape[1] // block[1])
    padded = torch.nn.functional.pad(x, (0, columns * block[1] - x.shape[1], 0, rows * block[0] - x.shape[0]))
    tiles = padded.reshape(rows, block[0], columns, block[1]).transpose(1, 2)
    return _magnitude(tiles.reshape(rows * columns, block[0] * block[1])).reshape(rows, columns)


def _magnitude(x: Tensor) -> Tensor:
    if not x.numel():
        return x.new_zeros((len(x), 1), dtype=torch.float32)
    # Neither makes a copy of x, which |x| would.
    return torch.maximum(x.amax(1, keepdim=True), x.amin(1, keepdim=True).neg()).to(torch.float32)


def exp2(power: Tensor) -> Tensor:
    """Return 2^power exactly, as float32, of int32 powers in [-126, 127]."""
    return ((power + 127) << 23).view(torch.float32)


def expand_blocks(values: Tensor, block: tuple[int, int], shape: tuple[int, int]) -> Tensor:
    """Repeat one value a block (rows, columns) over the numbers of a matrix of `shape`."""
    tall = values.repeat_interleave(block[0], dim=0)[: shape[0]]
    return tall.repeat_interleave(block[1], dim=1)[:, : shape[1]]


def pow2_scale(largest: Tensor, fmt: Format, margin: int = 0, limit: int | None = None) -> Tensor:
    """Return the largest power of two that keeps a magnitude within a format, without a logarithm.

    For `largest` = m * 2^k with m in [1, 2) it is 2^(top - k) if m <= 1.75 else 2^(top - 1 - k), where the format's
    largest number is 1.75 * 2^top; so largest * s <= max < 2 * largest * s, for margin 0.

    Args:
        largest: magnitudes, float32, any shape.
        fmt: E4M3 or E5M2.
        margin: binary places kept free, for numbers that may still grow.
        limit: clip the exponent to +-limit.

    Returns:
        float32, same shape; 1 where `largest` is zero or not finite, since neither has a scale.
    """
    usable = torch.isfinite(largest) & (largest > 0)
    mantissa, exponent = torch.frexp(torch.where(usable, largest, 1.0))  # mantissa in [1/2, 1)
    power = fmt.max_exponent + 1 - margin - exponent - (mantissa > 0.875).to(exponent.dtype)
    bound = 126 if limit is None else limit  # 2^126: 1 / s must be a normal number
    scale = exp2(power.clamp(-bound, bound))
    return torch.where(usable, scale, 1.0)


def fp32_scale(largest: Tensor, fmt: Format, margin: int = 0) -> Tensor:
    """Return max / largest / 2^margin, computed in float64 and rounded, so that eager and compiled code agree.

    Args and result are those of `pow2_scale`; the smallest magnitudes get 2^126, since 1 / s must be a normal number.
    """
    usable = torch.isfinite(largest) & (largest > 0)
    scale = fmt.max / torch.where(usable, largest, 1.0).to(torch.float64) * 2.0**-margin
    return torch.where(usable, scale.clamp(max=2.0**126).to(torch.float32), 1.0)


def gam_scale(largest: Tensor, group: Tensor, fmt: Format) -> Tensor:
    """Return group-amax-mantissa scales: the mantissa of the group's scale with an exponent for every block.

    With sg = max / amax(group) = mg * 2^eg and sb = max / amax(block) = mb * 2^eb it is mg * 2^eb, or half that where
    mg > mb, so that it never exceeds sb and never falls to half of it. Reconstructed from the abstract of Su et al.
    (2025), arXiv 2512.22804.

    Args:
        largest: magnitude of each block, float32.
        group: magnitude of the group that it belongs to, () or a shape that broadcasts.
        fmt: E4M3 or E5M2.

    Returns:
        float32, the shape of `largest`; 1 where that is zero or not finite.
    """
    block_scale, group_scale = fp32_scale(largest, fmt), fp32_scale(group, fmt)
    block_mantissa, exponent = torch.frexp(block_scale)
    mantissa = torch.frexp(group_scale)[0]
    exponent = exponent - (mantissa > block_mantissa).to(exponent.dtype)
    usable = torch.isfinite(largest) & (largest > 0)
    return torch.where(usable, mantissa * exp2(exponent.clamp(-126, 127)), 1.0)


def best_exponent(x: Tensor, fmt: Format, low: int = -LIMIT, high: int = LIMIT) -> int:
    """Return the exponent b for which quantising x * 2^b has the least squared error, the smallest of equals.

    A tool for choosing constants offline; it reads back from the device.
    """
    exponents = range(low, high + 1)
    errors = torch.stack(
        [(quantise(x * 2.0**b, fmt) * 2.0**-b - x).to(torch.float64).square().sum() for b in exponents]
    )
    return exponents[int(errors.argmin())]
