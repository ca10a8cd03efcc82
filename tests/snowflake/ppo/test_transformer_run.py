"""Runs of the limb transformer: trained, logged, resumed, evaluated, moved to other bodies."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import snowflake
from agents.errors import UserError
from snowflake.cli import main
from snowflake.config.attention import AttentionConfig
from snowflake.config.attention_presets import VARIANTS
from snowflake.freezing import FrozenBytes
from snowflake.ppo.activations import measure_activations
from snowflake.ppo.train import build, resume, train
from snowflake.ppo.update import PPOUpdate, UpdateSettings
from snowflake.run import Run, graph_of
from tests.snowflake.ppo.helpers import tiny_config
from tests.snowflake.ppo.test_train import StopAt, assert_same, final_tensors
from tests.snowflake.ppo.test_update import filled_buffer

SMALL = {"network": "transformer", "hidden_size": 8, "attention": AttentionConfig(layers=2)}


def config_of(*agents: str, **changes):
    policy = SMALL | changes.pop("policy", {})
    return tiny_config("nervenet", agents or ("centipede-4",), policy=policy, **changes)


@pytest.mark.parametrize(
    ("agents", "policy"),
    [
        (("centipede-4",), {}),
        (("centipede-4", "centipede-6"), {"critic": "transformer"}),
        (("hopper",), {"attention": AttentionConfig(layers=1, qk_source="context", position="index", norm="qkv")}),
    ],
)
def test_training_stopped_and_resumed_is_bit_equal(tmp_path, agents, policy) -> None:
    config = config_of(*agents, policy=policy, total_timesteps=192, evaluation={"checkpoint_freq": 64})
    whole = train(config, tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", callbacks=[StopAt(128)], progress=False)
    assert_same(final_tensors(whole), final_tensors(resume(tmp_path / "cut", progress=False)))
    assert Run.open(whole.path).config.policy == config.policy


def test_from_the_command_line_to_another_body(tmp_path, capsys) -> None:
    run = tmp_path / "run"
    flags = "--agents centipede-4 --method transformer --hidden-size 8 --attn-layers 1 --attn-variant qk_cap"
    flags += " --n-envs 4 --n-steps 16 --batch-size 32 --n-epochs 1 --total-timesteps 128 --torch-threads 1"
    flags += f" --max-episode-steps 20 --eval-freq 0 --run {run}"
    assert main(["train", *flags.split()]) == 0
    assert "snowflake transfer" in capsys.readouterr().out
    assert main(["evaluate", str(run), "--episodes", "2"]) == 0
    assert main(["transfer", str(run), "--to", "centipede-6", "--episodes", "2"]) == 0
    text = json.dumps([json.loads(file.read_text()) for file in run.rglob("transfer*.json")])
    assert "centipede-6" in text
    policy = snowflake.load(run)
    action, _ = policy.predict(np.zeros(policy.observation_space.shape, np.float32), deterministic=True)
    assert action.shape == policy.action_space.shape
    assert main(["transfer", str(run), "--to", "ant", "--episodes", "1"]) == 2
    assert "error" in capsys.readouterr().err


def test_positions_hold_transfer_to_longer_bodies_back(tmp_path) -> None:
    attention = AttentionConfig(layers=1, position="index")
    policy = train(config_of(policy={"attention": attention}), tmp_path / "run", progress=False).load_policy("last")
    bodies = (build(config_of(name)).env.vector_env.body_envs[0] for name in ("centipede-3", "centipede-6"))
    short, long = (graph_of(body) for body in bodies)
    assert policy.for_bodies([short]).graphs[0].num_nodes < policy.graphs[0].num_nodes
    with pytest.raises(UserError, match=f"knows the positions of {policy.graphs[0].num_nodes} nodes"):
        policy.for_bodies([long])


@pytest.mark.parametrize("frozen", [("encoder",), ("attention", "feedforward"), ("encoder", "decoder", "feedforward")])
def test_frozen_components_keep_their_bytes(frozen) -> None:
    algorithm = build(config_of(policy={"freeze": frozen}))
    actor = algorithm.policy.actor
    snapshot, before = FrozenBytes(actor), {name: p.detach().clone() for name, p in actor.named_parameters()}
    algorithm.learn(128)
    assert snapshot.changed() == []
    moved = {name.split(".")[0] for name, p in actor.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"encoder", "attention", "feedforward", "decoder", "log_std"} - set(frozen)
    held = {id(p) for group in algorithm.policy.optimizer.param_groups for p in group["params"]}
    assert all(id(p) not in held for name, p in actor.named_parameters() if name.split(".")[0] in frozen)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("agents", [("centipede-4",), ("centipede-4", "centipede-6")])
def test_the_first_minibatch_has_ratio_one(name, agents) -> None:
    algorithm = build(config_of(*agents, policy={"attention": AttentionConfig(**VARIANTS[name])}))
    buffer = filled_buffer(algorithm)
    settings = UpdateSettings(32, n_epochs=1, clip_range=0.2, ent_coef=0.0, max_grad_norm=5.0, target_kl=None)
    statistics = PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(0)).run(buffer)
    assert statistics["first_ratio_error"] < 1e-5
    assert all(math.isfinite(value) for value in statistics.values())


def scalars(run: Run) -> dict[str, list[int]]:
    accumulator = EventAccumulator(str(run.path / "tensorboard"))
    accumulator.Reload()
    return {tag: [event.step for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def test_activations_are_logged_at_their_period_and_training_does_not_notice(tmp_path) -> None:
    runs = {
        every: train(
            config_of("centipede-4", "centipede-3", ppo={"activations_every": every}, total_timesteps=192),
            tmp_path / str(every),
            progress=False,
        )
        for every in (0, 2)
    }
    assert_same(final_tensors(runs[0]), final_tensors(runs[2]))
    off, on = scalars(runs[0]), scalars(runs[2])
    mine = {tag for tag in on if tag.startswith(("act/", "attn/"))}
    assert set(on) - mine == set(off)
    assert on["act/actor/L1/qkv/y_rms"] == on["attn/actor/L0/entropy"] == [64, 192]  # of three updates
    assert not any("critic" in tag for tag in mine)  # a graph critic has no attention
    layers = ("qkv/x_rms", "qkv/q_rms", "qkv/k_rms", "qkv/v_rms", "proj/y_rms", "fc1/y_l2", "fc2/y_rms")
    assert {f"act/actor/L{i}/{layer}" for i in (0, 1) for layer in layers} <= mine
    kinds = ("logit_absmax", "logit_std", "entropy", "root_mass", "dist_mean")
    assert {f"attn/actor/L{i}/{kind}" for i in (0, 1) for kind in kinds} <= mine


def test_actor_and_critic_are_measured_apart_and_others_not_at_all() -> None:
    algorithm = build(config_of(policy={"critic": "transformer"}))
    obs = torch.randn(50, algorithm.observation_space.shape[0], generator=torch.Generator().manual_seed(0))
    tags = measure_activations(algorithm.policy, obs, 20, seed=3)
    assert tags == measure_activations(algorithm.policy, obs, 20, seed=3)
    for kind in ("act", "attn"):
        names = {tag.split("/", 2)[2] for tag in tags if tag.startswith(f"{kind}/actor/")}
        assert names == {tag.split("/", 2)[2] for tag in tags if tag.startswith(f"{kind}/critic/")}
        assert names
    other = build(tiny_config("nervenet", policy={"hidden_size": 8}))
    assert measure_activations(other.policy, obs, 20, seed=3) == {}
