"""The share outside the range of training, from statistics made for it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from snowflake.config import PolicyConfig
from snowflake.evaluation.controllers import policy_controller
from snowflake.evaluation.range_share import RangeCounter
from snowflake.evaluation.rollout import evaluate
from snowflake.networks.normalizer import RunningNorm, SlotNorm
from snowflake.policy import GraphActorCriticPolicy


def constant_policy(run: Any, network: str) -> GraphActorCriticPolicy:
    """A policy whose statistics say mean 0, variance 1 of every input."""
    config = PolicyConfig(network=network, hidden_size=8, propagation_steps=1)
    policy = GraphActorCriticPolicy.for_graphs(run.graphs, config)
    for module in policy.actor.modules():
        if isinstance(module, RunningNorm):
            module.count.fill_(10.0)
            module.refresh()
    return policy


def test_outside_is_where_forward_cuts() -> None:
    norm = RunningNorm(2, 3)
    norm.mean[0], norm.var[0], norm.count[0] = 1.0, 4.0, 9.0
    norm.refresh()
    x = torch.tensor([[11.1, 10.9, -9.1]])  # 5.05, 4.95 and -5.05 standard deviations
    assert norm.outside(x).tolist() == [[True, False, True]]
    assert (norm(x).abs() == 5.0).tolist() == [[True, False, True]]
    assert not norm.outside(1e6 * x, 1).any()  # no data, no range
    slots = SlotNorm(1, 2)
    slots.mean.fill_(100.0), slots.count.fill_(5.0)
    slots.refresh()
    here = torch.tensor([[True, False]])
    assert slots.outside(torch.zeros(1, 1, 2), torch.zeros(1, dtype=torch.long), here).tolist() == [[[True, False]]]


def test_share_by_hand(run: Any) -> None:
    """Two episodes of 2 and 4 steps; a column of the first joint and one of the root lie far outside in every step."""
    policy, graph = constant_policy(run, "nervenet"), run.graphs[0]
    obs = np.zeros((2, graph.obs_dim), np.float32)
    joint = int(graph.joint_columns[0, 0])
    obs[:, joint], obs[0, int(graph.root_columns[0])] = 9.0, -9.0
    controller = policy_controller(policy)
    plain = controller(obs)
    with RangeCounter(policy, 0, 2) as counter:
        for step in range(4):
            assert np.array_equal(controller(obs), plain)
            live = np.arange(2) if step < 2 else np.array([1])
            counter(live, live)
    controller(obs)  # not counted any more
    share = counter.result()
    width = len(graph.root_columns) + graph.joint_columns.size
    assert share.cut.tolist() == [2 * 2, 4]
    assert share.entries.tolist() == [2 * width, 4 * width]
    assert share.share == 8 / (6 * width)
    assert share.of_episode(1) == 1 / width
    kind = graph.vocabulary[graph.node_class[1]]
    same = int((graph.node_class == graph.node_class[1]).sum()) * graph.joint_columns.shape[1]
    assert share.parts["root"] == (2, 6 * len(graph.root_columns))
    assert share.parts[kind] == (6, 6 * same)
    assert sum(entries for _, entries in share.parts.values()) == 6 * width


def test_a_flat_policy_has_one_part(run: Any) -> None:
    policy = constant_policy(run, "mlp")
    obs = np.zeros((1, run.graphs[0].obs_dim), np.float32)
    obs[0, :3] = 7.0
    with RangeCounter(policy, 0, 1) as counter:
        policy_controller(policy)(obs)
        counter(np.array([0]), np.array([0]))
    assert counter.result().parts == {"observation": (3, run.graphs[0].obs_dim)}


def test_counting_leaves_the_episodes_as_they_are(run: Any, monkeypatch: Any) -> None:
    """Over a whole evaluation: as many entries as steps, the same episodes, in every batch of environments."""
    monkeypatch.setattr("snowflake.evaluation.rollout.MAX_ENVS", 2)
    policy, body = run.load_policy(), run.morphologies[0]
    settings: dict[str, Any] = {"episodes": 5, "seed": 3, "max_episode_steps": 30}
    make_env = partial(run.make_env, body)
    controller = policy_controller(policy, deterministic=True)
    plain = evaluate(controller, body, **settings, make_env=make_env)
    with RangeCounter(policy, 0, 5) as counter:
        counted = evaluate(controller, body, **settings, make_env=make_env, watch=counter)
    np.testing.assert_array_equal(plain.returns, counted.returns)
    width = len(run.graphs[0].root_columns) + run.graphs[0].joint_columns.size
    np.testing.assert_array_equal(counter.result().entries, counted.lengths * width)
