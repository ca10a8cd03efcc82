"""Task section of the training config: the dataclass of the environments itself, so that defaults have one source."""

from __future__ import annotations

from envs.tasks.options import TaskOptions

__all__ = ["TaskOptions"]
