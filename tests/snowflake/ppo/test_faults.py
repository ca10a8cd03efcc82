"""Write errors: whatever operation fails, the run folder can be loaded and goes on."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from agents.errors import UserError
from snowflake.cli import main
from snowflake.manifest import damage
from snowflake.ppo.algorithm import SnowflakePPO
from snowflake.ppo.callbacks import RunCallback
from snowflake.ppo.checkpoint import restore
from snowflake.ppo.train import build, resume, train
from snowflake.run import Run
from tests.snowflake.ppo.helpers import tiny_config

OPERATIONS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("open", "fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "chmod", "close")),
    (io, "open"),
    *((Path, name) for name in ("write_bytes", "write_text")),
)


class Faults:
    """Makes the n-th file operation fail, and on a full disk all that follow it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int, number: int, for_good: bool) -> None:
        self.fail_at, self.number, self.for_good = fail_at, number, for_good
        self.names: list[str] = []
        for owner, name in OPERATIONS:
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name), name))

    def _wrapped(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def operation(*args: Any, **kwargs: Any) -> Any:
            self.names.append(name)
            count = len(self.names)
            if count == self.fail_at or (self.for_good and count > self.fail_at):
                if name.startswith("write_"):  # part of it reaches the disk
                    args = (args[0], args[1][: len(args[1]) // 2])
                    original(*args, **kwargs)
                elif name == "close":  # the descriptor is gone whatever close says
                    original(*args, **kwargs)
                raise OSError(self.number, os.strerror(self.number))
            return original(*args, **kwargs)

        return operation


@pytest.fixture(scope="module")
def at_work(tmp_path_factory) -> tuple[SnowflakePPO, Run, RunCallback]:
    """A run that has three checkpoints, and an algorithm that goes on from the last."""
    evaluation = {"checkpoint_freq": 64, "keep_checkpoints": 2}
    config = tiny_config("mlp", total_timesteps=192, evaluation=evaluation, policy={"hidden_size": 4})
    run = train(config, tmp_path_factory.mktemp("faults") / "run", progress=False)
    algorithm = build(config, run.morphologies)
    restore(algorithm, run.last_intact()[0])
    keeper = RunCallback(run)
    keeper.init_callback(algorithm)
    keeper._on_training_start()
    return algorithm, run, keeper


@pytest.mark.parametrize(("number", "for_good"), [(errno.EIO, False), (errno.ENOSPC, True)])
def test_a_failure_of_any_operation_leaves_a_run_that_loads(at_work, monkeypatch, number, for_good) -> None:
    algorithm, run, keeper = at_work
    second = build(run.config, run.morphologies)
    fail_at, seen = 1, set()
    while True:
        before = run.index()["last"]
        algorithm.num_timesteps += 64
        with monkeypatch.context() as patched:
            faults = Faults(patched, fail_at, number, for_good)
            try:
                keeper._save()
                failed = False
            except (OSError, UserError):  # the latter for a file that cannot be read
                failed = True
        if len(faults.names) < fail_at:
            break
        seen.add(faults.names[fail_at - 1])
        folder, damaged = Run.open(run.path).last_intact()
        assert damaged == {}
        assert int(folder.name[5:]) in (before, algorithm.num_timesteps)
        assert failed or int(folder.name[5:]) == algorithm.num_timesteps  # no failure is passed over in silence
        assert all(damage(run.checkpoint_path(step)) is None for step in run.checkpoints())
        if fail_at % 10 == 0:  # what the checksums say to be whole can be loaded
            restore(second, folder)
        fail_at += 1
    assert fail_at > 40
    assert seen >= {"open", "fsync", "rename", "replace", "unlink", "mkdir", "chmod", "write_bytes", "write_text"}
    assert run.index()["last"] == algorithm.num_timesteps  # the last one met no fault
    assert not faults_left(run)


def faults_left(run: Run) -> list[Path]:
    """Half-written things, once a resume has tidied up."""
    resume(run.path, total_timesteps=run.index()["last"] + 64, progress=False)
    return [*run.path.glob(".tmp-*"), *(run.path / "checkpoints").glob(".tmp-*")]


def test_a_full_disk_ends_the_run_in_one_line_and_it_goes_on_to_the_bit(tmp_path, monkeypatch, capsys) -> None:
    settings = ["--agents", "centipede-4", "--method", "mlp", "--hidden-size", "4", "--total-timesteps", "192"]
    settings += ["--n-envs", "4", "--n-steps", "16", "--batch-size", "32", "--n-epochs", "1", "--num-threads", "1"]
    settings += ["--eval-freq", "64", "--eval-episodes", "1", "--checkpoint-freq", "64", "--torch-threads", "1"]
    settings += ["--max-episode-steps", "20"]
    assert main(["train", *settings, "--run", str(tmp_path / "whole")]) == 0
    save = SnowflakePPO.save

    def full(self: SnowflakePPO, path: Path, *args: Any) -> None:
        if self.num_timesteps == 128:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(self, path)

    monkeypatch.setattr(SnowflakePPO, "save", full)
    capsys.readouterr()
    assert main(["train", *settings, "--run", str(tmp_path / "cut")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "at step 128: No space left on device; everything up to step 64 is kept: make room, then: snowfl" in error
    monkeypatch.undo()
    assert main(["resume", str(tmp_path / "cut")]) == 0
    folders = (Run.open(tmp_path / name).find_checkpoint("last") for name in ("whole", "cut"))
    whole, cut = (load_file(folder / "actor.safetensors") for folder in folders)
    assert all(torch.equal(whole[k], cut[k]) for k in whole)
    starts = (tmp_path / "cut" / "starts.jsonl").read_text()
    assert [f'"step": {n},' in line for n, line in zip((0, 64), starts.splitlines(), strict=True)] == [True, True]
    assert f"snowflake resume {tmp_path / 'cut'}" in starts


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the writer's own thread
def test_curves_that_cannot_be_written_end_the_run_too(tmp_path, monkeypatch) -> None:
    from tensorboard.summary.writer.record_writer import RecordWriter

    write, count = RecordWriter.write, 0

    def full(self: RecordWriter, data: bytes) -> None:
        nonlocal count
        count += 1
        if count > 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, data)

    monkeypatch.setattr(RecordWriter, "write", full)
    config = tiny_config("mlp", total_timesteps=640, evaluation={"checkpoint_freq": 64}, policy={"hidden_size": 4})
    with pytest.raises(UserError, match=r"No space left on device; everything up to step \d+ is kept"):
        train(config, tmp_path / "run", progress=False)
    assert Run.open(tmp_path / "run").last_intact()[1] == {}
