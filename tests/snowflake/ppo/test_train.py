"""Whole runs: determinism, exact resume, several bodies, logs, time limits."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from stable_baselines3.common.callbacks import BaseCallback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.errors import UserError
from snowflake.ppo.train import build, resume, train
from snowflake.run import Run
from tests.snowflake.ppo.helpers import METHODS, replace_section, tiny_config


def final_tensors(run: Run) -> dict[str, torch.Tensor]:
    folder = run.find_checkpoint("last")
    return {
        f"{file}/{k}": v
        for file in ("actor", "critic", "optimizers", "environments")
        for k, v in load_file(folder / f"{file}.safetensors").items()
    }


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    different = [k for k in a if not torch.equal(a[k], b[k])]
    assert not different, different


class StopAt(BaseCallback):
    """Stops like a kill between an update and the next rollout."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.step:
            raise KeyboardInterrupt

    def _on_step(self) -> bool:
        return True


def test_two_runs_of_one_seed_are_equal_and_another_seed_differs(tmp_path) -> None:
    runs = [train(tiny_config(seed=s), tmp_path / n, progress=False) for n, s in (("a", 1), ("b", 1), ("c", 2))]
    assert_same(final_tensors(runs[0]), final_tensors(runs[1]))
    other = final_tensors(runs[2])
    assert not torch.equal(final_tensors(runs[0])["actor/log_std"], other["actor/log_std"])


def test_evaluation_does_not_disturb_training(tmp_path) -> None:
    quiet = train(tiny_config(), tmp_path / "quiet", progress=False)
    config = tiny_config(evaluation={"eval_freq": 64}, env={"max_episode_steps": 40})
    config = replace_section(config, "env", max_episode_steps=1000)
    busy = train(config, tmp_path / "busy", progress=False)
    assert len((busy.path / "evaluations.jsonl").read_text().splitlines()) == 2
    assert_same(final_tensors(quiet), final_tensors(busy))


@pytest.mark.parametrize(
    ("method", "agents", "ppo"),
    [(m, ("centipede-4",), {}) for m in METHODS]
    + [("snowflake", ("centipede-4", "centipede-6"), {}), ("nervenet", ("centipede-4",), {"scale_returns": True})],
)
def test_resume_is_bit_equal(tmp_path, method, agents, ppo) -> None:
    # Short episodes, so that the checkpoint falls in the middle of some and resets happen after it.
    config = tiny_config(
        method, agents, ppo=ppo, env={"max_episode_steps": 23}, total_timesteps=256, evaluation={"checkpoint_freq": 64}
    )
    whole = train(config, tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", callbacks=[StopAt(192)], progress=False)
    cut = Run.open(tmp_path / "cut")
    assert cut.index()["last"] == 192
    resumed = resume(cut.path, progress=False)
    assert resumed.index()["last"] == 256
    assert_same(final_tensors(whole), final_tensors(resumed))


def test_resume_keeps_one_curve_with_increasing_steps(tmp_path) -> None:
    config = tiny_config(total_timesteps=320, evaluation={"checkpoint_freq": 128, "eval_freq": 128})
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", callbacks=[StopAt(192)], progress=False)
    assert Run.open(tmp_path / "run").index()["last"] == 128  # the update at 192 is lost and must be written again
    resume(tmp_path / "run", progress=False)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"), purge_orphaned_data=True).Reload()
    steps = [e.step for e in events.Scalars("train/value_loss")]
    assert steps == [64, 128, 192, 256, 320]
    rates = [e.value for e in events.Scalars("train/learning_rate")]
    assert rates == pytest.approx([3e-4 * (1 - s / 320) for s in steps], abs=1e-9)
    evaluated = [json.loads(line)["step"] for line in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert evaluated == [128, 256, 320]


def test_resume_to_a_new_end(tmp_path) -> None:
    train(tiny_config(total_timesteps=64), tmp_path / "run", progress=False)
    with pytest.raises(UserError, match="lies behind the last checkpoint"):
        resume(tmp_path / "run", total_timesteps=64, progress=False)
    run = resume(tmp_path / "run", total_timesteps=192, progress=False)
    assert run.index()["last"] == 192
    assert Run.open(run.path).config.total_timesteps == 192


class Signal(BaseCallback):
    """Sends a signal to this process in the middle of a rollout."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__()
        self.number, self.step = number, step

    def _on_step(self) -> bool:
        if self.num_timesteps == self.step:
            os.kill(os.getpid(), self.number)
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_after_the_update_and_says_how_to_go_on(tmp_path, capsys, number) -> None:
    config = tiny_config(total_timesteps=192)
    before = signal.getsignal(signal.SIGINT)
    whole = train(config, tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", callbacks=[Signal(number, 72)], progress=False)
    assert f"stopped at step 128; continue with: snowflake resume {tmp_path / 'cut'}" in capsys.readouterr().err
    assert Run.open(tmp_path / "cut").index()["last"] == 128
    assert_same(final_tensors(whole), final_tensors(resume(tmp_path / "cut", progress=False)))
    assert signal.getsignal(signal.SIGINT) is before


def test_resume_from_the_start_is_bit_equal(tmp_path) -> None:
    config = tiny_config(total_timesteps=128)
    whole = train(config, tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", callbacks=[StopAt(64)], progress=False)
    assert Run.open(tmp_path / "cut").index()["last"] == 0
    assert_same(final_tensors(whole), final_tensors(resume(tmp_path / "cut", progress=False)))


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("checkpoints/index.json", "[]", "is damaged"),
        ("checkpoints/index.json", '{"last": "x"}', "is damaged"),
        ("evaluations.jsonl", "rubbish\n", r"evaluations.jsonl:1 is damaged"),
    ],
)
def test_a_damaged_run_is_told_and_left_as_it_was(tmp_path, file, text, message) -> None:
    run = train(tiny_config(), tmp_path / "run", progress=False)
    (run.path / file).write_text(text)
    before = sorted((p, p.stat().st_mtime_ns) for p in run.path.rglob("*"))
    with pytest.raises(UserError, match=message):
        resume(run.path, total_timesteps=256, progress=False)
    assert sorted((p, p.stat().st_mtime_ns) for p in run.path.rglob("*")) == before


def test_resume_with_other_environments_is_refused(tmp_path) -> None:
    run = train(tiny_config(), tmp_path / "run", progress=False)
    config = (run.path / "config.yaml").read_text()
    (run.path / "config.yaml").write_text(config.replace("n_envs: 4", "n_envs: 8"))
    with pytest.raises(UserError, match=r"does not fit the run's config\.yaml"):
        resume(run.path, total_timesteps=256, progress=False)


def test_two_bodies_train_through_the_whole_loop(tmp_path) -> None:
    config = tiny_config(
        "snowflake",
        ("centipede-4", "centipede-6"),
        env={"max_episode_steps": 12},
        total_timesteps=192,
        evaluation={"eval_freq": 192},
    )
    run = train(config, tmp_path / "run", progress=False)
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    tags = set(events.Tags()["scalars"])
    assert {
        "rollout/centipede-4/ep_rew_mean",
        "rollout/centipede-6/ep_rew_mean",
        "eval/centipede-6/mean_reward",
    } <= tags
    assert all(e.value < 1e-5 for e in events.Scalars("snowflake/first_ratio_error"))
    assert all(np.isfinite(e.value) for tag in tags for e in events.Scalars(tag))


def test_padding_changes_nothing() -> None:
    """The log-probability, entropy and value of a body are the same alone and padded beside a larger one."""
    both = build(tiny_config("nervenet", ("centipede-4", "centipede-6")))
    alone = both.policy.for_bodies([both.policy.graphs[0]])
    obs = torch.as_tensor(both.env.reset())
    rows = obs[:, -1] == 0
    actions = torch.randn(4, both.policy.action_space.shape[0], generator=torch.Generator().manual_seed(0))
    log_prob, entropy = both.policy.action_log_prob(obs, actions)
    graph = both.policy.graphs[0]
    expected = alone.action_log_prob(obs[rows][:, : graph.obs_dim], actions[rows][:, : graph.act_dim])
    torch.testing.assert_close(log_prob[rows], expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy[rows], expected[1])
    actions[rows, graph.act_dim :] = 1e6  # what stands in the padding must not matter
    torch.testing.assert_close(both.policy.action_log_prob(obs, actions)[0][rows], expected[0], rtol=1e-5, atol=1e-5)


def test_tensorboard_tags(tmp_path) -> None:
    run = train(
        tiny_config(env={"max_episode_steps": 12}, evaluation={"eval_freq": 64}), tmp_path / "run", progress=False
    )
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    tags = set(events.Tags()["scalars"])
    expected = {
        f"train/{k}"
        for k in (
            "approx_kl",
            "clip_fraction",
            "clip_range",
            "entropy_loss",
            "explained_variance",
            "learning_rate",
            "loss",
            "n_updates",
            "policy_gradient_loss",
            "std",
            "value_loss",
        )
    }
    expected |= {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "rollout/centipede-4/ep_rew_mean",
        "time/fps",
        "time/fps_physics",
        "time/fps_inference",
        "time/fps_update",
        "eval/mean_reward",
        "eval/mean_ep_length",
        "reward/forward",
        "reward/ctrl",
        "reward/contact",
        "reward/survive",
    }
    expected |= {
        f"snowflake/{k}"
        for k in (
            "kl_batch",
            "first_ratio_error",
            "trainable_parameters",
            "frozen_parameters",
            "unstable_resets",
            "grad_norm",
            "grad_norm/update",
            "grad_norm/log_std",
        )
    }
    assert expected <= tags, expected - tags
    assert "snowflake/grad_norm/encoder" not in tags
    assert [e.value for e in events.Scalars("snowflake/frozen_parameters")] == [1056 + 12480 + 8385] * 2


@pytest.mark.parametrize(("bootstrap", "low", "high"), [(True, 9.0, 11.0), (False, 0.0, 6.6)])
def test_value_at_the_time_limit(monkeypatch, bootstrap: bool, low: float, high: float) -> None:
    """Reward 1 for ever, gamma 0.9, cut every 10 steps: the value tends to 10, and to less without the bootstrap."""
    config = tiny_config(
        "mlp",
        env={"n_envs": 16, "max_episode_steps": 10},
        ppo={
            "n_steps": 20,
            "batch_size": 320,
            "n_epochs": 10,
            "gamma": 0.9,
            "critic_learning_rate": 1e-2,
            "timelimit_bootstrap": bootstrap,
        },
    )
    algorithm = build(config)
    step_batch = algorithm.env.step_batch

    def constant_reward(actions):
        step = step_batch(np.zeros_like(actions))
        assert not step.terminated.any()
        step.rewards[:] = 1.0
        return step

    monkeypatch.setattr(algorithm.env, "step_batch", constant_reward)
    algorithm.learn(320 * 40)
    with torch.no_grad():
        values = algorithm.policy.predict_values(torch.as_tensor(algorithm.env.reset()))
    assert low < float(values.mean()) < high


def test_divergence_is_told_in_one_line_and_keeps_the_checkpoint(tmp_path) -> None:
    config = tiny_config(
        "nervenet",
        ppo={"learning_rate": 1000.0, "max_grad_norm": 1e9},
        total_timesteps=6400,
        evaluation={"checkpoint_freq": 64},
    )
    with pytest.raises(UserError, match="diverged at step"):
        train(config, tmp_path / "run", progress=False)
    kept = load_file(Run.open(tmp_path / "run").find_checkpoint("last") / "actor.safetensors")
    assert all(torch.isfinite(v).all() for v in kept.values())
