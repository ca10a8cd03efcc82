"""The compiled library and its functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from agents.errors import UserError
from snowflake.config.policy import PolicyConfig
from snowflake.networks.native.build import build

MAX_WIDTH = 256
"""Width of layers above which products are large enough for PyTorch's own to be the faster ones."""

COMPILED = ("auto", "compiled")
"""Choices of `PolicyConfig.kernels` that let the library compute."""

_SUFFIX = {torch.float32: "32", torch.float64: "64"}


class Library:
    """Functions of the compiled library, which run without Python's lock.

    Args:
        file: the shared library.
        seconds: how long it took to compile; 0 if it was there already.

    Attributes:
        multiplies_bf16: whether the CPU multiplies bfloat16 numbers.
    """

    def __init__(self, file: str, seconds: float) -> None:
        self.seconds = seconds
        loaded = ctypes.CDLL(file)
        names = [f"{what}_{part}" for what in ("rounds", "mlp") for part in ("numbers", "forward", "backward")]
        self.multiplies_bf16 = bool(_function(loaded, "multiplies_bfloat")())
        self._functions = {(n, dtype): _function(loaded, f"{n}_{end}") for n in names for dtype, end in _SUFFIX.items()}

    def call(self, name: str, dtype: torch.dtype, argument: ctypes.Structure) -> int:
        """Call a function of a type on a structure."""
        return int(self._functions[name, dtype](ctypes.addressof(argument)))


def _function(loaded: ctypes.CDLL, name: str) -> Callable[..., int]:
    function = getattr(loaded, name)
    function.restype, function.argtypes = ctypes.c_int64, () if name == "multiplies_bfloat" else (ctypes.c_void_p,)
    return function


@cache
def library() -> Library | str:
    """Return the library, compiled at the first call of this process if need be, or why there is none."""
    built = build()
    if isinstance(built, str):
        return built
    try:
        return Library(str(built.file), built.seconds)
    except (OSError, AttributeError) as error:
        return f"the compiled library cannot be loaded: {error}"


def library_for(kernels: str, x: Tensor, width: int) -> Library | None:
    """Return the library if it is to compute on a tensor.

    Args:
        kernels: `PolicyConfig.kernels`.
        x: what it would read.
        width: largest width of a layer.
    """
    if kernels not in COMPILED or x.device.type != "cpu" or x.dtype not in _SUFFIX or width > MAX_WIDTH:
        return None
    if torch.compiler.is_compiling():
        return None
    found = library()
    return None if isinstance(found, str) else found


def address(tensor: Tensor | None) -> int | None:
    """Return where the numbers of a contiguous tensor are; None for None."""
    if tensor is None:
        return None
    return tensor.data_ptr()


def addresses(tensors: Sequence[Tensor | None]) -> Any:
    """Return an array of addresses, to be kept as long as it is used."""
    return (ctypes.c_void_p * len(tensors))(*map(address, tensors))


def choice(config: PolicyConfig) -> str:
    """Return in one line which code computes the rounds of messages on the CPU, and why.

    Raises:
        UserError: `kernels` is compiled, and nothing can be compiled here.
    """
    if config.kernels == "reference":
        return "kernels: reference, PyTorch's autograd (policy.kernels)"
    if config.kernels == "fused":
        return "kernels: fused, hand-written in PyTorch (policy.kernels)"
    found = library()
    if isinstance(found, str):
        if config.kernels == "compiled":
            raise UserError(f"policy.kernels = 'compiled': {found}; choose --kernels auto")
        return f"kernels: fused, hand-written in PyTorch, since {found}; compiled ones would make training faster"
    if config.hidden_size > MAX_WIDTH:
        return f"kernels: fused, hand-written in PyTorch, since hidden_size is above {MAX_WIDTH}"
    took = f" (which took {found.seconds:.0f} s)" if found.seconds else ""
    reasons = {
        config.message_layer: config.message_layer != "mlp",
        "aggregation max": config.aggregation == "max",
        f"gru {config.gru}": config.gru != "reset_before",
        "unit scaling": config.parametrization == "unit",
    }
    what = next((reason for reason, holds in reasons.items() if holds), None)
    if what is None or config.network == "mlp":
        return f"kernels: compiled{took}"
    return f"kernels: compiled{took}, but the rounds of messages are autograd's, since {what} has no others"
