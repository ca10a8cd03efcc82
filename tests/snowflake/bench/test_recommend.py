"""The search on synthetic machines."""

from __future__ import annotations

from typing import Any

import pytest

from agents.errors import UserError
from snowflake.bench.overrides import overrides, section_of
from snowflake.bench.recommend import Search, axes, command, with_setting

START: dict[str, Any] = {"n_envs": 16, "n_steps": 128, "torch_threads": 2, "num_threads": 2, "device": "cpu"}


class Machine:
    """Takes 10 seconds a measurement; its speed is a product of factors."""

    def __init__(self, factors: dict[str, dict[Any, float | str]]) -> None:
        self.factors, self.time = factors, 0.0

    def measure(self, settings: dict[str, Any]) -> float | str:
        self.time += 10.0
        speed = 100.0
        for name, by_value in self.factors.items():
            factor = by_value.get(settings[name], 1.0)
            if isinstance(factor, str):
                return factor
            speed *= factor
        return speed

    def search(self, start: dict[str, Any], tries: Any, seconds: float = 1e9) -> tuple[dict[str, Any], Search]:
        search = Search(self.measure, seconds, lambda: self.time)
        return search.run(start, tries), search


def test_finds_the_best_of_every_axis_and_measures_nothing_twice() -> None:
    machine = Machine({"n_envs": {8: 0.5, 32: 1.5, 64: 1.2}, "torch_threads": {1: 1.3}, "num_threads": {1: 0.4}})
    best, search = machine.search(START, axes(START, 2, 1, ["cpu"], []))
    assert best == START | {"n_envs": 32, "n_steps": 64, "torch_threads": 1}
    tried = [tuple(settings.items()) for settings, _ in search.tried]
    assert len(tried) == len(set(tried))
    assert search.skipped == []
    assert (best, 195.0) in [(s, round(v)) for s, v in search.tried if isinstance(v, float)]


def test_noise_changes_no_setting() -> None:
    machine = Machine({"torch_threads": {1: 1.02}, "n_envs": {32: 1.029}})
    assert machine.search(START, axes(START, 2, 1, ["cpu"], []))[0] == START


def test_a_lower_precision_needs_a_clear_gain() -> None:
    start = START | {"precision": "fp32"}
    tries = axes(start, 1, 1, ["cpu"], ["fp32", "bf16"])
    assert Machine({"precision": {"bf16": 1.08}}).search(start, tries)[0]["precision"] == "fp32"
    assert Machine({"precision": {"bf16": 1.12}}).search(start, tries)[0]["precision"] == "bf16"


def test_what_does_not_work_is_told_and_not_recommended() -> None:
    machine = Machine({"device": {"cuda": "out of memory"}})
    best, search = machine.search(START, axes(START, 2, 1, ["cpu", "cuda"], []))
    assert best["device"] == "cpu"
    assert (START | {"device": "cuda"}, "out of memory") in search.tried


def test_the_time_limit_is_kept_and_what_was_left_out_is_named() -> None:
    machine = Machine({"n_envs": {8: 0.5, 32: 1.5}})
    best, search = machine.search(START, axes(START, 2, 1, ["cpu"], []), seconds=35.0)
    assert machine.time <= 35.0
    assert len(search.tried) == 3
    assert len(search.skipped) >= 1
    assert best in [settings for settings, _ in search.tried]
    assert machine.search(START, axes(START, 2, 1, ["cpu"], []), seconds=0.0)[1].tried[0][0] == START


def test_batches_stay_the_same() -> None:
    assert with_setting(START, "n_envs", 32) == START | {"n_envs": 32, "n_steps": 64}
    assert with_setting(START, "device", "cuda") == START | {"device": "cuda"}
    tries = dict(axes(START, 4, 1, ["cpu"], []))
    assert all(2048 % count == 0 and 2048 // count >= 16 for count in tries["n_envs"])
    assert tries["torch_threads"] == (4, 2, 1)
    assert "device" not in tries  # there is but one
    three = dict(axes(START | {"n_envs": 12, "n_steps": 256}, 4, 3, ["cpu"], []))
    assert three["n_envs"] == (12, 24, 48, 96, 192)


def test_the_command_names_what_differs() -> None:
    best = START | {"n_envs": 32, "n_steps": 64}
    assert (
        command(["--agents", "my robot.xml"], best, START)
        == "snowflake train --agents 'my robot.xml' --n-envs 32 --n-steps 64"
    )


def test_settings_find_their_section() -> None:
    assert (section_of("n_envs"), section_of("n_steps"), section_of("device")) == ("env", "ppo", "")
    assert overrides({"n_envs": 8, "seed": 1}) == {"env": {"n_envs": 8}, "seed": 1}
    with pytest.raises(UserError, match="no setting 'speed'"):
        overrides({"speed": 11})
