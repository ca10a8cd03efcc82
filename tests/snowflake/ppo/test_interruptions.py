"""Signals, errors in threads, and what must not change training: logs, films, evaluations, threads, global draws."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from stable_baselines3.common.callbacks import BaseCallback

from snowflake.manifest import damage
from snowflake.ppo import train as training
from snowflake.ppo.train import resume, train
from snowflake.ppo.workers import Workers
from snowflake.run import Run
from tests.snowflake.ppo.helpers import tiny_config

SMALL: dict[str, Any] = {"policy": {"hidden_size": 4}}


def weights(run: Run) -> dict[str, torch.Tensor]:
    folder = run.find_checkpoint("last")
    files = ("actor", "critic", "optimizers", "environments", "generators")
    return {f"{f}/{k}": v for f in files for k, v in load_file(folder / f"{f}.safetensors").items()}


def differing(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    return sorted(a.keys() ^ b.keys()) or [k for k in a if not torch.equal(a[k], b[k])]


class Twice(BaseCallback):
    """Asks the run to stop in a rollout, and once more while it saves."""

    def _on_step(self) -> bool:
        if self.num_timesteps == 72:
            os.kill(os.getpid(), signal.SIGINT)
        return True


@pytest.mark.parametrize("moment", ["fsync", "rename", "replace"])
def test_a_second_signal_while_saving_ends_at_once_and_corrupts_nothing(tmp_path, monkeypatch, capsys, moment) -> None:
    config = tiny_config("mlp", total_timesteps=192, evaluation={"checkpoint_freq": 64}, **SMALL)
    whole = train(config, tmp_path / "whole", progress=False)
    original, sent = getattr(os, moment), []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        if "stopping after this update" in capsys.readouterr().err and not sent and caller.endswith("files.py"):
            sent.append(moment)
            os.kill(os.getpid(), signal.SIGINT)
            original(*args, **kwargs)
            return None
        return original(*args, **kwargs)

    monkeypatch.setattr(os, moment, interrupted)
    with pytest.raises(KeyboardInterrupt) as stop:
        train(config, tmp_path / "cut", callbacks=[Twice()], progress=False)
    monkeypatch.undo()
    assert sent == [moment]
    assert stop.value.args == ()  # told nothing of having saved
    cut = Run.open(tmp_path / "cut")
    assert all(damage(cut.checkpoint_path(step)) is None for step in cut.checkpoints())
    assert cut.last_intact()[1] == {}
    assert differing(weights(whole), weights(resume(cut.path, progress=False))) == []
    assert not [*cut.path.glob(".tmp-*"), *(cut.path / "checkpoints").glob(".tmp-*")]


def test_a_signal_before_the_first_step_still_leaves_a_run_to_continue(tmp_path, monkeypatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    config = tiny_config("mlp", **SMALL)
    whole = train(config, tmp_path / "whole", progress=False)
    with monkeypatch.context() as patched:
        patched.setattr(training, "make_logger", killed)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "cut", progress=False)
    assert Run.open(tmp_path / "cut").index() == {"last": 0}
    assert differing(weights(whole), weights(resume(tmp_path / "cut", progress=False))) == []


def test_an_error_of_an_update_thread_shows_once(capfd) -> None:
    def fail(k: int) -> None:
        raise ArithmeticError(f"the cause {k}")

    with pytest.raises(ArithmeticError, match="the cause"):
        Workers(4).run([lambda k=k: fail(k) for k in range(8)])
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""  # no thread prints a traceback of its own


def test_an_error_of_a_physics_thread_shows_once(tmp_path, monkeypatch, capfd) -> None:
    step, count = mujoco.mj_step, 0

    def broken(*args: Any) -> None:
        nonlocal count
        count += 1
        if count > 80:
            raise mujoco.FatalError("the solver gave up")
        step(*args)

    monkeypatch.setattr(mujoco, "mj_step", broken)
    config = tiny_config("mlp", env={"num_threads": 3}, **SMALL)
    with pytest.raises(mujoco.FatalError, match="the solver gave up"):
        train(config, tmp_path / "run", progress=False)
    captured = capfd.readouterr()
    assert "the solver gave up" not in captured.out + captured.err
    monkeypatch.undo()
    assert resume(tmp_path / "run", progress=False).index()["last"] == 128


class Bystander(BaseCallback):
    """Draws from every global generator, plays and logs, as films and evaluations may."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def _on_rollout_start(self) -> None:
        from snowflake.ppo.callbacks import evaluate_bodies

        random.seed(self.num_timesteps)
        np.random.seed(self.num_timesteps)
        torch.manual_seed(self.num_timesteps)
        random.random(), np.random.rand(5), torch.rand(5)
        evaluate_bodies(self.model.policy, Run.open(self.path))  # type: ignore[arg-type]
        self.logger.record("mine/number", float(torch.rand(())))

    def _on_step(self) -> bool:
        return True


def test_nothing_beside_training_changes_it(tmp_path) -> None:
    settings: dict[str, Any] = {"env": {"max_episode_steps": 9}, **SMALL}
    plain = weights(train(tiny_config(**settings), tmp_path / "plain", progress=False))
    del plain["generators/torch"]  # the global one, which the bystander moves and training never draws from
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "bystander": ({}, {"callbacks": [Bystander(tmp_path / "bystander")], "progress": True}),
        "often": ({"evaluation": {"eval_freq": 64, "checkpoint_freq": 64}}, {"progress": False}),
        "diagnostics": ({"ppo": {"n_steps": 16, "batch_size": 32, "n_epochs": 2, "diagnostics_every": 1}}, {}),
        "threads": ({"env": {"max_episode_steps": 9, "num_threads": 3}}, {"progress": False}),
    }
    for name, (changes, how) in cases.items():
        found = weights(train(tiny_config(**(settings | changes)), tmp_path / name, **how))
        found.pop("generators/torch")
        assert differing(plain, found) == [], name


def test_a_resume_under_other_conditions_says_what_is_no_longer_exact(tmp_path, capsys) -> None:
    import json

    run = train(tiny_config("mlp", **SMALL), tmp_path / "run", command=["snowflake", "train"], progress=False)
    resume(run.path, 192, num_threads=2, torch_threads=2, command=["snowflake", "resume", "it"], progress=False)
    assert "bit-exact" not in capsys.readouterr().err  # neither of these changes a number
    file: Path = run.path / "starts.jsonl"
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert (first["step"], second["step"], second["total_timesteps"]) == (0, 128, 192)
    assert (first["command"], second["command"]) == ("snowflake train", "snowflake resume it")
    assert first["torch_threads"] == 1
    second |= {"torch_threads": 7, "versions": second["versions"] | {"torch": "0.1"}}
    file.write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n" + '{"cut')
    resume(run.path, 256, progress=False)
    told = capsys.readouterr().err
    assert f"no longer bit-exact from step 192 on: torch threads 7 -> 1, torch 0.1 -> {torch.__version__}" in told
    assert len(file.read_text().splitlines()) == 4


def test_the_tab_of_hyperparameters_works_and_adds_no_scalar(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    run = train(tiny_config("mlp", total_timesteps=64, **SMALL), tmp_path / "run", progress=False)
    run = resume(run.path, 128, progress=False)
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    values = HParamsPluginData.FromString(content).session_start_info.hparams
    assert values["ppo.n_steps"].number_value == 16
    assert values["method"].string_value == "mlp"
    assert values["ppo.timelimit_bootstrap"].number_value == 1
    assert "train/learning_rate" in events.Tags()["scalars"]
    assert not [tag for tag in events.Tags()["scalars"] if "hparam" in tag]
    assert [e.step for e in events.Scalars("train/value_loss")] == [64, 128]
