"""A flat actor on another body: the same on its own, weights where they belong on a larger one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import agents
from agents.errors import UserError
from envs.observation import paper_layout
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks import MLPActor, map_mlp
from snowflake.networks.mlp_transfer import NEW, corresponding_columns, corresponding_controls

GraphOf = Callable[[str], MorphologyGraph]


def actor_of(graph: MorphologyGraph, seed: int = 0) -> MLPActor:
    """An actor with a log-std of its own at every actuator, and statistics of its own in every column."""
    config = PolicyConfig(network="mlp", hidden_size=8)
    actor = MLPActor([graph], config, torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        actor.log_std.copy_(torch.randn(graph.act_dim, generator=generator))
        actor.output.bias.copy_(torch.randn(graph.act_dim, generator=generator))
    actor.update_normalizer(3.0 * torch.randn(50, graph.obs_dim, generator=generator) + 1.0)
    return actor


def moved(source: MLPActor, graph: MorphologyGraph) -> MLPActor:
    actor = MLPActor([graph], source.config, torch.Generator().manual_seed(9))
    actor.load_state_dict(map_mlp(source.state_dict(), source.graphs[0], graph), strict=True)
    return actor


@pytest.mark.parametrize("body", ["centipede-6", "centipede-6-crippled", "ant"])
def test_to_its_own_body_is_the_identity(graph_of: GraphOf, body: str) -> None:
    graph = graph_of(body)
    actor = actor_of(graph)
    same = moved(actor, graph)
    for name, value in actor.state_dict().items():
        assert torch.equal(value, same.state_dict()[name]), name
    obs = torch.randn(5, graph.obs_dim)
    for one, other in zip(actor.distribution(obs), same.distribution(obs), strict=True):
        assert torch.equal(one, other)


def test_columns_and_controls_correspond_by_name_on_centipedes(graph_of: GraphOf) -> None:
    """On Centipedes class and rank say what the names say: the map is that of equal column and actuator names."""
    small, large = (agents.load(name).compile() for name in ("centipede-4", "centipede-6"))
    names = paper_layout(small).names
    expected = [names.index(name) if name in names else NEW for name in paper_layout(large).names]
    found = corresponding_columns(graph_of("centipede-4"), graph_of("centipede-6"))
    # The root observes the first torso, so nothing else may stand in for what only the larger body has.
    assert found == expected
    assert 0 < found.count(NEW) < len(found)
    motors = [small.actuator(i).name for i in range(small.nu)]
    wanted = [large.actuator(i).name for i in range(large.nu)]
    controls = corresponding_controls(graph_of("centipede-4"), graph_of("centipede-6"))
    assert controls == [motors.index(name) if name in motors else NEW for name in wanted]
    back = corresponding_columns(graph_of("centipede-6"), graph_of("centipede-4"))
    assert [found[column] for column in back] == list(range(len(names)))


def test_new_inputs_count_nothing_and_new_actuators_rest(graph_of: GraphOf) -> None:
    small, large = graph_of("centipede-4"), graph_of("centipede-6")
    source, columns = actor_of(small), np.array(corresponding_columns(small, large))
    controls = np.array(corresponding_controls(small, large))
    target = moved(source, large)
    old, new = np.flatnonzero(columns != NEW), np.flatnonzero(columns == NEW)
    weight, weights = source.hidden.linears()[0].weight, target.hidden.linears()[0].weight
    assert torch.equal(weights[:, old], weight[:, columns[old]])
    assert not weights[:, new].any()
    assert torch.equal(target.normalizer.mean[:, old], source.normalizer.mean[:, columns[old]])
    assert (target.normalizer.mean[:, new].unique().tolist(), target.normalizer.var[:, new].unique().tolist()) == (
        [0.0],
        [1.0],
    )
    # The same state of what both have gives the same action, whatever the rest observes.
    obs = torch.randn(7, large.obs_dim)
    own = torch.zeros(7, small.obs_dim)
    own[:, columns[old]] = obs[:, old]
    (mean, log_std), (small_mean, small_log_std) = target.distribution(obs), source.distribution(own)
    kept, added = np.flatnonzero(controls != NEW), np.flatnonzero(controls == NEW)
    torch.testing.assert_close(mean[:, kept], small_mean[:, controls[kept]], rtol=0, atol=1e-6)
    assert len(added) == large.act_dim - small.act_dim
    assert not mean[:, added].any()
    assert torch.equal(log_std[kept], small_log_std[controls[kept]])
    kinds, small_kinds = large.node_class[large.output_node], small.node_class[small.output_node]
    for actuator in added:
        expected = small_log_std[np.flatnonzero(small_kinds == kinds[actuator])].mean()
        torch.testing.assert_close(log_std[actuator], expected)


def test_other_node_classes_are_refused(graph_of: GraphOf) -> None:
    with pytest.raises(UserError, match="node classes differ"):
        map_mlp(actor_of(graph_of("centipede-4")).state_dict(), graph_of("centipede-4"), graph_of("ant"))
