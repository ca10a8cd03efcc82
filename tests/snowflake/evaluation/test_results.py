"""The word for what carries over, and the JSON and CSV beside the arrays they come from."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from typing import Any

import numpy as np
import pytest

from snowflake.evaluation.files import CSV_COLUMNS, to_csv, to_json
from snowflake.evaluation.results import verdict
from snowflake.evaluation.statistics import PairedDifference

BETTER, UNCLEAR = PairedDifference(10.0, 1.0, 20), PairedDifference(1.0, 1.0, 20)


@pytest.mark.parametrize(
    ("distance", "fallen", "differences", "word"),
    [
        (3.0, 0, (BETTER, BETTER), "walks 3.0 m"),
        (3.0, 3, (BETTER, BETTER), "walks 3.0 m, then falls"),
        (3.0, 0, (UNCLEAR, BETTER), "moves 3.0 m"),
        (0.99, 2, (BETTER, BETTER), "stands"),
        (0.99, 3, (BETTER, BETTER), "falls"),
        (-2.0, 0, (BETTER, BETTER), "goes backward 2.0 m"),
    ],
)
def test_verdict(batch: Any, distance: float, fallen: int, differences: tuple[Any, ...], word: str) -> None:
    episodes = dataclasses.replace(batch(0.0), distance=np.full(6, distance), fell=np.arange(6) < fallen)
    assert verdict(episodes, list(differences)) == word


def test_one_episode_cannot_walk(result: Any, batch: Any) -> None:
    body = result().bodies[0]
    offsets = dict(zip(body.episodes, (900, 700, 1, 0), strict=True))
    one = {way: batch(offset, episodes=1, distance=9.0) for way, offset in offsets.items()}
    one["mean_action"] = dataclasses.replace(one["mean_action"], fell=np.zeros(1, bool))
    assert dataclasses.replace(body, episodes=one).word("mean_action") == "moves 9.0 m"


def test_json_holds_every_episode_and_is_strict(result: Any) -> None:
    made = result("transfer", ("centipede-6", "centipede-8"))

    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    data = json.loads(to_json(made), parse_constant=no_constant)
    assert data["seeds"] == list(range(1000, 1006))
    assert data["trained_steps"] == 100_000
    assert [b["zero_shot"] for b in data["bodies"]] == [False, True]
    for body, stored in zip(made.bodies, data["bodies"], strict=True):
        for way, episodes in body.episodes.items():
            entry = stored["policies"][way]
            assert entry["episodes"]["returns"] == episodes.returns.tolist()
            assert entry["episodes"]["seeds"] == episodes.seeds.tolist()
            assert entry["episodes"]["cost_of_transport"][1] is None
            assert entry["summary"]["returns"]["mean"] == pytest.approx(episodes.returns.mean())
            assert entry["summary"]["cost_of_transport"]["count"] == 5
            assert entry["deterministic"] == (way in ("mean_action", "zero_action"))
            assert entry["steps"] == episodes.lengths.sum()
        difference = stored["policies"]["stochastic"]["return_difference"]["random"]
        expected = body.episodes["stochastic"].returns - body.episodes["random"].returns
        assert difference["mean"] == pytest.approx(expected.mean())
        assert difference["standard_error"] == pytest.approx(expected.std(ddof=1) / np.sqrt(6))
    assert data["bodies"][0]["policies"]["mean_action"]["word"] == made.bodies[0].word("mean_action")


def test_csv_holds_every_episode(result: Any) -> None:
    made = result("transfer", ("centipede-6", "centipede-8"))
    rows = list(csv.DictReader(io.StringIO(to_csv(made))))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert len(rows) == 2 * 4 * 6
    for row in rows:
        body = next(b for b in made.bodies if b.morphology == row["morphology"])
        episodes, i = body.episodes[row["policy"]], int(row["episode"])
        assert float(row["return"]) == episodes.returns[i]
        assert int(row["seed"]) == 1000 + i
        assert int(row["length"]) == episodes.lengths[i]
        assert float(row["distance_m"]) == episodes.distance[i]
        assert float(row["speed_m_s"]) == episodes.speed[i]
        assert float(row["energy_j"]) == episodes.energy[i]
        assert row["fell"] == str(bool(episodes.fell[i]))
        assert row["unstable"] == str(bool(episodes.unstable[i]))
        assert (row["cost_of_transport"] == "") == (i == 1)
        assert row["zero_shot"] == str(body.zero_shot)
