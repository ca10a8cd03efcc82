"""The task's section of the config, and what the environments observe."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agents.errors import UserError
from envs.tasks.options import TaskOptions
from snowflake.cli.train import parse_train
from snowflake.config import EnvConfig, TrainConfig, loader


def test_the_section_is_the_dataclass_of_the_environments() -> None:
    assert TrainConfig().task == TaskOptions()
    assert type(TrainConfig().task) is TaskOptions


def test_yaml_and_flags_reach_the_task(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("agents: [ant]\ntask:\n  frame_skip: 4\n  healthy_z_range: [0.25, 1]\n  reset: keyframe:home\n")
    argv = ["--config", str(file), "--frame-skip", "3", "--command", "--command-speed", "1.5", "--features", "general"]
    config, _ = parse_train([*argv, "--root-body", "torso"])
    assert config.task == TaskOptions(
        frame_skip=3, healthy_z_range=(0.25, 1.0), reset="keyframe:home", command=True, command_speed=1.5
    )
    assert (config.env.features, config.env.root_body) == ("general", "torso")
    written = tmp_path / "config.yaml"
    written.write_text(loader.to_yaml(config))
    assert loader.load(written) == config


def test_a_switch_left_to_the_task_can_be_set_by_flag() -> None:
    assert parse_train(["--terminate-when-unhealthy", "False"])[0].task.terminate_when_unhealthy is False
    assert parse_train([])[0].task.terminate_when_unhealthy is None


def test_mistakes_name_the_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    for text, message in (
        ("task:\n  frame_skip: 0\n", r"run.yaml:2: task.frame_skip = 0 is out of range"),
        ("task:\n  healthy_z_range: [2, 1]\n", r"run.yaml:2: task.healthy_z_range = \[2.0, 1.0\] is no range"),
        ("task:\n  reset: keyfram\n", r"run.yaml:2: task.reset = 'keyfram' is not a choice"),
        ("env:\n  features: papers\n", r"run.yaml:2: env.features = 'papers' is not a choice: did you mean 'paper'"),
        ("task:\n  ctrl_cost: 1\n", r"run.yaml:2: task.ctrl_cost is not a key: did you mean 'ctrl_cost_weight'"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=message):
            loader.resolve(configs=[file])


def test_names_are_unique_over_the_sections() -> None:
    """Flags have no prefix."""
    sections = [
        TrainConfig(),
        *(getattr(TrainConfig(), name) for name in ("env", "task", "policy", "ppo", "evaluation")),
    ]
    names = [field.name for section in sections for field in dataclasses.fields(section)]
    assert len(names) == len(set(names))
    assert {"features", "root_body"} <= {field.name for field in dataclasses.fields(EnvConfig)}
