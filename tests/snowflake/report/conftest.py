"""Rows of small studies with numbers that can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from snowflake.json_files import Entry
from snowflake.report.rows import Row, row_of


def episodes(mean: float, falls: int = 1) -> dict[str, Any]:
    """Two episodes with this mean return; distance is a tenth of the return."""
    returns = [mean - 10.0, mean + 10.0]
    return {"returns": returns, "lengths": [100, 100], "distance": [r / 10 for r in returns], "falls": falls}


def measurement(means: dict[str, float], random: float, zero_shot: bool) -> dict[str, Any]:
    """Mean action as given, stochastic half of it, zero action 5."""
    bodies = [
        {
            "morphology": body,
            "zero_shot": zero_shot,
            "policies": {
                "mean_action": episodes(mean),
                "stochastic": episodes(mean / 2),
                "zero_action": episodes(5.0, 0),
                "random": episodes(random, 2),
            },
        }
        for body, mean in means.items()
    ]
    return {"checkpoint": "last", "step": 1000, "episodes": 2, "seed": 1000, "bodies": bodies}


def make_values(
    variant: str,
    means: dict[str, float],
    seed: int,
    *,
    study: str = "demo",
    curves: dict[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    transfer: dict[str, float] | None = None,
    random: float = 0.0,
) -> dict[str, Any]:
    """The JSON form of a row; ``means`` holds its bodies and their final return."""
    name = f"{variant}__{'+'.join(means)}__seed{seed}"
    if curves is None:
        curves = {f"eval/{body}/mean_reward": ([0, 500, 1000], [random, m / 2, m]) for body, m in means.items()}
    return {
        "format": 1,
        "study": study,
        "cell": name,
        "variant": variant,
        "method": variant,
        "overrides": {},
        "agents": list(means),
        "seed": seed,
        "total_timesteps": 1000,
        "parameters": {"total": 700, "trainable": 500},
        "nodes": {body: 4 + 3 * k for k, body in enumerate(("a", "b", "c")) if body in means},
        "curves": {tag: {"steps": list(s), "values": list(v)} for tag, (s, v) in curves.items()},
        "final": measurement(means, random, False),
        "transfer": None if transfer is None else measurement(transfer, random, True),
        "commands": [f"snowflake train --run {name}"],
        "versions": {"torch": "2.13.0"},
        "hardware": {"cpu": "a processor", "cores": 2},
    }


@pytest.fixture
def values() -> Any:
    return make_values


@pytest.fixture
def row() -> Any:
    def make(*args: Any, **options: Any) -> Row:
        given = make_values(*args, **options)
        return row_of(Entry(given, Path(f"{given['cell']}.json"), "delete it"))

    return make


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two variants, two bodies, three seeds, one of them with a transfer: 12 rows, as `snowflake sweep` leaves them."""
    folder = tmp_path / "study"
    (folder / "results").mkdir(parents=True)
    (folder / "runs" / "cell").mkdir(parents=True)
    (folder / "runs" / "cell" / "unrelated.json").write_text("{}")
    for variant, base in (("good", 100.0), ("poor", 40.0)):
        for body in ("a", "b"):
            for seed in range(3):
                given = make_values(variant, {body: base + 10 * seed}, seed, transfer={"c": base / 2})
                given["curves"]["snowflake/kl_batch"] = {"steps": [500, 1000], "values": [0.01, 0.02]}
                (folder / "results" / f"{given['cell']}.json").write_text(json.dumps(given))
    return folder
