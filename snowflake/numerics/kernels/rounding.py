"""Device functions that round float32 to the grid of an 8-bit format, and find scales of rows, inside a kernel.

Triton's interpreter rounds its casts wrongly, and devices below compute capability 8.9 have no E4M3 cast. So numbers
are rounded in float32 first, after which every cast is exact. `hardware` leaves the rounding to the cast of newer
devices.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def round_to_grid(x, e5m2: tl.constexpr):
    """Return float32 x on the grid of E4M3 or E5M2: ties to even, saturated, the sign of zero kept. NaN is lost."""
    largest: tl.constexpr = 57344.0 if e5m2 else 448.0
    min_normal: tl.constexpr = 6.103515625e-05 if e5m2 else 0.015625
    dropped: tl.constexpr = 21 if e5m2 else 20  # bits of float32's mantissa that the format lacks
    half: tl.constexpr = (1 << (dropped - 1)) - 1
    mask: tl.constexpr = -(1 << dropped)
    # 1.5 * 2^23 subnormal steps: adding it rounds to a multiple of the step, in float32's own rounding mode.
    shift: tl.constexpr = 192.0 if e5m2 else 24576.0
    a = tl.minimum(tl.abs(x), largest)
    bits = a.to(tl.int32, bitcast=True)
    normal = ((bits + half + ((bits >> dropped) & 1)) & mask).to(tl.float32, bitcast=True)
    subnormal = (a + shift) - shift
    rounded = tl.where(a < min_normal, subnormal, normal)
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    return (rounded.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)


@triton.jit
def to_fp8(x, e5m2: tl.constexpr, hardware: tl.constexpr):
    """Return float32 x as `float8e4nv` or `float8e5`."""
    largest: tl.constexpr = 57344.0 if e5m2 else 448.0
    y = tl.minimum(tl.maximum(x, -largest), largest) if hardware else round_to_grid(x, e5m2)
    q = y.to(tl.float8e5) if e5m2 else y.to(tl.float8e4nv)
    # Clamping drops a NaN and the interpreter's cast mangles it: 0x7F is one in both formats.
    codes = tl.where(x != x, 127, q.to(tl.uint8, bitcast=True)).to(tl.uint8)
    return codes.to(tl.float8e5, bitcast=True) if e5m2 else codes.to(tl.float8e4nv, bitcast=True)


@triton.jit
def pow2_scale(amax, e5m2: tl.constexpr):
    """Return the largest power of two s with amax * s within the format; 1 where amax is zero or not finite."""
    top: tl.constexpr = 15 if e5m2 else 8
    bits = amax.to(tl.int32, bitcast=True)
    power = top - ((bits >> 23) - 127) - ((bits & 0x7FFFFF) > 0x600000).to(tl.int32)
    power = tl.minimum(tl.maximum(power, -126), 126)
    scale = ((power + 127) << 23).to(tl.float32, bitcast=True)
    return tl.where((amax > 0) & (bits < 0x7F800000), scale, 1.0)


@triton.jit
def tanh(x):
    """Return tanh(x) as 2 sigmoid(2 x) - 1, which needs no device library."""
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0
