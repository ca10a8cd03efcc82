"""Another order of siblings is what a file with that order compiles to; it moves a flat policy, not a graph policy."""

from __future__ import annotations

import json
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from agents import load
from envs.observation import general_layout, paper_layout
from envs.robot import find_robot
from snowflake.config import PolicyConfig
from snowflake.evaluation.controllers import policy_controller
from snowflake.evaluation.extras import settings_of
from snowflake.evaluation.measure import measure_policy, measure_siblings
from snowflake.evaluation.prepare import base_settings
from snowflake.evaluation.siblings import Reordered, SiblingOrders, _shuffled_bodies, reorder_siblings
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.policy import GraphActorCriticPolicy
from snowflake.run import Run

CHILDREN = {"torso": ["a", "b", "c", "tail"], "a": ["a1", "a2"], "b": ["b1"], "c": [], "tail": []}
SIZES = {name: 0.05 + 0.01 * k for k, name in enumerate(["torso", "a", "b", "c", "tail", "a1", "a2", "b1"])}


def mjcf(rank: dict[str, int]) -> str:
    """A torso with three legs and a tail without a joint, the children of each body by their rank."""

    def body(name: str) -> str:
        joint = '<freejoint name="root"/>' if name == "torso" else f'<joint name="{name}" axis="0 1 0" range="-60 60"/>'
        inner = "".join(map(body, sorted(CHILDREN.get(name, []), key=rank.__getitem__)))
        own = "" if name == "tail" else joint
        return f'<body name="{name}" pos="{SIZES[name]} 0 .3">{own}<geom size="{SIZES[name]}"/>{inner}</body>'

    motors = "".join(f'<motor joint="{name}" ctrlrange="-1 1" ctrllimited="true"/>' for name in ("b", "a", "a2", "c"))
    return (
        f'<mujoco><compiler autolimits="true"/><worldbody><geom type="plane" size="9 9 1"/>{body("torso")}</worldbody>'
        f"<actuator>{motors}</actuator></mujoco>"
    )


def graph_and_layout(model: mujoco.MjModel, features: str) -> tuple[MorphologyGraph, Any]:
    layout = paper_layout(model) if features == "paper" else general_layout(model, find_robot(model))
    return build_graph(model, layout), layout


@pytest.mark.parametrize("features", ["paper", "general"])
def test_the_new_graph_is_that_of_the_file_in_the_new_order(features: str) -> None:
    model = mujoco.MjModel.from_xml_string(mjcf({name: k for k, name in enumerate(SIZES)}))
    graph, layout = graph_and_layout(model, features)
    moved = 0
    for seed in range(6):
        order = _shuffled_bodies(model, np.random.default_rng(seed))
        other = mujoco.MjModel.from_xml_string(mjcf({model.body(b).name: k for k, b in enumerate(order)}))
        assert [other.body(k).name for k in range(other.nbody)] == [model.body(b).name for b in order]
        expected, their_layout = graph_and_layout(other, features)
        found, columns = reorder_siblings(graph, model, layout, np.random.default_rng(seed))
        assert tuple(layout.names[column] for column in columns) == their_layout.names
        for name, value in json.loads(expected.to_json()).items():
            mine = json.loads(found.to_json())[name]
            if name == "edge_index":
                assert sorted(zip(*mine, strict=True)) == sorted(zip(*value, strict=True))
            elif name.endswith(("static", "weight")):
                np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-6)
            else:
                assert mine == value, name
        moved += not np.array_equal(columns, np.arange(layout.size))
    assert moved >= 4


@pytest.mark.parametrize("network", ["nervenet", "mlp"])
def test_a_graph_policy_acts_the_same_in_every_order(run: Any, network: str) -> None:
    env = run.make_env(load("centipede-6"), 5)
    obs = np.array(env.reset(seed=list(range(5)))[0])
    env.close()
    graph = run.graph_of(load("centipede-6"))
    config = PolicyConfig(network=network, hidden_size=8, propagation_steps=2)
    policy = GraphActorCriticPolicy.for_graphs([graph], config)
    policy.update_normalizers(torch.as_tensor(obs))
    if network == "mlp":
        with torch.no_grad():
            policy.actor.output.weight.mul_(100.0)
    own = policy_controller(policy)(obs)
    changes = []
    for seed in range(4):
        other, columns = reorder_siblings(graph, env.model, env.layout, np.random.default_rng(seed))
        moved = policy.for_bodies([other], mlp_transfer=True)
        changes.append(np.abs(Reordered(policy_controller(moved), columns)(obs) - own).max())
        # Negative control: with the columns left where they were, the graph policy is wrong.
        assert np.abs(policy_controller(moved)(obs) - own).max() > 1e-4
    assert max(changes) < 1e-5 if network == "nervenet" else max(changes) > 1e-2


@pytest.mark.parametrize("kind", ["graph", "flat"])
def test_measured_over_orders(run: Run, flat: Run, kind: str) -> None:
    """A graph policy loses nothing at all, to the last bit; a flat one gets other returns."""
    one = run if kind == "graph" else flat
    policy, settings = one.load_policy(), settings_of(one, base_settings(3, 5, 1, None))
    if kind == "flat":
        with torch.no_grad():
            policy.actor.output.weight.mul_(100.0)
    found = measure_siblings(policy, 0, one.morphologies[0], settings, orders=3, mlp_transfer=kind == "flat")
    assert found.returns.shape == found.action_change.shape == (3,)
    if kind == "graph":
        assert found.action_change.tolist() == found.drops.tolist() == [0.0] * 3
        table = measure_policy(policy, 0, one.morphologies[0], settings)["mean_action"][0].returns.mean()
        assert found.original == pytest.approx(table, rel=0.02)
    else:
        assert np.abs(found.drops).max() > 1.0


def test_drops_by_hand() -> None:
    orders = SiblingOrders(-50.0, np.array([-60.0, -50.0, -40.0, -100.0]), np.zeros(4))
    assert orders.drops.tolist() == [20.0, 0.0, -20.0, 100.0]
    assert orders.worst_decile == pytest.approx(76.0)  # 0.7 of the way from 20 to 100
    assert np.isnan(SiblingOrders(0.0, np.ones(2), np.zeros(2)).drops).all()
