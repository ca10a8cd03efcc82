"""Ways to compute a product of quantised matrices: emulated, or by the device's own 8-bit units."""

from snowflake.numerics.backends.base import (
    Backend,
    Verdict,
    backend_names,
    choose,
    find_backend,
    register_backend,
    verdict,
)
from snowflake.numerics.backends.emulate import Emulate, dequantised_product
from snowflake.numerics.backends.scaled_mm import ScaledMM

__all__ = [
    "Backend",
    "Emulate",
    "ScaledMM",
    "Verdict",
    "backend_names",
    "choose",
    "dequantised_product",
    "find_backend",
    "register_backend",
    "verdict",
]
