"""The row of a finished run: what became of it, and the numbers behind that; without times, so always the same."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from snowflake.json_files import Entry, read_entry
from snowflake.probe.rules import STATUSES, Verdict

FORMAT = 1
"""Version of the row's form."""


@dataclass(frozen=True)
class ProbeRow:
    """One run.

    Attributes:
        variant: Name of the variant.
        rate: Learning rate after the warm-up.
        seed: Seed.
        status: ``stable``, ``diverged`` or ``no_progress``.
        reason: Code of the rule that decided; empty unless diverged.
        update: Update at which it held, counted from 1; None unless diverged.
        detail: The numbers behind it, in words.
        score: Final error on the test (``bc``), mean return of the last tenth of the updates (``ppo``); NaN if there
            is none.
        initial: Error before training; mean return of random play.
        trivial: Error of the best constant; mean return of random play.
        curve: ``update`` and ``value``: running error or return over the run, some points of it.
        health: Measurements over the run, see `snowflake.probe.health`, and ``update``, when they were made.
    """

    variant: str
    rate: float
    seed: int
    status: str
    reason: str
    update: int | None
    detail: str
    score: float
    initial: float
    trivial: float
    curve: dict[str, list[float]]
    health: dict[str, list[float]]

    @classmethod
    def of(cls, verdict: Verdict, **values: Any) -> ProbeRow:
        """Return the row of a run that was judged."""
        return cls(**asdict(verdict), **values)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `read`."""
        return {"format": FORMAT, **asdict(self)}

    @property
    def stable(self) -> bool:
        """Whether the run is stable."""
        return self.status == "stable"


def read_row(file: Path) -> ProbeRow:
    """Read a row.

    Raises:
        UserError: It is missing or damaged.
    """
    entry = read_entry(file, "delete it, and run the probe again")
    status = entry["status"].text()
    if status not in STATUSES:
        raise entry["status"].error(f"status {status!r} is none of {', '.join(STATUSES)}")
    return ProbeRow(
        variant=entry["variant"].text(),
        rate=_number(entry["rate"]),
        seed=entry["seed"].count(),
        status=status,
        reason=entry["reason"].text(),
        update=None if entry["update"].is_null else entry["update"].count(),
        detail=entry["detail"].text(),
        score=_number(entry["score"]),
        initial=_number(entry["initial"]),
        trivial=_number(entry["trivial"]),
        curve=_series(entry["curve"]),
        health=_series(entry["health"]),
    )


def thinned(values: Any, points: int = 50) -> dict[str, list[float]]:
    """Some points of a curve over updates 1, 2, ...: the last, and others evenly before it."""
    step = max(1, math.ceil(len(values) / points))
    index = range(len(values) - 1, -1, -step)
    return {"update": [k + 1 for k in reversed(index)], "value": [float(values[k]) for k in reversed(index)]}


def _number(entry: Entry) -> float:
    """A number; null, which stands for one that is not finite, becomes NaN."""
    return math.nan if entry.is_null else _finite(entry)


def _finite(entry: Entry) -> float:
    if isinstance(entry.value, bool) or not isinstance(entry.value, int | float):
        raise entry.wrong("a number")
    return float(entry.value)


def _series(entry: Entry) -> dict[str, list[float]]:
    return {name: [_number(value) for value in values] for name, values in entry.entries().items()}
