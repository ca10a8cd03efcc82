"""The log standard deviation: its two forms, and its way to another body."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from agents.errors import UserError
from snowflake.graph import MorphologyGraph
from snowflake.networks import NerveNetActor, map_log_std

GraphOf = Callable[[str], MorphologyGraph]
MakeActor = Callable[..., NerveNetActor]


def log_std_of(actor: NerveNetActor) -> list[float]:
    obs = torch.zeros(1, actor.graphs[0].obs_dim)
    return [round(value, 5) for value in actor.distribution(obs, 0)[1].tolist()]


def test_per_class_is_looked_up_by_the_actuators_joint(make_actor: MakeActor) -> None:
    actor = make_actor("centipede-4", log_std_init=-0.7)
    assert log_std_of(actor) == [-0.7] * 10
    with torch.no_grad():
        actor.log_std.copy_(torch.arange(6.0))
    # lefthip 1, ankle 2, righthip 3, ankle 2; then the second segment's legs, body 4, bodyupdown 5
    assert log_std_of(actor) == [1, 2, 3, 2, 1, 2, 3, 2, 4, 5]


def test_per_actuator_serves_one_body(make_actor: MakeActor) -> None:
    actor = make_actor("centipede-4", log_std="per_actuator")
    with torch.no_grad():
        actor.log_std.copy_(torch.arange(10.0))
    assert log_std_of(actor) == list(range(10))
    with pytest.raises(UserError, match=r"per_actuator.*serves one body, not centipede-4, centipede-6.*per_class"):
        make_actor("centipede-4", "centipede-6", log_std="per_actuator")


def test_mapping_takes_the_mean_over_the_class(make_actor: MakeActor) -> None:
    source = make_actor("centipede-4", log_std="per_actuator")
    with torch.no_grad():
        source.log_std.copy_(torch.arange(10.0))
    target = make_actor("centipede-6", log_std="per_actuator", seed=1)
    target.load_state_dict(map_log_std(source.state_dict(), source.graphs[0], target.graphs[0]), strict=True)
    lefthip, ankle, righthip, body, bodyupdown = 2.0, 4.0, 4.0, 8.0, 9.0
    segment = [lefthip, ankle, righthip, ankle]
    assert log_std_of(target) == segment + 2 * [*segment, body, bodyupdown]
    assert torch.equal(target.encoder.table, source.encoder.table)
    assert source.log_std.tolist() == list(range(10))


def test_a_class_that_the_source_lacks_gets_the_mean_over_all(make_actor: MakeActor, graph_of: GraphOf) -> None:
    # the last segment of an odd Centipede is passive, so Centipede-3 drives no spine joint
    source = make_actor("centipede-3", log_std="per_actuator")
    with torch.no_grad():
        source.log_std.copy_(torch.arange(6.0))
    target = graph_of("centipede-4")
    mapped = map_log_std(source.state_dict(), source.graphs[0], target)["log_std"]
    assert mapped[8:].tolist() == [2.5, 2.5]
    assert mapped[0] == 2.0  # left hips 0 and 2 carry 0 and 4


def test_mapping_refuses_what_is_not_per_actuator(make_actor: MakeActor, graph_of: GraphOf) -> None:
    source = make_actor("centipede-6")
    with pytest.raises(UserError, match=r"shape.*centipede-6.*not a per-actuator one"):
        map_log_std(source.state_dict(), source.graphs[0], graph_of("centipede-4"))
    with pytest.raises(UserError, match="node classes differ"):
        map_log_std(source.state_dict(), source.graphs[0], graph_of("ant"))
