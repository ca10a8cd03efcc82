"""Compiles the kernels for Hopper, which needs no GPU; `test_kernels.py` runs this file in a process of its own."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SHARED_MEMORY = 227 * 1024  # bytes that a program may have there

FLOAT, FP8, E5M2, INT = "*fp32", "*fp8e4nv", "*fp8e5", "*i32"


def compiled(name: str, kernel: str, pointers: dict[str, str], constants: dict[str, Any], warps: int = 4) -> Any:
    function = getattr(importlib.import_module(f"snowflake.numerics.kernels.{name}"), kernel)
    signature = {arg: pointers.get(arg, "constexpr" if arg in constants else "i32") for arg in function.arg_names}
    values = {(function.arg_names.index(key),): value for key, value in constants.items()}
    source = ASTSource(fn=function, signature=signature, constexprs=values)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


@pytest.mark.parametrize("out", [FP8, E5M2])
def test_cast(out: str) -> None:
    pointers = {"x_pointer": "*bf16", "scale_pointer": FLOAT, "out_pointer": out, "transposed_pointer": out}
    pointers |= {"amax_pointer": INT, "nonfinite_pointer": INT}
    constants = {"E5M2": out == E5M2, "TRANSPOSE": True, "HARDWARE": True, "BLOCK_M": 32, "BLOCK_K": 128}
    kind = "e5m2x2" if out == E5M2 else "e4m3x2"
    assert re.search(rf"cvt\.rn\.satfinite\.{kind}", compiled("cast", "_cast_kernel", pointers, constants).asm["ptx"])


@pytest.mark.parametrize("imprecise", [32, 128])
def test_gemm_uses_the_fp8_units(imprecise: int) -> None:
    pointers = {
        "a_pointer": E5M2,
        "b_pointer": FP8,
        "scale_a_pointer": FLOAT,
        "scale_b_pointer": FLOAT,
        "out_pointer": FLOAT,
    }
    blocks = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 128}
    constants = {"ROW_A": True, "ROW_B": False, "MAX_IMPRECISE": imprecise, **blocks}
    assert "wgmma.mma_async" in compiled("gemm", "_gemm_kernel", pointers, constants).asm["ptx"]


@pytest.mark.parametrize("size", [64, 512])
def test_mlp_uses_the_fp8_units_and_fits(size: int) -> None:
    from snowflake.numerics.kernels import default_tile

    tile = default_tile(size)
    pointers = {"x_pointer": "*bf16", "w_pointer": FP8, "out_pointer": "*bf16", "nonfinite_pointer": INT}
    pointers |= {f"{name}_pointer": FLOAT for name in ("bias", "factor", "scale", "scratch")}
    constants = {"LAYERS": 3, "TANH_LAYERS": 3, "TANH_FACTOR": 1.0, "P": size, "HARDWARE": True, "ROW_SCALES": True}
    constants |= {"BLOCK_M": tile.rows, "BLOCK_N": tile.outputs}
    found = compiled("mlp", "_mlp_kernel", pointers, constants, tile.warps)
    assert re.search(r"wgmma\.mma_async\S*e4m3\.e4m3", found.asm["ptx"])
    assert found.metadata.shared <= SHARED_MEMORY
