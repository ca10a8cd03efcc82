"""Triton kernels: a cast with fused amax, FP8 products, and a whole MLP in one kernel. Needs the `triton` package.

Importing this package makes the backend `triton` available. With `TRITON_INTERPRET=1` set before the first import of
Triton the kernels run on the CPU, slowly, for tests of their results.
"""

from snowflake.numerics.kernels.cast import CastResult, cast
from snowflake.numerics.kernels.device import hardware_cast, interpreting, multiplies_fp8
from snowflake.numerics.kernels.gemm import Triton, gemm
from snowflake.numerics.kernels.mlp import PackedMLP, Tile, default_tile, fused_mlp, pack

__all__ = [
    "CastResult",
    "PackedMLP",
    "Tile",
    "Triton",
    "cast",
    "default_tile",
    "fused_mlp",
    "gemm",
    "hardware_cast",
    "interpreting",
    "multiplies_fp8",
    "pack",
]
