"""Freezing by component: what moves, what does not, and what is refused."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch

import agents
from agents.errors import UserError
from envs.observation import paper_layout
from snowflake.config.policy import PolicyConfig
from snowflake.freezing import FrozenBytes, freeze, rows, table, trainable_parameters
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.networks import Actor, build_actor, build_critic

SNOWFLAKE = ("encoder", "message", "decoder")


@cache
def graph() -> MorphologyGraph:
    morphology = agents.load("centipede-4")
    model = morphology.compile()
    return build_graph(model, paper_layout(model), morphology.node_class(model), morphology.name)


def make(**config: object) -> Actor:
    return build_actor([graph()], PolicyConfig(**config), torch.Generator().manual_seed(0))  # type: ignore[arg-type]


def step(actor: Actor, optimizer: torch.optim.Optimizer) -> None:
    mean, log_std = actor.distribution(torch.randn(8, graph().obs_dim), 0)
    (mean.square().mean() + log_std.sum()).backward()
    optimizer.step()


def count(actor: Actor) -> int:
    return sum(p.numel() for p in trainable_parameters(actor))


def test_snowflake_trains_the_update_alone() -> None:
    actor = make()
    freeze(actor, SNOWFLAKE)
    assert count(actor) == 49_536 + 6
    assert rows(actor) == [
        ("encoder", 1_056, False),
        ("message", 12_480, False),
        ("update", 49_536, True),
        ("decoder", 8_385, False),
        ("log_std", 6, True),
    ]
    per_actuator = make(log_std="per_actuator")
    freeze(per_actuator, SNOWFLAKE)
    assert count(per_actuator) == 49_536 + 10


def test_node_table_can_stay_trainable() -> None:
    actor = make()
    freeze(actor, SNOWFLAKE, train_node_table=True)
    assert count(actor) == 49_728 + 6
    assert rows(actor)[:2] == [("encoder (root, joint)", 864, False), ("encoder (table)", 192, True)]
    assert sum(row.parameters for row in rows(actor)) == 71_457 + 6


def test_frozen_bytes_do_not_move_and_all_others_do() -> None:
    actor = make()
    free = copy.deepcopy(actor)
    # even an optimiser that holds everything, after a step that left gradients and moments behind
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
    step(actor, optimizer)
    freeze(actor, SNOWFLAKE)
    frozen = FrozenBytes(actor)
    before = {name: p.detach().clone() for name, p in actor.named_parameters()}
    for _ in range(3):
        step(actor, optimizer)
    assert frozen.changed() == []
    frozen.assert_unchanged()
    moved = {name for name, p in actor.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name, p in actor.named_parameters() if p.requires_grad}
    assert all(p.requires_grad for p in free.parameters())


def test_a_frozen_parameter_that_moves_is_named() -> None:
    actor = make()
    freeze(actor, ["decoder"])
    frozen = FrozenBytes(actor)
    weight = dict(actor.named_parameters())["decoder.layers.1.weight"]
    with torch.no_grad():
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(torch.inf))
        next(iter(actor.component_parameters("update").values())).zero_()
    assert frozen.changed() == ["decoder.layers.1.weight"]
    with pytest.raises(RuntimeError, match=r"have changed: decoder\.layers\.1\.weight"):
        frozen.assert_unchanged()


def test_gradients_are_cleared() -> None:
    actor = make()
    step(actor, torch.optim.SGD(actor.parameters(), lr=0.0))
    freeze(actor, ["message"])
    assert all(p.grad is None for p in actor.component_parameters("message").values())
    assert all(p.grad is not None for p in actor.component_parameters("update").values())


def test_freezing_nothing_changes_nothing() -> None:
    actor = make()
    freeze(actor, ())
    assert count(actor) == 71_457 + 6
    assert FrozenBytes(actor).changed() == []


def test_other_networks_freeze_by_their_own_components() -> None:
    actor = make(network="mlp")
    freeze(actor, ["hidden"])
    assert [row.component for row in rows(actor) if row.trainable] == ["output", "log_std"]
    critic = build_critic([graph()], PolicyConfig(critic="graph"), torch.Generator().manual_seed(0))
    freeze(critic, ["message"])
    assert sum(p.numel() for p in trainable_parameters(critic)) == 71_457 - 12_480


def test_mistakes_are_refused_and_change_nothing() -> None:
    actor = make()
    with pytest.raises(UserError, match=r"NerveNetActor has no component 'mesage': did you mean 'message'"):
        freeze(actor, ["encoder", "mesage"])
    with pytest.raises(UserError, match=r"no component 'hidden': .*encoder, message, update, decoder, log_std"):
        freeze(actor, ["hidden"])
    with pytest.raises(UserError, match="leaves NerveNetActor nothing to train"):
        freeze(actor, actor.components)
    with pytest.raises(UserError, match="MLPActor has no node-class table"):
        freeze(make(network="mlp"), ["hidden"], train_node_table=True)
    assert all(p.requires_grad for p in actor.parameters())


def test_freezing_the_rest_later_is_refused_too() -> None:
    actor = make()
    freeze(actor, SNOWFLAKE)
    with pytest.raises(UserError, match="nothing to train"):
        freeze(actor, ["update", "log_std"])


def test_table_shows_counts_and_totals() -> None:
    actor = make()
    freeze(actor, SNOWFLAKE)
    lines = [line.split() for line in table(actor).splitlines()]
    assert lines[0] == ["component", "parameters", "state"]
    assert ["message", "12,480", "frozen"] in lines
    assert lines[-2:] == [["total", "49,542", "trainable"], ["total", "21,921", "frozen"]]
