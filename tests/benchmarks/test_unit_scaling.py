"""The figure of unit scaling: the program measures what it draws, and the committed table holds what the docs say."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
READ_OUT = {"output", "decoder", "decoder.layers.2"}  # H^-1/2 by design
LAST_ROUND = {("update.root.message", 3), ("update.root.gates", 3), ("update.root.candidate", 3)}


@pytest.fixture(scope="module")
def unit_scaling() -> ModuleType:
    spec = importlib.util.spec_from_file_location("unit_scaling", ROOT / "benchmarks" / "unit_scaling.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_observations_of_a_body_pass_through_within_the_bands(unit_scaling: ModuleType) -> None:
    graph, obs = unit_scaling.observations("centipede-4", steps=16)
    for kind in ("actor", "critic"):
        stages, weights = unit_scaling.measure(kind, graph, obs, 64, unit=True)
        assert len(stages) == 2 + 1 + 4 * (3 + 1 + 1 + 2 * 3 + 1) + 3 + 1
        assert [s for s in stages if s.stage not in READ_OUT and not 0.25 <= s.forward <= 4] == []
        assert [s for s in stages if s.gradient and not 0.25 <= s.gradient <= 4] == []
        assert {(s.stage, s.call) for s in stages if not s.gradient} == (LAST_ROUND if kind == "actor" else set())
        assert {name: rms for name, rms in weights.items() if not 0.1 <= rms <= 4} == {}
        plain, plain_weights = unit_scaling.measure(kind, graph, obs, 64, unit=False)
        assert len(plain) == len(stages), "control: the same stages, most of them outside"
        assert sum(0.25 <= s.gradient <= 4 for s in plain) < len(plain) / 4
        assert sum(0.1 <= rms <= 4 for rms in plain_weights.values()) < len(plain_weights) / 2


def test_the_committed_table_has_all_cases_within_the_bands() -> None:
    rows = list(
        csv.DictReader((ROOT / "docs" / "results" / "unit-scaling.csv").read_text(encoding="utf-8").splitlines())
    )
    cases = {
        (body, width, kind) for body in ("centipede-4", "centipede-20") for width in ("64", "256")
        for kind in ("actor", "critic")
    }  # fmt: skip
    for parametrization in ("unit", "standard"):
        own = [row for row in rows if row["parametrization"] == parametrization]
        assert {(row["body"], row["width"], row["network"]) for row in own} == cases
        outside = []
        for row in own:
            low = 0.1 if row["of"] == "weight" else 0.25
            seen = [row["gradient_min"], row["gradient_max"]]
            if row["of"] == "stage" and row["name"] not in READ_OUT:
                seen += [row["forward_min"], row["forward_max"]]
            outside += [row for value in seen if not low <= float(value) <= 4]
        assert (len(outside) == 0) == (parametrization == "unit"), outside[:3]
    assert (ROOT / "docs" / "images" / "unit-scaling.png").read_bytes().startswith(b"\x89PNG")
