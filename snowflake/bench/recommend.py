"""Which settings suit a robot and a machine: tried one after the other, within a time limit."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Settings = dict[str, Any]
Axis = tuple[str, tuple[Any, ...]]

MIN_GAIN = 0.03
"""A setting replaces the one before it from this gain on: smaller ones are noise."""
MIN_PRECISION_GAIN = 0.10
"""The same for a lower precision, which changes the numbers."""
MIN_N_STEPS = 16
"""Shorter rollouts are not proposed: advantages would hang on the value function alone."""


@dataclass
class Search:
    """Coordinate search: one axis after the other, each from the best so far.

    Args:
        measure: returns environment steps per second of settings; a text where they do not work.
        seconds: time limit. A measurement is not begun when the longest so far would pass it.
        now: clock in seconds.
    """

    measure: Callable[[Settings], float | str]
    seconds: float
    now: Callable[[], float] = time.perf_counter
    tried: list[tuple[Settings, float | str]] = field(default_factory=list)
    skipped: list[Settings] = field(default_factory=list)

    def run(self, start: Settings, axes: Sequence[Axis]) -> Settings:
        """Return the best settings found; `tried` and `skipped` tell how.

        Args:
            start: settings to begin with; always measured.
            axes: names and the values to try, beside that of `start`.
        """
        begin, longest = self.now(), 0.0
        best, best_rate = start, self._try(start)
        longest = self.now() - begin
        for name, values in axes:
            base = best
            for value in values:
                if value == base[name]:
                    continue
                candidate = with_setting(base, name, value)
                before = self.now()
                if before - begin + longest > self.seconds:
                    self.skipped.append(candidate)
                    continue
                rate = self._try(candidate)
                longest = max(longest, self.now() - before)
                if rate > best_rate * (1.0 + (MIN_PRECISION_GAIN if name == "precision" else MIN_GAIN)):
                    best, best_rate = candidate, rate
        return best

    def _try(self, settings: Settings) -> float:
        result = self.measure(settings)
        self.tried.append((settings, result))
        return result if isinstance(result, float) else 0.0


def with_setting(settings: Settings, name: str, value: Any) -> Settings:
    """Return settings with one changed; with another number of environments, rollouts keep their batch."""
    changed = settings | {name: value}
    if name == "n_envs":
        changed["n_steps"] = settings["n_steps"] * settings["n_envs"] // value
    return changed


def axes(
    start: Mapping[str, Any], cores: int, bodies: int, devices: Sequence[str], precisions: Sequence[str]
) -> list[Axis]:
    """Return what to try, the most promising axis first.

    Args:
        start: settings to begin with; numbers of threads resolved.
        cores: cores that the process may use.
        bodies: number of bodies that are trained together.
        devices: devices at hand.
        precisions: precisions that the config knows; empty if it has no such setting.
    """
    batch = start["n_envs"] * start["n_steps"]
    counts = [n * bodies for n in (4, 8, 16, 32, 64, 128)]
    fitting = tuple(n for n in counts if batch % n == 0 and batch // n >= MIN_N_STEPS)
    threads = tuple(sorted({1, max(1, cores // 2), cores}, reverse=True))
    found: list[Axis] = [
        ("device", tuple(devices)),
        ("n_envs", fitting),
        ("torch_threads", threads),
        ("num_threads", threads),
        ("precision", tuple(precisions)),
    ]
    return [(name, values) for name, values in found if name in start and set(values) - {start[name]}]


def command(given: Sequence[str], settings: Mapping[str, Any], start: Mapping[str, Any]) -> str:
    """Return the command line that trains with settings.

    Args:
        given: what the user chose, as arguments: bodies, method.
        settings: the best found.
        start: those of the config, whose values need no flag.
    """
    flags = [
        (f"--{name.replace('_', '-')}", str(value)) for name, value in settings.items() if value != start.get(name)
    ]
    return shlex.join(["snowflake", "train", *given, *(word for flag in flags for word in flag)])
