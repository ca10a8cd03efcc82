"""Which learning rates to try: a geometric grid, then bisection of the bracket around the largest stable one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bracket:
    """Where the largest stable learning rate lies.

    Attributes:
        stable: Largest rate that is stable, as is every smaller one that was tried; None if the smallest is not.
        unstable: Smallest rate that is not stable; None if all are.
    """

    stable: float | None
    unstable: float | None

    @property
    def closed(self) -> bool:
        """Whether both ends were found."""
        return self.stable is not None and self.unstable is not None


def grid(low: float, high: float, ratio: float) -> tuple[float, ...]:
    """Rates from ``low``, each ``ratio`` times the one before, up to ``high``."""
    count = math.floor(math.log(high / low) / math.log(ratio) + 1e-6) + 1
    return tuple(dict.fromkeys(rounded(low * ratio**k) for k in range(count)))


def bracket(stable: Mapping[float, bool]) -> Bracket:
    """Bracket of the rates that were tried, each with whether it is stable.

    A stable rate above one that is not counts for nothing: who raises the rate step by step meets the unstable one.
    """
    below = None
    for rate in sorted(stable):
        if not stable[rate]:
            return Bracket(below, rate)
        below = rate
    return Bracket(below, None)


def next_rate(stable: Mapping[float, bool], rates: Sequence[float], refine: int) -> float | None:
    """The rate to try after the grid: the geometric middle of the bracket.

    Args:
        stable: Rates that were tried, each with whether it is stable; all of the grid among them.
        rates: The grid.
        refine: How many rates off the grid may be tried.

    Returns:
        None once they were tried, or where there is no bracket.
    """
    ends = bracket(stable)
    if ends.stable is None or ends.unstable is None:
        return None
    middle = rounded(math.sqrt(ends.stable * ends.unstable))
    tried = sum(rate not in rates for rate in stable)
    return None if tried >= refine or middle in stable else middle


def rounded(rate: float) -> float:
    """The rate to four significant digits, so that it can be named."""
    return float(f"{rate:.4g}")
