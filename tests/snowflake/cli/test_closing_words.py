"""What is said after a run, and before one: bodies to transfer to, minibatches that do not divide a rollout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents import load
from snowflake.cli.train import batch_note, closing_words, new_bodies
from snowflake.config import EnvConfig, PolicyConfig, PPOConfig, TrainConfig
from snowflake.run import FINETUNE_FILE, Run

SIX = tuple(f"centipede-{legs}" for legs in (4, 6, 8, 10, 12, 14))


def make_run(path: Path, names: tuple[str, ...], features: str, **policy: str) -> Run:
    config = TrainConfig(agents=names, env=EnvConfig(features=features), policy=PolicyConfig(**policy))
    return Run(path, config, tuple(map(load, names)))


@pytest.mark.parametrize(
    ("names", "features", "expected"),
    [
        (("centipede-6",), "paper", ("centipede-8", "centipede-12")),
        (("centipede-8",), "paper", ("centipede-12", "centipede-4")),
        (("centipede-12", "centipede-4"), "paper", ("centipede-8", "centipede-6")),
        (("centipede-8", "centipede-12"), "paper", ("centipede-4", "centipede-6")),
        (SIX, "paper", ("centipede-16", "centipede-18")),
        (("centipede-6",), "general", ("ant", "walker2d")),
        (("ant", "walker2d", "humanoid", "hopper"), "general", ("centipede-4", "centipede-6")),
    ],
)
def test_bodies_to_transfer_to_are_new(
    names: tuple[str, ...], features: str, expected: tuple[str, ...], tmp_path: Path
) -> None:
    run = make_run(tmp_path, names, features)
    assert new_bodies(run) == expected
    assert f"snowflake transfer {tmp_path} --to {' '.join(expected)}\n" in closing_words(run)
    assert all(load(name) for name in expected)


def test_bodies_that_the_actor_knew_before_are_not_new(tmp_path: Path) -> None:
    source = {"agents": ["centipede-8", "centipede-6"], "earlier_agents": ["centipede-12"]}
    (tmp_path / FINETUNE_FILE).write_text(json.dumps({"source": source}))
    run = make_run(tmp_path, ("centipede-6",), "paper")
    assert run.earlier_bodies == ("centipede-12", "centipede-8")
    assert new_bodies(run) == ("centipede-4", "centipede-10")
    (tmp_path / FINETUNE_FILE).write_text(json.dumps({"source": None}))  # --from-scratch
    assert make_run(tmp_path, ("centipede-6",), "paper").earlier_bodies == ()


def test_a_flat_policy_is_not_sent_elsewhere(tmp_path: Path) -> None:
    assert "transfer" not in closing_words(make_run(tmp_path, ("centipede-6",), "paper", network="mlp"))


def test_a_smaller_last_minibatch_is_told_in_a_line() -> None:
    assert batch_note(TrainConfig()) is None
    odd = TrainConfig(env=EnvConfig(n_envs=15), ppo=PPOConfig(n_steps=128, batch_size=256))
    assert "128 x 15 = 1920: the last minibatch of each epoch has 128 transitions" in str(batch_note(odd))
    whole = PPOConfig(n_steps=128, batch_size=256, collection="whole_episodes")
    assert batch_note(TrainConfig(env=EnvConfig(n_envs=15), ppo=whole)) is None
