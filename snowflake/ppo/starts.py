"""The log of a run's starts: its first one and every resume, with what decides the bits of its numbers."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from agents.errors import UserError
from snowflake.config import TrainConfig
from snowflake.files import append_line, dump_json
from snowflake.json_files import parse_entry
from snowflake.run import versions

STARTS_FILE = "starts.jsonl"
_LABELS = {
    "torch_threads": "torch threads",
    "cpu": "vector instructions of the CPU",
    "device": "device",
    "compile": "compile",
    "precision": "precision",
}
_PACKAGES = ("snowflake-rl", "torch", "mujoco", "numpy")


def record_start(folder: Path, step: int, config: TrainConfig, command: Sequence[str] | None = None) -> list[str]:
    """Add a start to the log and compare it with the one before.

    What counts as torch's threads are those that share one operation: the threads of an update on the CPU, which
    compute whole parts of a minibatch, change no number, nor do those of the physics.

    Args:
        folder: Run folder.
        step: Where training goes on.
        config: Resolved config.
        command: What the user typed; ``sys.argv`` if not given.

    Returns:
        What is different from the start before, so that the run is no longer bit-exact: ``"torch 2.11 -> 2.13"``.
    """
    now: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "step": step,
        "total_timesteps": config.total_timesteps,
        "command": shlex.join(command or sys.argv),
        "torch_threads": torch.get_num_threads(),
        "update_threads": config.torch_threads,
        "physics_threads": config.env.num_threads,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "device": config.device,
        "compile": config.compile,
        "precision": config.precision,
        "versions": versions(),
    }
    before = _last(folder / STARTS_FILE)
    append_line(folder / STARTS_FILE, dump_json(now, indent=None))
    pairs = {label: (before.get(key), now[key]) for key, label in _LABELS.items()}
    old = before.get("versions")
    known = old if isinstance(old, dict) else {}
    pairs |= {name: (known.get(name), now["versions"].get(name)) for name in _PACKAGES}
    return [f"{what} {a} -> {b}" for what, (a, b) in pairs.items() if a is not None and a != b]


def _last(file: Path) -> dict[str, Any]:
    """The latest whole entry; empty for a run of a version that kept no log."""
    if not file.exists():
        return {}
    entries = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(UserError):  # a kill may have cut a line
            entries.append(parse_entry(line, file, "").object())
    return entries[-1] if entries else {}
