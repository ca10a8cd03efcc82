"""Where a number came from: versions, hardware, threads, command."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from snowflake.run import versions


def cpu_model() -> str:
    """Model name of the processor, as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def provenance(command: str, num_threads: int, device: str) -> dict[str, Any]:
    """The record that goes with a result.

    Args:
        command: Command line that made it.
        num_threads: Physics threads asked for; 0 for every core.
        device: Device of the policy.
    """
    import torch

    return {
        "command": command,
        "time_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "hardware": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu",
        },
        "threads": {"physics": num_threads, "torch": torch.get_num_threads()},
    }
