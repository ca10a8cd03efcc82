"""What `snowflake bench` finds out: where the time goes, and which settings are fastest here."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from agents.errors import UserError
from envs.physics import available_cores
from snowflake.bench.measure import Measurement, settings
from snowflake.bench.overrides import section_of
from snowflake.bench.recommend import Search, Settings, axes, command
from snowflake.bench.step import TrainingStep
from snowflake.config import TrainConfig
from snowflake.networks.operands import refusal

SHARE_OF_TABLE = 0.4
"""Of the time limit, what the table of the user's own settings may take; the rest is for other settings."""
PRECISIONS = ("fp32", "bf16")


def advise(
    config: TrainConfig, seconds: float, given: Sequence[str], say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Measure a config on this machine, then others near it.

    Args:
        config: what the user wants to train.
        seconds: time limit; passed only by the first measurement, which is always made, and by the last one's excess.
        given: what the user chose, as arguments of ``snowflake train``.
        say: told what is measured next.

    Returns:
        JSON-able: `report` (see `Measurement.report`), `tried` (settings, steps per second or why not), `skipped`
        (for lack of time), `recommended` (settings), `steps_per_second` (of those), `command`.
    """
    begin = time.perf_counter()
    say("measuring the settings as they are")
    measurement = Measurement(config)
    measurement.repeat()
    while time.perf_counter() - begin < SHARE_OF_TABLE * seconds * 2 / 3:
        measurement.repeat()
    report = measurement.report()
    measurement.close()
    cores = available_cores()
    start = settings(config) | {"device": report["settings"]["device"]}
    resolved = start | {name: start[name] or cores for name in ("torch_threads", "num_threads")}
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    native = not refusal(measurement.step.algorithm.policy.actor)  # else the CPU emulates 16 bits, which is slower
    precisions = PRECISIONS if native or "cuda" in devices else ()
    tries = axes(resolved, cores, len(config.agents), devices, precisions)
    names = [name for name, _ in tries]

    def measure(candidate: Settings) -> float | str:
        say("measuring " + ", ".join(f"{name} {candidate[name]}" for name in names))
        return rate(changed(config, candidate))

    search = Search(measure, seconds - (time.perf_counter() - begin))
    best = search.run(resolved, tries)
    rates = [value for tried, value in search.tried if tried == best and isinstance(value, float)]
    return {
        "report": report,
        "tried": [{"settings": tried, "steps_per_second": value} for tried, value in search.tried],
        "skipped": search.skipped,
        "recommended": best,
        "steps_per_second": max(rates, default=0.0),
        "command": command(given, best, start),
    }


def changed(config: TrainConfig, wanted: Settings) -> TrainConfig:
    """Return a config with settings changed."""
    for name, value in wanted.items():
        section = section_of(name)
        if section:
            part = dataclasses.replace(getattr(config, section), **{name: value})
            object.__setattr__(config := dataclasses.replace(config), section, part)
        elif section is not None:
            config = dataclasses.replace(config, **{name: value})
    return config


def rate(config: TrainConfig, repetitions: int = 2) -> float | str:
    """Return the environment steps per second of a config, the best of repetitions; a text if it does not work."""
    try:
        with tempfile.TemporaryDirectory(prefix="snowflake-bench-") as folder:
            step = TrainingStep(config, Path(folder))
            step.run()  # compiles
            best = min(step.run() for _ in range(repetitions))
            step.close()
    except (UserError, RuntimeError) as error:  # a device without memory, a precision that it lacks
        return " ".join(str(error).split())[:200]
    return step.batch / best
