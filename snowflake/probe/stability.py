"""The probe: runs the grid, then bisects each variant's bracket, and leaves out what was run before."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from snowflake.config.probe import ProbeConfig
from snowflake.probe.cells import CellMaker, ProbeCell
from snowflake.probe.row import ProbeRow
from snowflake.probe.search import grid, next_rate

RunCells = Callable[[list[ProbeCell]], list[ProbeRow]]
"""Runs cells; returns the rows of those that came to their end."""


def measure(probe: ProbeConfig, run: RunCells) -> tuple[list[ProbeRow], bool]:
    """Run all that the settings ask for.

    Args:
        probe: The settings.
        run: Runs the cells of a round; it may return fewer rows than cells, which ends the probe.

    Returns:
        The rows, by variant, rate and seed, and whether none is missing.
    """
    maker = CellMaker(probe)
    rates = grid(probe.lr_min, probe.lr_max, probe.ratio)
    round_ = maker.cells(probe.variants, rates)
    rows: list[ProbeRow] = []
    while round_:
        new = run(round_)
        rows += new
        if len(new) < len(round_):
            return ordered(rows, probe), False
        round_ = []
        for variant in probe.variants:
            rate = next_rate(stable_rates(row for row in rows if row.variant == variant), rates, probe.refine)
            if rate is not None:
                round_ += maker.cells([variant], [rate])
    return ordered(rows, probe), True


def stable_rates(rows: Iterable[ProbeRow]) -> dict[float, bool]:
    """Rates that were tried, each with whether every seed is stable at it."""
    found: dict[float, bool] = {}
    for row in rows:
        found[row.rate] = found.get(row.rate, True) and row.stable
    return dict(sorted(found.items()))


def ordered(rows: Iterable[ProbeRow], probe: ProbeConfig) -> list[ProbeRow]:
    """Rows in an order that does not depend on which run ended first."""
    return sorted(rows, key=lambda row: (probe.variants.index(row.variant), row.rate, row.seed))
