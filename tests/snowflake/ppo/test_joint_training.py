"""Joint training as a whole: steps by weight, advantages and curves per body, exact resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.errors import UserError
from snowflake.cli.train import parse_train
from snowflake.config import EnvConfig, TrainConfig, loader
from snowflake.ppo.buffer import RolloutBuffer
from snowflake.ppo.train import build, resume, train
from snowflake.run import Run
from tests.snowflake.ppo.helpers import tiny_config
from tests.snowflake.ppo.test_train import StopAt, assert_same, final_tensors

THREE = ("centipede-3", "centipede-4", "centipede-6")
SMALL = {"hidden_size": 8, "propagation_steps": 1}


def test_the_plain_command_splits_evenly_and_explicit_numbers_stand() -> None:
    config, _ = parse_train(["--agents", "centipede-4", "centipede-6", "centipede-8"])
    assert config.env.n_envs == 18
    assert parse_train(["--agents", *THREE, "--n-envs", "21"])[0].env.n_envs == 21
    weighted, _ = parse_train(["--agents", *THREE, "--n-envs", "16", "--body-weights", "1", "2", "1"])
    assert (weighted.env.n_envs, weighted.env.body_weights) == (16, (1.0, 2.0, 1.0))
    assert TrainConfig().env.n_envs == 16
    assert EnvConfig().for_bodies(17).n_envs == 17
    layer = loader.check_layer({"agents": list(THREE), "env": {"body_weights": [1, 2, 1]}})
    assert loader.build([layer]).env.body_weights == (1.0, 2.0, 1.0)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"n_envs": 16}, r"env.n_envs = 16 is not a multiple of the 3 bodies: use 15 or 18, or give body_weights"),
        ({"n_envs": 2, "body_weights": (1.0, 2.0, 1.0)}, "env.n_envs = 2 for 3 bodies: each needs one, use 3"),
        ({"n_envs": 6, "body_weights": (1.0, 2.0)}, "env.body_weights has 2 numbers for 3 bodies"),
        ({"body_weights": (1.0, -2.0, 1.0)}, r"env.body_weights = -2.0 is out of range"),
        ({"body_weights": (1.0, float("inf"), 1.0)}, r"env.body_weights = inf is out of range"),
    ],
)
def test_wrong_numbers_are_refused(env: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TrainConfig(agents=THREE, env=EnvConfig(**env))


def standardised(advantages: list[list[float]], bodies: list[int]) -> np.ndarray:
    """Advantages ``(n_steps, n_envs)`` after the buffer's standardisation."""
    box = spaces.Box(-1, 1, (1,))
    shape = np.shape(advantages)
    buffer = RolloutBuffer(shape[0], box, box, "cpu", n_envs=shape[1], body_of_env=np.array(bodies))
    buffer.advantages = torch.tensor(advantages)
    buffer.standardize_advantages()
    return buffer.advantages.numpy()


def test_advantages_by_hand() -> None:
    # Body 0 has 1, 3, 5, 7: mean 4, variance 5. Body 1 has -100, 300: mean 100, standard deviation 200.
    got = standardised([[1.0, 3.0, -100.0], [5.0, 7.0, 300.0]], [0, 0, 1])
    np.testing.assert_allclose(got[:, :2], np.array([[-3.0, -1.0], [1.0, 3.0]]) / np.sqrt(5.0), rtol=1e-6)
    np.testing.assert_allclose(got[:, 2], [-1.0, 1.0], rtol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1000.1, -123456.7])
def test_constant_advantages_become_zero_and_not_their_rounding_error(constant: float) -> None:
    got = standardised([[constant, 1.0]] * 20 + [[constant, 3.0]] * 20, [0, 1])
    assert not got[:, 0].any()
    np.testing.assert_allclose(got[:, 1], [-1.0] * 20 + [1.0] * 20, rtol=1e-6)


@pytest.fixture(scope="module")
def joint(tmp_path_factory) -> Run:
    """Three bodies by weight, with short episodes and an evaluation."""
    config = tiny_config(
        "snowflake",
        THREE,
        policy=SMALL,
        env={"n_envs": 4, "max_episode_steps": 12, "body_weights": (1.0, 2.0, 1.0)},
        total_timesteps=128,
        evaluation={"eval_freq": 128},
    )
    return train(config, tmp_path_factory.mktemp("joint") / "run", progress=False)


def test_curves_of_every_body_are_in_tensorboard(joint: Run) -> None:
    events = EventAccumulator(str(joint.path / "tensorboard")).Reload()
    for name, share in zip(THREE, (0.25, 0.5, 0.25), strict=True):
        returns = events.Scalars(f"rollout/{name}/ep_rew_mean")
        assert [e.step for e in returns] == [64, 128]
        assert all(np.isfinite(e.value) for e in returns)
        assert all(0 < e.value <= 12 for e in events.Scalars(f"rollout/{name}/ep_len_mean"))
        assert [e.value for e in events.Scalars(f"rollout/{name}/step_share")] == [share, share]
        assert len(events.Scalars(f"eval/{name}/mean_reward")) == 1
    assert len({events.Scalars(f"rollout/{name}/ep_rew_mean")[-1].value for name in THREE}) == 3
    evaluated = [events.Scalars(f"eval/{name}/mean_reward")[0].value for name in THREE]
    assert events.Scalars("eval/mean_reward")[0].value == pytest.approx(np.mean(evaluated), rel=1e-5)


def test_the_split_is_told(tmp_path, capsys) -> None:
    config = tiny_config("snowflake", THREE, policy=SMALL, env={"n_envs": 3}, total_timesteps=48)
    train(config, tmp_path / "run")
    words = "3 environments, share of the steps in brackets: centipede-3 1 (33.3%), centipede-4 1 (33.3%), "
    assert words in capsys.readouterr().err


def test_families_train_together_by_weight_and_resume_bit_equal(tmp_path) -> None:
    config = tiny_config(
        "snowflake",
        ("ant", "walker2d", "centipede-3"),
        policy=SMALL,
        env={"n_envs": 5, "max_episode_steps": 9, "body_weights": (3.0, 1.0, 1.0), "features": "general"},
        ppo={"n_steps": 8, "batch_size": 20},
        total_timesteps=120,
        evaluation={"checkpoint_freq": 40},
    )
    whole = train(config, tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", callbacks=[StopAt(80)], progress=False)
    assert_same(final_tensors(whole), final_tensors(resume(tmp_path / "cut", progress=False)))
    algorithm = build(Run.open(whole.path).config)
    assert [len(columns) for columns in algorithm.rollout_buffer.envs_of_body] == [3, 1, 1]
    algorithm.env.close()
