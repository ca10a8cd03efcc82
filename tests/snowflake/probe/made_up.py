"""Rows of runs that were never made, for tests of what is said of them."""

from __future__ import annotations

from snowflake.config.probe import ProbeConfig
from snowflake.probe.cells import ProbeCell
from snowflake.probe.row import ProbeRow
from snowflake.probe.rules import Verdict

NAN = float("nan")


def row(variant: str, rate: float, seed: int, verdict: Verdict | None = None, **values) -> ProbeRow:
    """A stable run, or one that was judged so."""
    verdict = verdict or Verdict("stable")
    given = {
        "score": 0.1 if verdict.status == "stable" else 0.7,
        "initial": 1.5,
        "trivial": 0.75,
        "curve": {"update": [1.0, 2.0], "value": [1.5, 0.1]},
        "health": {"update": [10.0, 20.0], "L0/fc2/y_rms": [1.0, 2.0], "L0/entropy": [0.9, 0.8]},
    }
    return ProbeRow.of(verdict, variant=variant, rate=rate, seed=seed, **(given | values))


def step_runner(limits: dict[tuple[str, int], float]):
    """A runner whose runs are stable up to a limit for each variant and seed, or for each variant if the seed is -1."""

    def run(cells: list[ProbeCell]) -> list[ProbeRow]:
        return [
            row(
                cell.variant,
                cell.rate,
                cell.seed,
                None if cell.rate <= limit else Verdict("diverged", "R2", 20, "made up"),
            )
            for cell in cells
            for limit in [limits.get((cell.variant, cell.seed), limits.get((cell.variant, -1), 1e9))]
        ]

    return run


def probe(**values) -> ProbeConfig:
    """Settings of a small probe of objective ``bc``."""
    given = {"objective": "bc", "variants": ("none", "qk"), "lr_min": 0.01, "lr_max": 0.64, "ratio": 4.0, "updates": 20}
    return ProbeConfig(**(given | values))
