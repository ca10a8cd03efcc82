"""``snowflake bench attention``: at full r and k SparQ changes nothing, what it counts is the formula."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from snowflake.bench.attention_cost import measure_cost
from snowflake.bench.attention_fidelity import closed_loop, compare, record, sparse_variant, variant
from snowflake.cli import main
from snowflake.networks.memory.traffic import dense_traffic, sparq_traffic
from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.train import train
from snowflake.run import Run
from tests.snowflake.ppo.helpers import tiny_config

SMALL: dict[str, Any] = {"hidden_size": 8, "propagation_steps": 2, "memory_width": 8, "memory_window": 16}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A short run with a window."""
    settings = tiny_config(policy=SMALL | {"memory": "window"}, env={"max_episode_steps": 30}, total_timesteps=64)
    return train(settings, tmp_path_factory.mktemp("runs") / "window", progress=False)


@pytest.fixture(scope="module")
def policy(run: Run) -> GraphActorCriticPolicy:
    """Its policy, with a memory that matters."""
    policy = run.load_policy()
    with torch.no_grad():
        policy.actor.memory.output.weight.normal_(generator=torch.Generator().manual_seed(0))
    return policy


def test_all_components_and_positions_change_nothing_and_fewer_do(run: Run, policy: GraphActorCriticPolicy) -> None:
    taken = record(run, policy, n_envs=3, steps=40, seed=0)
    assert taken.starts[1:].any()
    full, half, few = (compare(policy, sparse_variant(policy, r, k), taken) for r, k in ((4, 16), (4, 8), (1, 2)))
    assert full["kl"] < 1e-9
    assert full["mass"] == pytest.approx(1.0, abs=1e-5)
    assert 1e-7 < half["kl"] < few["kl"]
    assert few["mass"] < half["mass"] < 1.0
    assert few["output_error"] > half["output_error"] > full["output_error"]
    assert compare(policy, variant(policy, memory_window=2), taken)["kl"] > 1e-6


def test_closed_loop_counts_what_the_formula_says(run: Run, policy: GraphActorCriticPolicy) -> None:
    result = closed_loop(run, policy, 4, 16, episodes=3, seed=5)
    assert result["ratio"] == pytest.approx(1.0, abs=1e-3)
    assert result["low"] <= result["ratio"] <= result["high"]
    result = closed_loop(run, policy, 1, 2, episodes=3, seed=5)
    dense, sparse = dense_traffic(4, 16, 4), sparq_traffic(4, 16, 4, 1, 2)
    assert result["elements"] == pytest.approx(dense[0] / sparse[0])
    assert result["sectors"] == pytest.approx(dense[1] / sparse[1])
    assert result["sectors_with_copies"] == pytest.approx(dense[1] / (sparse[1] + 4))


def test_at_the_sizes_of_the_docs_three_and_a_half_times_fewer_sectors_are_moved() -> None:
    for size, window in ((16, 64), (32, 256), (32, 1024)):
        dense, sparse = (
            f[1] for f in (dense_traffic(size, window, 4), sparq_traffic(size, window, 4, size // 4, window // 8))
        )
        assert dense / sparse >= 3.5


def test_cost_has_every_mode_and_the_window_moves_no_more_than_sparq() -> None:
    rows = measure_cost(6, 8, [16, 32], repeats=3)
    assert [row["mode"] for row in rows] == ["dense", "sdpa", "sparq", "sparq single", "window"] * 2
    assert all(0 < row["low_us"] <= row["median_us"] <= row["high_us"] for row in rows)
    for sparq, window in ((rows[2], rows[4]), (rows[7], rows[9])):
        assert window["elements"] <= sparq["elements"]


def test_the_command_prints_tables_and_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "attention", str(run.path), "--r", "1", "4", "--k", "2", "--windows", "16"]
    arguments += ["--episodes", "2", "--steps", "20"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "attention captured" in out
    assert "times fewer sectors" in out
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [(row["r"], row["k"]) for row in result["fidelity"]] == [(1, 2), (4, 2)]
    assert len(result["cost"]["modes"]) == 5


def test_mistakes_are_one_line(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = Run.create(tmp_path / "plain", tiny_config(), [run.make_env(run.morphologies[0])])
    (plain.checkpoint_path(64)).mkdir()
    for arguments, words in (
        ([str(tmp_path / "nowhere")], "does not exist"),
        (["--r", "0"], "--r 0: must lie between 1 and 4096"),
        (["--window", "3"], "did you mean '--windows'"),
        ([str(run.path), "--r", "5"], "must lie between 1 and 4"),
        ([str(plain.path), "--checkpoint", "64"], "for runs that were trained with --memory window"),
    ):
        assert main(["bench", "attention", *arguments]) == 2
        out, error = capsys.readouterr()
        assert out == ""
        assert words in error
        assert error.count("\n") == 1
