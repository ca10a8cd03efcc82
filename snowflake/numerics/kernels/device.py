"""What a device can do."""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import torch
from triton import knobs


def interpreting() -> bool:
    """Return whether kernels run in Triton's interpreter: `TRITON_INTERPRET=1` when they were imported."""
    return bool(knobs.runtime.interpret)


def hardware_cast(device: torch.device) -> bool:
    """Return whether a device rounds to E4M3 and E5M2 by itself."""
    return not interpreting() and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def multiplies_fp8(device: torch.device) -> bool:
    """Return whether a device multiplies FP8 matrices; the interpreter does."""
    return interpreting() or hardware_cast(device)
