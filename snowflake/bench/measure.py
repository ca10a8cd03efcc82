"""The measurements of one config beside its floors, as plain data."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snowflake.bench.clock import spread
from snowflake.bench.gemms import Gemm, GemmFloor
from snowflake.bench.step import PARTS, ROLLOUT, UPDATE, TrainingStep
from snowflake.config import TrainConfig

WARM_UP = 2
"""Steps before the first that counts; the first of all compiles."""


class Measurement:
    """Training of one config, measured repetition by repetition, so that others can be measured in between.

    Args:
        config: what to train.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self._folder = tempfile.TemporaryDirectory(prefix="snowflake-bench-")
        self.step = TrainingStep(config, Path(self._folder.name))
        self._whole: list[float] = []
        self._parts: list[dict[str, float]] = []
        self._physics: list[float] = []
        self._gemm_times: list[dict[str, float]] = []
        self._first = self.step.run()
        for _ in range(WARM_UP - 1):
            self.step.run()
        self._memory = self.step.memory()  # before the profiler, which keeps notes
        self.gemms: Counter[Gemm] = self.step.record_update()
        self._floor = GemmFloor(self.gemms, self.step.device, self.step.threads)

    def repeat(self) -> float:
        """Measure once: a step as it is, one in parts, both floors. Returns environment steps per second."""
        self._whole.append(self.step.run())
        self._parts.append(self.step.split())
        self._physics.append(self.step.physics_floor())
        self._gemm_times.append(self._floor.seconds())
        return self.step.batch / self._whole[-1]

    def close(self) -> None:
        """End what runs."""
        self.step.close()
        self._folder.cleanup()

    def report(self) -> dict[str, Any]:
        """Return all figures, JSON-able: seconds of one training step, bytes, ratios; medians with min and max.

        Keys: `agents`, `method`, `settings`, `batch`, `nodes`, `steps_per_second`, `seconds` (of a whole step),
        `parts`, `floors` (`physics`; `gemms`, and its two ways of using threads), `gemm_count`, `gemm_gflop`, `ratios`
        (see `ratios`), `first_step_seconds` (with compilation), `memory`.
        """
        config = self.config
        floors = {"physics": spread(self._physics)}
        for name in self._gemm_times[0]:
            key = "gemms" if name == "floor" else f"gemms_{name}"
            floors[key] = spread([times[name] for times in self._gemm_times])
        return {
            "agents": list(config.agents),
            "method": config.method,
            "settings": settings(config) | {"torch_threads": self.step.threads, "device": self.step.device},
            "batch": self.step.batch,
            "nodes": {graph.name: len(graph.node_type) for graph in self.step.algorithm.policy.graphs},
            "steps_per_second": spread([self.step.batch / seconds for seconds in self._whole]),
            "seconds": spread(self._whole),
            "parts": {name: spread([parts[name] for parts in self._parts]) for name in PARTS},
            "floors": floors,
            "gemm_count": sum(self.gemms.values()),
            "gemm_gflop": sum(gemm.flops * n for gemm, n in self.gemms.items()) / 1e9,
            "ratios": self._ratios(),
            "first_step_seconds": self._first,
            "memory": self._memory,
        }

    def _ratios(self) -> dict[str, Any]:
        rows = [
            ratios(parts, physics, times["floor"])
            for parts, physics, times in zip(self._parts, self._physics, self._gemm_times, strict=True)
        ]
        return {name: spread([row[name] for row in rows]) for name in rows[0]}


def settings(config: TrainConfig) -> dict[str, Any]:
    """Return what of a config decides its speed on a machine, by the name of the flag."""
    found = {
        "n_envs": config.env.n_envs,
        "n_steps": config.ppo.n_steps,
        "batch_size": config.ppo.batch_size,
        "n_epochs": config.ppo.n_epochs,
        "torch_threads": config.torch_threads,
        "num_threads": config.env.num_threads,
        "device": config.device,
    }
    for section in (config, config.policy, config.ppo):
        found |= {name: getattr(section, name) for name in ("precision", "compile") if hasattr(section, name)}
    return found


def ratios(parts: Mapping[str, float], physics_floor: float, gemm_floor: float) -> dict[str, float]:
    """Return how far the parts of a step are from what is possible.

    Args:
        parts: seconds by part.
        physics_floor: seconds of MuJoCo alone.
        gemm_floor: seconds of the update's GEMMs alone.

    Returns:
        `update_to_gemms` and `physics_to_floor`, times over floors; `rollout_share`, the rollout without physics over
        the whole step; `whole_to_floors`, the step over both floors together.
    """
    total = sum(parts.values())
    return {
        "update_to_gemms": sum(parts[name] for name in UPDATE) / gemm_floor,
        "physics_to_floor": parts["physics"] / physics_floor,
        "rollout_share": sum(parts[name] for name in ROLLOUT if name != "physics") / total,
        "whole_to_floors": total / (physics_floor + gemm_floor),
    }
