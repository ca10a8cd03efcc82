"""Read the learning curve of a run from its TensorBoard event files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

EVENT_FILES = "events.out.tfevents.*"

TRAINING_RETURN = "rollout/ep_rew_mean"
"""Mean return of the latest training episodes (stochastic play); Stable-Baselines3's tag."""

EVALUATION_RETURN = "eval/mean_reward"
"""Mean return of the evaluation episodes (mean action); Stable-Baselines3's tag."""


@dataclass(frozen=True)
class Curve:
    """One scalar over training.

    Attributes:
        steps: (points,) int64, environment steps, increasing.
        values: (points,) float64.
    """

    steps: np.ndarray
    values: np.ndarray


def damaged_event_files(folder: Path) -> list[Path]:
    """Event files below ``folder`` that hold bytes after their last whole record: cut off, corrupt, or being written.

    :func:`read_curves` reads the records before.
    """
    files = sorted(path for path in folder.rglob(EVENT_FILES) if path.is_file())
    if not files:
        return []
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

    frame = 16  # bytes around a record: its length and two checksums
    return [
        path
        for path in files
        if sum(len(record) + frame for record in RawEventFileLoader(str(path)).Load()) < path.stat().st_size
    ]


def read_curves(folder: Path, tags: tuple[str, ...] | None = (TRAINING_RETURN, EVALUATION_RETURN)) -> dict[str, Curve]:
    """Read scalars from every event file below ``folder``.

    A resumed run writes a second event file that starts again at the step of its checkpoint; of two values for one
    step the later one counts, and what the interrupted part wrote beyond that step is dropped by TensorBoard's own
    rule for ``purge_step``.

    Args:
        folder: The run folder.
        tags: Scalars to look for; None takes every one.

    Returns:
        The tags that were found, each with at least one finite point.
    """
    folders = sorted({path.parent for path in folder.rglob(EVENT_FILES)})
    if not folders:
        return {}
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    points: dict[str, dict[int, float]] = {}
    for place in folders:
        events = EventAccumulator(str(place), size_guidance={SCALARS: 0}).Reload()
        present = events.Tags()[SCALARS]
        for tag in present if tags is None else (tag for tag in tags if tag in present):
            found = points.setdefault(tag, {})
            found.update((e.step, e.value) for e in events.Scalars(tag) if np.isfinite(e.value))
    return {
        tag: Curve(np.array(sorted(found), np.int64), np.array([found[s] for s in sorted(found)], np.float64))
        for tag, found in points.items()
        if found
    }
