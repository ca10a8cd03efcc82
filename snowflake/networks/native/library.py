"""The compiled library and its functions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from snowflake.networks.native.build import build

_SUFFIX = {torch.float32: "32", torch.float64: "64"}


class Library:
    """Functions of the compiled library, which run without Python's lock.

    Args:
        file: the shared library.
        seconds: how long it took to compile; 0 if it was there already.
    """

    def __init__(self, file: str, seconds: float) -> None:
        self.seconds = seconds
        self._functions = ctypes.CDLL(file)

    def call(self, name: str, dtype: torch.dtype, argument: ctypes.Structure) -> int:
        """Call a function of a type on a structure."""
        function = getattr(self._functions, f"{name}_{_SUFFIX[dtype]}")
        function.restype = ctypes.c_int64
        return int(function(ctypes.byref(argument)))


@cache
def library() -> Library | str:
    """Return the library, compiled at the first call of this process if need be, or why there is none."""
    built = build()
    if isinstance(built, str):
        return built
    try:
        return Library(str(built.file), built.seconds)
    except OSError as error:
        return f"the compiled library cannot be loaded: {error}"


def supports(dtype: torch.dtype) -> bool:
    """Return whether the library computes in a type."""
    return dtype in _SUFFIX


def address(tensor: Tensor | None) -> int | None:
    """Return where the numbers of a contiguous tensor are; None for None."""
    if tensor is None:
        return None
    assert tensor.is_contiguous()
    return tensor.data_ptr()


def addresses(tensors: Sequence[Tensor | None]) -> Any:
    """Return an array of addresses, to be kept as long as it is used."""
    return (ctypes.c_void_p * len(tensors))(*map(address, tensors))
