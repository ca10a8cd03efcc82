"""Steps to reach a return and areas under curves, by hand; what cannot be compared is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import agents
from agents.errors import UserError
from snowflake.config import TrainConfig
from snowflake.config.loader import to_yaml
from snowflake.evaluation.curves import Curve
from snowflake.evaluation.sample_efficiency import (
    MEAN,
    compare,
    mean_returns,
    open_reference,
    read_evaluations,
    steps_to_reach,
    text,
    write,
)
from snowflake.run import Run


def curve(*points: tuple[int, float]) -> Curve:
    steps, values = zip(*points, strict=True)
    return Curve(np.array(steps), np.array(values, float))


def test_steps_to_reach() -> None:
    rising = curve((0, 1.0), (100, 5.0), (200, 4.0), (300, 9.0))
    assert steps_to_reach(rising, 0.5) == 0
    assert steps_to_reach(rising, 1.0) == 0  # reaching is enough
    assert steps_to_reach(rising, 4.5) == 100  # the first time, though it falls below again
    assert steps_to_reach(rising, 5.1) == 300
    assert steps_to_reach(rising, 9.1) is None


def test_mean_return_over_the_common_steps() -> None:
    # Over 100 to 300: the first is 2 -> 4 -> 4 at 100, 200, 300: (3 + 4) / 2; the second goes straight from 0 to 2.
    first = curve((0, 0.0), (100, 2.0), (200, 4.0), (300, 4.0), (400, 100.0))
    second = curve((100, 0.0), (300, 2.0))
    assert mean_returns(first, second) == (100, 300, pytest.approx(3.5), pytest.approx(1.0))
    # Ends that fall between points are interpolated: from 50 the first has 1 -> 2, then (2 + 4) / 2.
    low, high, mine, _ = mean_returns(first, curve((50, 0.0), (200, 0.0)))
    assert (low, high) == (50, 200)
    assert mine == pytest.approx((50 * 1.5 + 100 * 3.0) / 150)
    assert mean_returns(first, curve((400, 1.0), (500, 1.0))) is None


def make_run(path: Path, names: tuple[str, ...], returns: dict[int, list[float]], **config) -> Run:
    """A run folder that holds evaluations and bodies, and no more: mean return of every body by step."""
    bodies = tuple(agents.load(name) for name in names)
    (path / "bodies").mkdir(parents=True)
    run = Run(path, TrainConfig(agents=names, **config), bodies)
    (path / "config.yaml").write_text(to_yaml(run.config))
    for body in bodies:
        stored = {"name": body.name, "source": body.source, "model_hash": agents.model_hash(body.compile())}
        (path / "bodies" / f"{body.name}.json").write_text(json.dumps(stored))
    lines = [
        {"step": step, "bodies": {n: {"returns": [v - 1, v + 1]} for n, v in zip(names, values, strict=True)}}
        for step, values in returns.items()
    ]
    (path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_compare_by_hand(tmp_path) -> None:
    ours = make_run(tmp_path / "a", ("centipede-3",), {0: [30.0], 100: [60.0], 200: [80.0]})
    theirs = make_run(tmp_path / "b", ("centipede-3",), {0: [0.0], 100: [20.0], 200: [55.0], 400: [100.0]})
    scratch = open_reference(theirs.path, ours.morphologies, ours.config)
    (ours.path / "finetune.json").write_text(json.dumps({"source": {"run": "x", "step": 1234}}))
    result = compare(ours, scratch)
    body = result["bodies"]["centipede-3"]
    rows = [(r["return"], r["finetuned"], r["from_scratch"], r["ratio"]) for r in body["levels"]]
    assert rows == [(25.0, 0, 200, None), (50.0, 100, 200, 2.0), (75.0, 200, 400, 2.0), (90.0, None, 400, None)]
    assert body["mean_return"]["finetuned"] == pytest.approx(57.5)  # (45 + 70) / 2
    assert body["mean_return"]["from_scratch"] == pytest.approx(23.75)  # (10 + 37.5) / 2
    assert body["mean_return"]["gain"] == pytest.approx(33.75)
    words = text(result)
    for expected in ("at the start", "not reached", "2.0x", "gain +33.8", "The 1,234 steps that trained the source"):
        assert expected in words, expected
    assert json.loads(write(result, ours.path).read_text()) == result
    given = compare(ours, scratch, [55.0, 500.0])["bodies"]["centipede-3"]["levels"]
    assert [(r["return"], r["finetuned"], r["from_scratch"]) for r in given] == [(55.0, 100, 200), (500.0, None, None)]


def test_several_bodies_have_their_mean_and_each_of_them(tmp_path) -> None:
    run = make_run(tmp_path / "a", ("centipede-3", "centipede-4"), {50: [10.0, 20.0], 100: [30.0, 60.0]})
    curves = read_evaluations(run)
    assert {name: c.values.tolist() for name, c in curves.items()} == {
        MEAN: [15.0, 45.0],
        "centipede-3": [10.0, 30.0],
        "centipede-4": [20.0, 60.0],
    }
    with (run.path / "evaluations.jsonl").open("a") as file:
        file.write('{"step": 150, "bo')  # as a kill leaves it
    assert read_evaluations(run)[MEAN].steps.tolist() == [50, 100]


def test_what_cannot_be_compared_is_refused(tmp_path) -> None:
    ours = make_run(tmp_path / "a", ("centipede-3",), {0: [1.0]})
    cases = {
        "not on the same bodies": make_run(tmp_path / "b", ("centipede-4",), {0: [1.0]}),
        "best return on centipede-3 is -1.0": make_run(tmp_path / "c", ("centipede-3",), {0: [-2.0], 9: [-1.0]}),
        "holds no evaluation of centipede-3": make_run(tmp_path / "d", ("centipede-3",), {}),
    }
    other = dataclasses.replace(ours.config, env=dataclasses.replace(ours.config.env, max_episode_steps=7))
    cases["other task options or max_episode_steps"] = make_run(
        tmp_path / "e", ("centipede-3",), {0: [1.0]}, env=other.env
    )
    for message, scratch in cases.items():
        with pytest.raises(UserError, match=message):
            open_reference(scratch.path, ours.morphologies, ours.config)
    assert open_reference(tmp_path / "c", ours.morphologies, ours.config, [-1.5]).name == "c"
    (tmp_path / "d" / "evaluations.jsonl").write_text("rubbish\n")
    with pytest.raises(UserError, match=r"evaluations.jsonl:1 is damaged"):
        read_evaluations(cases["holds no evaluation of centipede-3"])
