"""Objective ppo: a short real run, judged, continued after a stop, and one that diverges."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from snowflake.files import dump_json
from snowflake.ppo.algorithm import SnowflakePPO
from snowflake.probe import reinforcement
from snowflake.probe.cells import CellMaker, ProbeCell
from snowflake.probe.reinforcement import random_play, run_ppo
from snowflake.run import Run
from tests.snowflake.probe import made_up

UPDATES = 20


@pytest.fixture(scope="module")
def cell() -> ProbeCell:
    settings = made_up.probe(objective="ppo", agents=("hopper-3",), updates=UPDATES, hidden_size=8, layers=1, heads=1)
    cell = CellMaker(settings).cells(["qk"], [0.01])[0]
    ppo = dataclasses.replace(cell.config.ppo, n_steps=16, batch_size=32, n_epochs=1)
    env = dataclasses.replace(cell.config.env, n_envs=4, max_episode_steps=50)
    config = dataclasses.replace(cell.config, ppo=ppo, env=env, total_timesteps=UPDATES * 16 * 4)
    return dataclasses.replace(cell, config=config)


@pytest.fixture(scope="module")
def undisturbed(cell: ProbeCell, tmp_path_factory: pytest.TempPathFactory):
    rates: list[float] = []
    train = SnowflakePPO.train

    def noted(self: SnowflakePPO) -> None:
        train(self)
        rates.append(self.policy.optimizer.param_groups[0]["lr"])

    path = tmp_path_factory.mktemp("probe") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnowflakePPO, "train", noted)
        return run_ppo(cell, path), rates, path


def test_a_real_run_is_judged(cell: ProbeCell, undisturbed) -> None:
    row, rates, path = undisturbed
    assert rates == [cell.rate] * UPDATES  # the warm-up is the first of twenty updates
    assert row.status in ("stable", "diverged", "no_progress")
    assert len(row.curve["update"]) == UPDATES
    assert np.isfinite(row.score)
    assert row.initial == row.trivial == random_play(Run.open(path))[0]
    assert row.health["update"][-1] >= UPDATES - 2
    assert {"L0/fc2/y_rms", "L0/entropy"} <= set(row.health)


def test_the_warm_up_of_a_longer_run(cell: ProbeCell) -> None:
    class Model:
        lr_schedule = None

    warm = reinforcement.WarmUp(0.5, 100)
    warm.model = Model()  # type: ignore[assignment]
    warm._on_training_start()
    assert [warm.model.lr_schedule(1.0 - k / 100) for k in (1, 2, 5, 6, 100)] == pytest.approx(
        [0.1, 0.2, 0.5, 0.5, 0.5]
    )


def test_a_stopped_run_goes_on_to_the_same_row(cell: ProbeCell, undisturbed, tmp_path: Path) -> None:
    train, count = SnowflakePPO.train, 0

    def interrupted(self: SnowflakePPO) -> None:
        nonlocal count
        train(self)
        count += 1
        if count == 8:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnowflakePPO, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_ppo(cell, tmp_path / "run")
    assert Run.open(tmp_path / "run").index()["last"] == 8 * 16 * 4
    assert dump_json(run_ppo(cell, tmp_path / "run").to_json()) == dump_json(undisturbed[0].to_json())


def test_numbers_that_are_not_finite_are_r1(cell: ProbeCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, count = SnowflakePPO.train, 0

    def poisoned(self: SnowflakePPO) -> None:
        nonlocal count
        count += 1
        if count == 5:
            with torch.no_grad():
                next(iter(self.policy.actor.decoder.parameters())).fill_(float("nan"))
        train(self)

    monkeypatch.setattr(SnowflakePPO, "train", poisoned)
    row = run_ppo(cell, tmp_path / "run")
    assert (row.status, row.reason, row.update) == ("diverged", "R1", 5)
    assert np.isnan(row.score)
    assert len(row.curve["update"]) == 5
