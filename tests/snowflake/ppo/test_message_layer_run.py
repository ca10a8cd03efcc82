"""A run whose messages are a convolution of PyTorch Geometric: trained, resumed, played on other bodies."""

from __future__ import annotations

import pytest
import torch

from agents.errors import UserError
from snowflake.config import loader
from snowflake.ppo.train import build, resume, train
from snowflake.run import Run, graph_of
from tests.snowflake.ppo.helpers import tiny_config
from tests.snowflake.ppo.test_train import StopAt, assert_same, final_tensors

CONV = {"hidden_size": 8, "propagation_steps": 1, "message_layer": "GATv2Conv", "message_layer_args": {"heads": 1}}


@pytest.mark.parametrize("agents", [("centipede-4",), ("centipede-4", "centipede-6")])
def test_training_stopped_and_resumed_is_bit_equal(tmp_path, agents) -> None:
    config = tiny_config("nervenet", agents, policy=CONV, total_timesteps=192, evaluation={"checkpoint_freq": 64})
    whole = train(config, tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", callbacks=[StopAt(128)], progress=False)
    assert_same(final_tensors(whole), final_tensors(resume(tmp_path / "cut", progress=False)))
    assert Run.open(whole.path).config.policy == config.policy  # the arguments too
    start = build(config).policy.actor.state_dict()
    policy = Run.open(whole.path).load_policy("last")
    assert not torch.equal(policy.actor.state_dict()["message.conv.att"], start["message.conv.att"])
    other = build(tiny_config(agents=("centipede-8",))).env.vector_env.body_envs[0]
    moved = policy.for_bodies([graph_of(other)])
    for name, tensor in policy.actor.state_dict().items():
        assert torch.equal(moved.actor.state_dict()[name], tensor), name
    obs = torch.zeros(3, moved.graphs[0].obs_dim)
    assert moved.act(obs, deterministic=True)[0].shape == (3, 22)


def test_frozen_convolution_keeps_its_bytes() -> None:
    algorithm = build(tiny_config("snowflake", policy=CONV))
    before = {name: p.detach().clone() for name, p in algorithm.policy.actor.named_parameters()}
    algorithm.learn(128)
    moved = {n.split(".")[0] for n, p in algorithm.policy.actor.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {"update", "log_std"}


def test_a_convolution_that_cannot_serve_leaves_no_run_behind(tmp_path) -> None:
    config = tiny_config("nervenet", policy=CONV | {"message_layer_args": {"heads": 2}})
    with pytest.raises(UserError, match="GATv2Conv"):
        train(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_arguments_in_yaml_are_replaced_as_a_whole_and_have_no_flag(tmp_path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("policy: {message_layer: GATv2Conv, message_layer_args: {heads: 1, negative_slope: 0.1}}\n")
    second.write_text("policy: {message_layer: GCNConv, message_layer_args: {improved: true}}\n")
    assert loader.resolve(None, [first]).policy.message_layer_args == {"heads": 1, "negative_slope": 0.1}
    assert loader.resolve(None, [first, second]).policy.message_layer_args == {"improved": True}
    from snowflake.cli.train import parse_train

    config, _ = parse_train(["--config", str(first), "--n-envs", "8"])
    assert config.policy.message_layer_args == {"heads": 1, "negative_slope": 0.1}
    assert parse_train(["--message-layer", "GCNConv"])[0].policy.message_layer == "GCNConv"
    with pytest.raises(UserError, match="unknown option --message-layer-args"):
        parse_train(["--message-layer-args", "heads", "1"])
    second.write_text("policy: {message_layer: GCNConv, message_layer_args: [1]}\n")
    with pytest.raises(UserError, match=r"b.yaml:1: policy.message_layer_args wants names and values, has \[1\]"):
        loader.resolve(None, [second])
