"""The dense path against PyTorch Geometric, in values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.nn import GCNConv

from snowflake.networks import NerveNetActor
from snowflake.networks.pyg_reference import NerveNetConv, PyGActor

MakeActor = Callable[..., NerveNetActor]
Observations = Callable[..., Tensor]


def batch(actor: NerveNetActor, rows: list[tuple[int, Tensor]]) -> Batch:
    return Batch.from_data_list([actor.graphs[k].to_data(row) for k, row in rows])


@pytest.mark.parametrize("aggregation", ["mean", "sum", "max"])
@pytest.mark.parametrize("name", ["centipede-6", "centipede-5", "centipede-6-crippled", "ant"])
def test_one_body(name: str, aggregation: str, make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor(name, aggregation=aggregation)
    actor.update_normalizer(1 + 2 * observations(actor.graphs[0], 50, seed=1), 0)
    obs = observations(actor.graphs[0], 6)
    data = batch(actor, [(0, row) for row in obs])
    mean, log_std = actor.distribution(obs, 0)
    reference = PyGActor(actor)
    torch.testing.assert_close(reference(data).view_as(mean), mean, atol=1e-5, rtol=0)
    assert torch.equal(reference.log_std(data), log_std.repeat(6))


@pytest.mark.parametrize("wiring", ["correct", "official"])
def test_batch_of_different_bodies(wiring: str, make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor("centipede-4", "centipede-6", "centipede-6-crippled", actuator_wiring=wiring)
    for k, graph in enumerate(actor.graphs):
        actor.update_normalizer(observations(graph, 30, seed=k), k)
    obs = [observations(graph, 3, seed=9) for graph in actor.graphs]
    rows = [(k, obs[k][i]) for i in range(3) for k in range(3)]
    together = PyGActor(actor)(batch(actor, rows))
    alone = torch.cat([actor.distribution(row[None], k)[0][0] for k, row in rows])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_gradients(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor("centipede-4", "centipede-6").double()
    obs = [observations(graph, 2).double() for graph in actor.graphs]
    data = batch(actor, [(k, row) for k in range(2) for row in obs[k]])
    data.x_root, data.x_joint = data.x_root.double(), data.x_joint.double()
    parameters = [p for name, p in actor.named_parameters() if name != "log_std"]

    def gradients(mean: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(mean.sin().sum(), parameters)

    fast = gradients(torch.cat([actor.distribution(obs[k], k)[0].reshape(-1) for k in range(2)]))
    reference = gradients(PyGActor(actor)(data))
    assert all(gradient.any() for gradient in reference)
    for a, b in zip(fast, reference, strict=True):
        # the dense path keeps its averaging matrix, with its 1/3, in float32
        torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-6)


def test_parameters_are_shared(make_actor: MakeActor) -> None:
    actor = make_actor("centipede-4")
    assert {id(p) for p in PyGActor(actor).parameters()} == {id(p) for p in actor.parameters()}
    assert repr(NerveNetConv(actor)).startswith("NerveNetConv(")


def test_another_convolution_takes_the_place_of_ours(make_actor: MakeActor, observations: Observations) -> None:
    actor = make_actor("centipede-4")
    conv = GCNConv(64, 64)
    data = batch(actor, [(0, row) for row in observations(actor.graphs[0], 2)])
    mean = PyGActor(actor, conv)(data)
    assert mean.shape == (20,)
    mean.sum().backward()
    assert conv.lin.weight.grad is not None
    assert actor.update.joint.message.weight.grad is None
    assert not torch.allclose(mean, PyGActor(actor)(data))
