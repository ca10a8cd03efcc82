"""Precision of matrix products on the CPU."""

from __future__ import annotations

from types import TracebackType

import torch

from agents.errors import UserError


def check_precision(precision: str, device: str) -> None:
    """Require that a machine has a precision.

    Args:
        precision: ``fp32`` or ``bf16``.
        device: ``auto``, ``cpu``, ``cuda``, ...

    Raises:
        UserError: it lacks it; the message says what is missing.
    """
    if precision == "fp32":
        return
    reason = None
    if device not in ("auto", "cpu"):
        reason = f"it is for the CPU, and device is {device}"
    elif not (torch.backends.mkldnn.is_available() and hasattr(torch.backends.mkldnn, "matmul")):
        reason = f"PyTorch {torch.__version__} cannot do it: it takes one with oneDNN, of 2.9 or later"
    elif not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        reason = "this CPU has neither avx512_bf16 nor AMX"
    if reason:
        raise UserError(f"precision = {precision!r}: {reason}; use --precision fp32")


class MatmulPrecision:
    """Context in which PyTorch rounds the inputs of matrix products, on the CPU, in all threads.

    Args:
        precision: ``fp32`` changes nothing; ``bf16`` rounds to 8 significant bits, sums stay in float32. Point-wise
            operations, parameters and optimiser are in float32 either way.
    """

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self._before: list[str] = []

    def __enter__(self) -> None:
        if self.precision != "fp32":
            self._before.append(torch.backends.mkldnn.matmul.fp32_precision)
            torch.backends.mkldnn.matmul.fp32_precision = self.precision

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.precision != "fp32":
            torch.backends.mkldnn.matmul.fp32_precision = self._before.pop()
