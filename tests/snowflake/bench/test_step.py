"""A training step in parts, on a tiny config: the structure of what is measured, never a time."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import snowflake.ppo.update as update
from snowflake.bench import advice, gemms
from snowflake.bench.advice import advise, changed
from snowflake.bench.measure import Measurement, ratios, settings
from snowflake.bench.physics_floor import PhysicsFloor
from snowflake.bench.scaling import NetworkCost, exponent
from snowflake.bench.step import PARTS, UPDATE, TrainingStep
from snowflake.bench.text import advice_text, baseline_table, parts_table, scaling_table
from snowflake.config import TrainConfig
from snowflake.config.loader import resolve

TINY = {
    "agents": ("centipede-4",),
    "torch_threads": 1,
    "env": {"n_envs": 2, "num_threads": 1},
    "policy": {"hidden_size": 8, "propagation_steps": 1},
    "ppo": {"n_steps": 32, "batch_size": 16, "n_epochs": 3},
}


@pytest.fixture(scope="module")
def config() -> TrainConfig:
    return resolve(method="snowflake", overrides=TINY)


@pytest.fixture(scope="module")
def step(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainingStep]:
    made = TrainingStep(config, tmp_path_factory.mktemp("log"))
    made.run()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemms, "BLOCK_SECONDS", 1e-6)


def test_every_part_is_seen_and_nothing_stays_wrapped(step: TrainingStep) -> None:
    run, grad, steps = update.PPOUpdate.run, torch.autograd.grad, step.algorithm.num_timesteps
    parts = step.split()
    assert tuple(parts) == PARTS
    assert all(seconds > 0.0 for name, seconds in parts.items()), parts
    assert step.algorithm.num_timesteps == steps + step.batch == steps + 64
    assert (update.PPOUpdate.run, torch.autograd.grad) == (run, grad)
    assert "act" not in vars(step.algorithm.policy)
    assert "step" not in vars(step.algorithm.env.vector_env.body_envs[0].physics)


def test_measuring_changes_no_number(config: TrainConfig, tmp_path: Path) -> None:
    plain, observed = (TrainingStep(config, tmp_path / name) for name in "ab")
    for _ in range(2):
        plain.run()
        observed.split()
    pairs = zip(plain.algorithm.policy.parameters(), observed.algorithm.policy.parameters(), strict=True)
    assert all(torch.equal(mine, other) for mine, other in pairs)
    for made in (plain, observed):
        made.close()


def test_the_recorded_update_has_the_products_of_all_epochs(step: TrainingStep) -> None:
    short, whole = step.record_update(), step._record_update(3)
    assert short == whole
    assert sum(short.values()) > sum(step._record_update(1).values())
    assert step.algorithm.n_epochs == 3


def test_physics_floor_leaves_the_environments_alone(step: TrainingStep) -> None:
    (body,) = step.algorithm.env.vector_env.body_envs
    before = body.physics.get_state()
    assert step.physics_floor() > 0.0
    assert (body.physics.get_state() == before).all()
    floor = PhysicsFloor(body.model, body.physics.data, 5, 2)
    floor.seconds(3)
    times = [copy.time - data.time for copy, data in zip(floor._data, body.physics.data, strict=True)]
    assert times == pytest.approx([3 * 5 * body.model.opt.timestep] * 2)


def test_ratios_by_hand() -> None:
    parts = dict.fromkeys(PARTS, 0.0) | {"physics": 2.0, "inference": 1.0, "forward": 3.0, "backward": 4.0}
    found = ratios(parts, 1.0, 3.5)
    assert found["update_to_gemms"] == 2.0
    assert found["physics_to_floor"] == 2.0
    assert found["rollout_share"] == pytest.approx(0.1)
    assert found["whole_to_floors"] == pytest.approx(10.0 / 4.5)
    assert set(UPDATE) < set(PARTS)


def test_report_and_tables(config: TrainConfig) -> None:
    measurement = Measurement(config)
    for _ in range(2):
        assert measurement.repeat() > 0.0
    report = json.loads(json.dumps(measurement.report()))
    measurement.close()
    assert set(report["parts"]) == set(PARTS)
    assert report["nodes"] == {"centipede-4": 11}
    assert report["batch"] == 64
    assert report["memory"]["peak"] > report["memory"]["tensors"] > 10_000
    assert report["gemm_count"] == sum(measurement.gemms.values()) > 0
    text = parts_table([report])
    assert all(len(line.split(" | ")) == 2 for line in text.splitlines())
    assert len(text.splitlines()) == len(PARTS) + 14
    row = {"reports": {"snowflake": report | {"times_baseline": {"median": 3, "min": 2, "max": 4}}}}
    row["baseline"] = {"2": {"median": 100.0, "min": 90.0, "max": 110.0}}
    assert "| centipede-4 | 100 (90–110) | " in baseline_table({"centipede-4": row})
    assert "3.00 (2.00–4.00)" in baseline_table({"centipede-4": row})


def test_network_cost_and_its_exponent(config: TrainConfig, tmp_path: Path) -> None:
    cost = NetworkCost(config, tmp_path)
    assert cost.nodes == 11
    assert min(cost.update(), cost.act(2)) > 0.0
    assert exponent([2.0, 8.0, 32.0], [12.0, 48.0, 192.0]) == pytest.approx(1.0)
    assert exponent([2.0, 8.0], [1.0, 8.0]) == pytest.approx(1.5)
    spreads = [{"median": value, "min": value, "max": value} for value in (1.0, 2.0)]
    rows = [
        {"body": str(n), "method": "m", "nodes": n, "update": s, "act": s, "memory": {"peak": 2**20}}
        for n, s in zip((10, 20), spreads, strict=True)
    ]
    assert "Exponent, m: 1.00 (update), 1.00 (rollout call)." in scaling_table(rows)
    cost.step.close()


def test_advice_end_to_end(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[TrainConfig] = []

    def rate(candidate: TrainConfig) -> float:
        measured.append(candidate)
        return 100.0 * candidate.env.n_envs

    monkeypatch.setattr(advice, "rate", rate)
    monkeypatch.setattr(advice, "SHARE_OF_TABLE", 0.0)  # one repetition
    result = json.loads(json.dumps(advise(config, 60.0, ["--agents", "centipede-4"])))
    assert result["recommended"]["n_envs"] == 4  # 64 transitions: n_steps stays at 16 or more
    assert result["recommended"]["n_steps"] == 16
    assert result["command"].startswith("snowflake train --agents centipede-4 --n-envs 4 --n-steps 16")
    assert measured[0].env.n_envs == 2
    assert f"    {result['command']}" in advice_text(result).splitlines()
    assert "environment steps per second" in advice_text(result)


def test_changed_settings_reach_the_config(config: TrainConfig) -> None:
    other = changed(config, settings(config) | {"n_envs": 4, "n_steps": 16, "torch_threads": 2})
    assert (other.env.n_envs, other.ppo.n_steps, other.torch_threads) == (4, 16, 2)
    assert (config.env.n_envs, config.ppo.n_steps, config.torch_threads) == (2, 32, 1)
    assert dataclasses.replace(other, torch_threads=1, env=config.env, ppo=config.ppo) == config


def test_a_setting_that_does_not_work_is_told(config: TrainConfig) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    answer = advice.rate(dataclasses.replace(config, device="cuda"))
    assert isinstance(answer, str)
    assert "no CUDA" in answer
    assert not math.isnan(float(advice.rate(config, repetitions=1)))
