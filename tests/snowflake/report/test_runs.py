"""Plain run folders become the same rows as a study's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

import agents
from agents import UserError
from envs import LocomotionVectorEnv
from snowflake.config import PPOConfig, TrainConfig
from snowflake.evaluation.files import to_json
from snowflake.evaluation.results import LABELS, BodyResult, Result
from snowflake.evaluation.rollout import EpisodeBatch
from snowflake.report.files import read_folders
from snowflake.report.runs import _result
from snowflake.run import Run
from tests.snowflake.damage import NO_JSON, NO_OBJECT, told, variants


def batch(mean: float) -> EpisodeBatch:
    """Two episodes, the first ends in a fall."""
    x, fell = np.array([mean - 1, mean + 1]), np.array([True, False])
    return EpisodeBatch(np.arange(2), x, np.full(2, 9), x / 2, x, fell, x, np.array([np.nan, 1.0]), fell)


def result(kind: str, means: dict[str, float]) -> Result:
    """A finished measurement; the first body was trained on."""
    bodies = tuple(
        BodyResult(name, k > 0, "ab", 1.0, {way: batch(mean - i) for i, way in enumerate(LABELS)})
        for k, (name, mean) in enumerate(means.items())
    )
    source = {"command": f"snowflake {kind}", "hardware": {"cpu": "a processor"}}
    return Result(kind, "run", "best", 64, 2, 1000, 9, bodies, source)


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def make(name: str, seed: int, **ppo: Any) -> Path:
        config = TrainConfig(agents=("centipede-4",), seed=seed, ppo=PPOConfig(**ppo))
        body = agents.load("centipede-4")
        made = LocomotionVectorEnv(body, 1, num_threads=1)
        run = Run.create(tmp_path / name, config, [made], ["snowflake", "train", "--seed", str(seed)])
        made.close()
        writer = EventFileWriter(str(run.path / "tensorboard"))
        tags = {"rollout/ep_rew_mean": 5.0, "snowflake/trainable_parameters": 30.0, "snowflake/frozen_parameters": 12.0}
        for tag, value in tags.items():
            for step in (32, 64):
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.add_event(Event(step=step, summary=summary))
        writer.close()
        return run.path

    return make


def test_run_becomes_a_row(make: Any) -> None:
    path = make("one", 3)
    [bare], _ = read_folders([path])
    assert (bare.final, bare.transfer, bare.steps, bare.commands) == (None, None, 64, ("snowflake train --seed 3",))
    (path / "evaluation.json").write_text(to_json(result("evaluation", {"centipede-4": 10.0})))
    (path / "transfer.json").write_text(to_json(result("transfer", {"centipede-4": 10.0, "centipede-6": 4.0})))
    [row], notes = read_folders([path.parent])
    assert notes == []
    assert (row.variant, row.agents, row.seed, row.study, row.checkpoint) == (
        "snowflake", ("centipede-4",), 3, None, "best")  # fmt: skip
    assert row.curves["rollout/ep_rew_mean"][0].tolist() == [32, 64]
    assert row.parameters == {"trainable": 30, "total": 42}
    assert row.nodes == {
        "centipede-4": len(json.loads((path / "bodies/centipede-4.graph.json").read_text())["node_type"])
    }
    assert row.final is not None
    assert row.final["centipede-4"]["stochastic"].returns.tolist() == [8.0, 10.0]
    assert row.final["centipede-4"]["mean_action"].falls == 1
    assert row.transfer is not None
    assert list(row.transfer) == ["centipede-6"]
    assert row.commands == ("snowflake train --seed 3", "snowflake evaluation", "snowflake transfer")
    assert "torch" in row.versions


def test_runs_of_one_method_are_told_apart_by_their_settings(make: Any) -> None:
    folders = [make("one", 0), make("two", 1), make("three", 0, clip_range=0.1)]
    rows, _ = read_folders(folders)
    assert [(row.variant, row.seed) for row in rows] == [
        ("snowflake, clip_range 0.1", 0),
        ("snowflake, clip_range 0.2", 0),
        ("snowflake, clip_range 0.2", 1),
    ]
    assert {row.variant for row in read_folders(folders[:2])[0]} == {"snowflake"}
    with pytest.raises(UserError, match="same variant"):
        read_folders([folders[0], make("again", 0)])


def test_damaged_evaluation_is_named(make: Any) -> None:
    path = make("one", 0)
    (path / "evaluation.json").write_text("{")
    with pytest.raises(UserError, match=r"one/evaluation\.json is damaged: it is no JSON"):
        read_folders([path])


def slim(whole: dict[str, Any]) -> dict[str, Any]:
    """What a report reads of a result, of its first body."""
    body = whole["bodies"][0]
    ways = {
        way: {"falls": w["falls"], "episodes": {key: w["episodes"][key] for key in ("returns", "distance")}}
        for way, w in body["policies"].items()
    }
    kept = {key: whole[key] for key in ("kind", "checkpoint", "trained_steps", "provenance")}
    return {**kept, "bodies": [{"morphology": body["morphology"], "policies": ways}]}


def test_every_damage_of_a_result_is_one_line(make: Any) -> None:
    path = make("one", 0)
    file = path / "transfer.json"
    whole = json.loads(to_json(result("transfer", {"centipede-4": 10.0, "centipede-6": 4.0})))
    for text in (*NO_JSON, *NO_OBJECT, b"{}", b'{"kind": "transfer"}', b'{"kind": "evaluation"}'):
        file.write_bytes(text)
        assert told(lambda: read_folders([path]), file)
    count = 0
    for damaged in variants(slim(whole)):
        file.write_text(json.dumps(damaged))
        count += told(lambda: _result(path, "transfer"), file) is not None
    assert count > 150
    whole["bodies"][0]["policies"]["random"]["falls"] = -1
    file.write_text(json.dumps(whole))
    with pytest.raises(UserError, match=r"'bodies\[0\]\.policies\.random\.falls' must be between 0 and 2, it is -1"):
        read_folders([path])


@pytest.mark.parametrize("damage", ["cut off", "corrupt"])
def test_a_damaged_event_file_is_told(make: Any, damage: str) -> None:
    path = make("one", 0)
    (file,) = (path / "tensorboard").iterdir()
    [whole], notes = read_folders([path])
    assert notes == []
    data = file.read_bytes()
    file.write_bytes(
        data[:-5] if damage == "cut off" else data[: len(data) // 2] + b"\0\1\2" + data[len(data) // 2 + 3 :]
    )
    [row], notes = read_folders([path])
    assert notes == [f"Curves end early: {file} is damaged or still being written, and read up to there."]
    points = [sum(len(steps) for steps, _ in one.curves.values()) for one in (row, whole)]
    assert 0 < points[0] < points[1] == 6
    file.write_bytes(b"nonsense" * 9)
    (path / "evaluation.json").write_text(to_json(result("evaluation", {"centipede-4": 10.0})))
    [row], notes = read_folders([path])
    assert (row.curves, len(notes)) == ({}, 1)


def test_a_run_of_a_flat_policy_was_mapped(make: Any) -> None:
    path = make("one", 0)
    (path / "transfer.json").write_text(to_json(result("transfer", {"centipede-4": 10.0, "centipede-6": 4.0})))
    assert not read_folders([path])[0][0].mapped
    config = path / "config.yaml"
    config.write_text(config.read_text().replace("network: nervenet", "network: mlp"))
    assert read_folders([path])[0][0].mapped


def test_runs_with_nothing_to_show_are_told(make: Any) -> None:
    path = make("one", 0)
    for file in (path / "tensorboard").iterdir():
        file.unlink()
    with pytest.raises(UserError, match="one holds neither curves nor an evaluation: snowflake evaluate makes one"):
        read_folders([path])
    (path / "bodies" / "centipede-4.graph.json").write_text("[]")
    with pytest.raises(
        UserError, match=r"centipede-4\.graph\.json is damaged: the file must be an object, it is a list"
    ):
        read_folders([path])
