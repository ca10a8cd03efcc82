"""What a backend is, and the table of backends."""

from __future__ import annotations

import importlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from agents.errors import UserError, nearest
from snowflake.numerics.operand import Operand

_log = logging.getLogger(__name__)


class Verdict(NamedTuple):
    """Whether a backend works on a device, and why not."""

    works: bool
    reason: str


class Backend(ABC):
    """Computes products of quantised matrices.

    Attributes:
        name: as in `--backend`.
        codes: whether it takes 8-bit data with decode factors; else float32 values.
    """

    name: str
    codes: bool

    @abstractmethod
    def probe(self, device: torch.device) -> Verdict:
        """Try a small product on a device."""

    def refuses(self, a: Operand, b: Operand) -> str:
        """Return why it cannot compute the product of two operands itself, empty if it can."""
        return ""

    @abstractmethod
    def product(self, a: Operand, b: Operand, fast_accum: bool = False) -> Tensor:
        """Return a b^T, float32 (M, N), of operands (M, K) and (N, K) that it does not refuse."""


_FACTORIES: dict[str, Callable[[], Backend]] = {}
_OPTIONAL = {"triton": "snowflake.numerics.kernels"}  # modules that register a backend, where they can be imported
_VERDICTS: dict[tuple[str, str], Verdict] = {}


def register_backend(name: str, factory: Callable[[], Backend]) -> None:
    """Make a backend available by name."""
    _FACTORIES[name] = factory


def backend_names() -> tuple[str, ...]:
    """Return the names that `choose` takes."""
    return ("auto", *dict.fromkeys((*_FACTORIES, *_OPTIONAL)))


def find_backend(name: str) -> Backend:
    """Return a backend.

    Raises:
        UserError: no such backend, or what it needs is not installed.
    """
    if name not in _FACTORIES and name in _OPTIONAL:
        try:
            importlib.import_module(_OPTIONAL[name])
        except ImportError as error:
            raise UserError(f"backend {name!r} cannot be used here ({error}): choose emulate") from error
    if name not in _FACTORIES:
        raise UserError(f"backend = {name!r} is not one: {nearest(name, backend_names())}")
    return _FACTORIES[name]()


def verdict(backend: Backend, device: torch.device) -> Verdict:
    """Return whether a backend works on a device; probed at first use, logged, remembered."""
    key = (backend.name, str(device))
    if key not in _VERDICTS:
        found = backend.probe(device)
        _VERDICTS[key] = found
        _log.info("%s on %s: %s", backend.name, device, found.reason or "works")
    return _VERDICTS[key]


def choose(name: str, device: torch.device) -> tuple[Backend, str]:
    """Return a backend for a device and why it is this one.

    `auto` takes `scaled_mm` on CUDA where it works, and `emulate` elsewhere.

    Raises:
        UserError: the backend that is named does not work there.
    """
    if name != "auto":
        backend = find_backend(name)
        found = verdict(backend, device)
        if not found.works:
            raise UserError(f"backend {name!r} does not work on {device}: {found.reason}; choose emulate")
        return backend, "as asked for"
    if device.type != "cuda":
        return find_backend("emulate"), f"no 8-bit products on {device.type}"
    backend = find_backend("scaled_mm")
    found = verdict(backend, device)
    if found.works:
        return backend, "works on this device"
    return find_backend("emulate"), f"scaled_mm does not work on {device}: {found.reason}"
