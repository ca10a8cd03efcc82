"""The baseline does the same work on the same physics; the benchmark's worker answers line by line."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path
from types import ModuleType

import mujoco
import numpy as np
import pytest
import torch

import envs

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


baseline, train_step = load("baseline_sb3_pyg"), load("train_step")


@pytest.mark.parametrize("body", ["centipede-6", "humanoid"])
def test_the_baseline_steps_the_same_physics(body: str) -> None:
    robot = baseline.Robot(body)
    (ours,) = envs.make_vector_env([body], 1, num_threads=1).body_envs
    ours.reset(seed=0)
    robot.reset(seed=0)
    mujoco.mj_copyData(robot.data, robot.model, ours.physics.data[0])
    action = np.full(robot.model.nu, 0.25)
    ours.physics.step(action[None])
    obs, *_ = robot.step(action)
    assert np.array_equal(robot.data.qpos, ours.physics.qpos[0])
    assert np.array_equal(robot.data.cfrc_ext, ours.physics.cfrc_ext[0])
    assert obs.shape == robot.observation_space.shape


def test_the_baseline_has_a_graph_of_our_size() -> None:
    from snowflake.run import graph_of

    for body in ("centipede-6", "humanoid"):
        (ours,) = envs.make_vector_env([body], 1, num_threads=1).body_envs
        graph = baseline.graph_of(ours.model)
        assert graph["nodes"] == len(graph_of(ours).node_type)
        edges = graph_of(ours).edge_index.T.tolist()
        assert len(graph["edges"]) == len(edges)
        assert {(j, i) for i, j in graph["edges"]} == set(graph["edges"])
        mean = baseline.NerveNet(**graph)(torch.zeros(3, baseline.Robot(body).observation_space.shape[0]))
        assert mean.shape == (3, ours.model.nu)


def test_messages_are_the_mean_over_neighbours() -> None:
    propagation = baseline.Propagation()
    x = torch.randn(3, baseline.HIDDEN, generator=torch.Generator().manual_seed(0))
    edges = torch.tensor([[0, 2, 1], [1, 1, 0]])
    with torch.no_grad():
        got = propagation.propagate(edges, x=x)
        sent = propagation.net(x)
    assert torch.allclose(got, torch.stack([sent[1], (sent[0] + sent[2]) / 2, torch.zeros_like(sent[0])]))


def test_a_worker_measures_line_by_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = {
        "agents": ["centipede-4"],
        "torch_threads": 1,
        "env": {"n_envs": 2, "num_threads": 1},
        "policy": {"hidden_size": 8, "propagation_steps": 1},
        "ppo": {"n_steps": 16, "batch_size": 16, "n_epochs": 1},
    }
    spec = {"kind": "scaling", "method": "nervenet", "overrides": overrides}
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n\n"))
    train_step.serve(spec)
    ready, *answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ready == {"nodes": 11}
    assert len(answers) == 2
    assert all(set(answer) == {"update", "act", "memory"} for answer in answers)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\nreport\n"))
    train_step.serve(spec | {"kind": "step"})
    ready, rate, report = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ready == {"ready": True}
    assert rate["steps_per_second"] == report["steps_per_second"]["median"] > 0.0


def test_a_worker_that_dies_is_named() -> None:
    with pytest.raises(SystemExit, match="mine ended with exit code 3"):
        train_step.Worker("mine", [sys.executable, "-c", "print('words'); raise SystemExit(3)"])
    worker = train_step.Worker(
        "echo", [sys.executable, "-c", "print('{}', flush=True); print('words\\n{\"a\": 1}'); input()"]
    )
    assert (worker.ready, worker.ask("x")) == ({}, {"a": 1})
    worker.close()
