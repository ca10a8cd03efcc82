"""From rows to what they say: brackets, shares, scores, comparisons and warnings of every variant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from snowflake.config.probe import ProbeConfig
from snowflake.config.probe_variants import BASELINE
from snowflake.probe.health import layer_kind, peaks
from snowflake.probe.row import ProbeRow
from snowflake.probe.rules import DIVERGED
from snowflake.probe.search import Bracket, bracket, grid
from snowflake.probe.stability import stable_rates
from snowflake.probe.statistics import Comparison, Interval, compare, largest_by_seed, mean, sensitivity, share

REFERENCES = (BASELINE, "qk")
"""Variants that the others are compared with, where they were tried."""

LOW_ENTROPY, HIGH_CAP_SHARE, RMS_RISES = 0.05, 0.5, (2.0, 10.0)
"""Bounds of the warnings: attention entropy (0 is one-hot, 1 uniform), share of capped logits, growth of outputs."""


@dataclass(frozen=True)
class VariantSummary:
    """What the runs of a variant say.

    Attributes:
        name: Of the variant.
        rows: Its runs.
        bracket: Where its largest stable rate lies, by all seeds together.
        by_seed: Largest stable rate of each seed alone; None if its smallest is not stable.
        shares: Share of stable runs by rate.
        scores: Final score by rate, mean over seeds.
        sensitivity: To the learning rate, over the grid.
        versus: Comparison with each reference.
    """

    name: str
    rows: tuple[ProbeRow, ...]
    bracket: Bracket
    by_seed: dict[int, float | None]
    shares: dict[float, Interval]
    scores: dict[float, Interval]
    sensitivity: float
    versus: dict[str, Comparison]

    @property
    def first_failure(self) -> str:
        """What became of the runs at the smallest rate that is not stable, as ``3 of 5 R2``."""
        at = [row for row in self.rows if row.rate == self.bracket.unstable]
        counts = Counter(row.reason if row.status == DIVERGED else row.status for row in at if not row.stable)
        return ", ".join(f"{n} of {len(at)} {name}" for name, n in sorted(counts.items()))


def summarize(probe: ProbeConfig, rows: Sequence[ProbeRow]) -> dict[str, VariantSummary]:
    """Summarise every variant that has runs, in the order of the settings."""
    of = {name: tuple(row for row in rows if row.variant == name) for name in probe.variants}
    of = {name: own for name, own in of.items() if own}
    ends = {name: bracket(stable_rates(own)) for name, own in of.items()}
    seeds = {name: largest_by_seed(_by_seed(own)) for name, own in of.items()}
    return {
        name: VariantSummary(
            name,
            own,
            ends[name],
            seeds[name],
            {rate: share(sum(r.stable for r in at), len(at)) for rate, at in _by_rate(own).items()},
            {rate: mean([r.score for r in at]) for rate, at in _by_rate(own).items()},
            _sensitivity(probe, own),
            {
                other: compare(ends[name], ends[other], seeds[name], seeds[other])
                for other in REFERENCES
                if other in of and other != name
            },
        )
        for name, own in of.items()
    }


def warnings(row: ProbeRow, lowest: ProbeRow | None) -> list[str]:
    """What looks odd about a run; it decides nothing.

    Args:
        row: The run.
        lowest: The run of the same variant and seed at the lowest rate, whose activations are the measure.
    """
    found = []
    tops = peaks(row.health)
    if (value := tops.get("entropy", math.nan)) < LOW_ENTROPY:
        found.append(f"attention entropy {value:.2g}")
    if (value := tops.get("cap_frac", math.nan)) > HIGH_CAP_SHARE:
        found.append(f"{value:.0%} of the logits capped")
    rise = 0.0 if lowest is None else _rise(row, lowest)
    for bound in reversed(RMS_RISES):
        if rise > bound:
            found.append(f"outputs of a layer over {bound:g} x those at the lowest rate")
            break
    return found


def to_json(probe: ProbeConfig, rows: Sequence[ProbeRow], complete: bool, facts: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, for ``stability.json``; ``facts`` are versions, hardware, command, optimiser."""
    result = {
        "format": 1,
        "settings": asdict(probe),
        "complete": complete,
        "grid": list(grid(probe.lr_min, probe.lr_max, probe.ratio)),
        **facts,
    }
    return result | {"variants": {name: _variant(found) for name, found in summarize(probe, rows).items()}}


def _variant(found: VariantSummary) -> dict[str, Any]:
    lowest = {row.seed: row for row in sorted(found.rows, key=lambda r: -r.rate)}
    return {
        "max_stable_lr": found.bracket.stable,
        "first_unstable_lr": found.bracket.unstable,
        "first_failure": found.first_failure,
        "max_stable_lr_by_seed": {str(seed): rate for seed, rate in found.by_seed.items()},
        "fraction_stable": {f"{rate:g}": asdict(value) for rate, value in found.shares.items()},
        "score": {f"{rate:g}": asdict(value) for rate, value in found.scores.items()},
        "lr_sensitivity": found.sensitivity,
        "versus": {name: asdict(value) for name, value in found.versus.items()},
        "runs": [
            {
                "lr": row.rate,
                "seed": row.seed,
                "status": row.status,
                "reason": row.reason,
                "update": row.update,
                "detail": row.detail,
                "score": row.score,
                "peaks": peaks(row.health),
                "warnings": warnings(row, lowest[row.seed]),
            }
            for row in found.rows
        ],
    }


def _sensitivity(probe: ProbeConfig, rows: Sequence[ProbeRow]) -> float:
    """Over the grid; a return counts as a loss with its sign turned."""
    sign = 1.0 if probe.objective == "bc" else -1.0
    on_grid = grid(probe.lr_min, probe.lr_max, probe.ratio)
    loss = {rate: sign * mean([r.score for r in at]).value for rate, at in _by_rate(rows).items() if rate in on_grid}
    return sensitivity(loss, sign * mean([row.initial for row in rows]).value)


def _by_rate(rows: Sequence[ProbeRow]) -> dict[float, list[ProbeRow]]:
    return {rate: [row for row in rows if row.rate == rate] for rate in sorted({row.rate for row in rows})}


def _by_seed(rows: Sequence[ProbeRow]) -> dict[int, dict[float, bool]]:
    seeds = sorted({row.seed for row in rows})
    return {seed: {row.rate: row.stable for row in rows if row.seed == seed} for seed in seeds}


def _rise(row: ProbeRow, lowest: ProbeRow) -> float:
    """Largest ratio of a layer's outputs to those of the other run at the same update."""
    ratios = [0.0]
    for name, values in row.health.items():
        if layer_kind(name):
            for mine, theirs in zip(values, lowest.health.get(name, []), strict=False):
                if theirs > 0 and mine == mine:
                    ratios.append(mine / theirs)
    return max(ratios)
