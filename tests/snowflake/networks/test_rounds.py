"""The hand-written rounds of messages against autograd."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from snowflake.config.policy import PolicyConfig
from snowflake.freezing import freeze
from snowflake.graph import MorphologyGraph
from snowflake.networks import Actor, NerveNetActor, rounds
from snowflake.networks.native.library import library
from snowflake.policy import GraphActorCriticPolicy
from tests.snowflake.graph.models import from_xml
from tests.snowflake.networks.test_general_body import TOYS

SNOWFLAKE = ("encoder", "message", "decoder")
CASES: dict[str, dict[str, object]] = {
    "snowflake": {"freeze": SNOWFLAKE},
    "nervenet": {},
    "encoder frozen": {"freeze": ("encoder",)},
    "message frozen": {"freeze": ("message",)},
    "decoder frozen": {"freeze": ("decoder",)},
    "update frozen": {"freeze": ("update",)},
    "official split": {"freeze": SNOWFLAKE, "train_node_table": True},
    "sum": {"freeze": SNOWFLAKE, "aggregation": "sum"},
    "no rounds": {"propagation_steps": 0},
    "one round": {"freeze": SNOWFLAKE, "propagation_steps": 1},
    "one round, all trained": {"propagation_steps": 1},
    "four rounds": {"propagation_steps": 4},
}
TINY: dict[str, object] = {"hidden_size": 8, "propagation_steps": 2}


def policies(
    graphs: Sequence[MorphologyGraph], dtype: torch.dtype, **config: object
) -> tuple[GraphActorCriticPolicy, GraphActorCriticPolicy]:
    """The same policy with fused (or those of the config) and with reference kernels."""
    base = PolicyConfig(**(TINY | {"critic": "graph", "kernels": "fused"} | config))  # type: ignore[arg-type]
    fused = GraphActorCriticPolicy.for_graphs(graphs, base).to(dtype)
    plain = GraphActorCriticPolicy.for_graphs(graphs, dataclasses.replace(base, kernels="reference")).to(dtype)
    for one, other in ((fused.actor, plain.actor), (fused.critic, plain.critic)):
        with torch.no_grad():  # biases and log-std start at zero, which hides mistakes
            for p, q in zip(one.parameters(), other.parameters(), strict=True):
                q.copy_(p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))))
    return fused, plain


def batch(graphs: Sequence[MorphologyGraph], policy: GraphActorCriticPolicy, rows: int = 13) -> tuple[Tensor, Tensor]:
    """Observations and actions, bodies mixed."""
    generator = torch.Generator().manual_seed(5)
    dtype = next(policy.parameters()).dtype
    obs = torch.randn(rows, policy.observation_space.shape[0], generator=generator, dtype=dtype)
    if len(graphs) > 1:
        obs[:, -1] = torch.arange(rows) % len(graphs)
    return obs, torch.randn(rows, policy.action_space.shape[0], generator=generator, dtype=dtype)


def loss_and_gradients(policy: GraphActorCriticPolicy, obs: Tensor, actions: Tensor) -> tuple[Tensor, list[Tensor]]:
    """A loss in which every row has a weight of its own, and its gradients, zeros where a parameter is not used."""
    log_prob, _ = policy.action_log_prob(obs, actions)
    weight = torch.linspace(-1, 2, len(obs), dtype=obs.dtype)
    loss = (weight * log_prob).sum() + (weight * policy.predict_values(obs)).square().sum()
    parameters = [p for p in policy.parameters() if p.requires_grad]
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    return loss, [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, grads, strict=True)]


def assert_same(graphs: Sequence[MorphologyGraph], monkeypatch: pytest.MonkeyPatch, **config: object) -> None:
    """The two kernels agree on loss and every gradient, in both precisions."""
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        fused, plain = policies(graphs, dtype, **config)
        obs, actions = batch(graphs, fused)
        calls: list[int] = []
        forward = rounds._forward
        monkeypatch.setattr(rounds, "_forward", lambda *a, f=forward, c=calls: (c.append(1), f(*a))[1])
        loss, grads = loss_and_gradients(fused, obs, actions)
        assert bool(calls) == (config.get("propagation_steps") != 0)
        calls.clear()
        wanted, wanted_grads = loss_and_gradients(plain, obs, actions)
        assert not calls
        monkeypatch.setattr(rounds, "_forward", forward)
        torch.testing.assert_close(loss, wanted, rtol=tolerance, atol=0)
        scale = max(float(g.abs().max()) for g in wanted_grads)
        for grad, want in zip(grads, wanted_grads, strict=True):
            assert float((grad - want).norm()) <= tolerance * max(float(want.norm()), 1e-3 * scale)
        assert any(float(g.norm()) > 0 for g in grads)


@pytest.fixture(params=["compiled", "fused"])
def kernels(request: pytest.FixtureRequest) -> str:
    """Both hand-written forms of the rounds."""
    if request.param == "compiled" and isinstance(library(), str):
        pytest.skip(f"{library()}")
    return request.param


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients(name: str, kernels: str, graph_of: Callable[[str], MorphologyGraph], monkeypatch) -> None:
    assert_same([graph_of("centipede-4")], monkeypatch, **CASES[name], kernels=kernels)


@pytest.mark.parametrize("name", ["snowflake", "nervenet", "message frozen"])
def test_several_bodies(name: str, kernels: str, graph_of: Callable[[str], MorphologyGraph], monkeypatch) -> None:
    graphs = [graph_of(body) for body in ("centipede-4", "centipede-8", "centipede-6")]
    assert_same(graphs, monkeypatch, **CASES[name], kernels=kernels)


@pytest.mark.parametrize("body", TOYS)  # a single node, muscles with activations, ball joints
@pytest.mark.parametrize("name", ["snowflake", "nervenet"])
def test_general_features(name: str, kernels: str, body: str, monkeypatch) -> None:
    assert_same([from_xml(*TOYS[body])[1]], monkeypatch, **CASES[name], kernels=kernels)


def test_dense_aggregation_where_mkl_is_missing(graph_of: Callable[[str], MorphologyGraph], monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert_same([graph_of("centipede-4")], monkeypatch)


class Products(TorchDispatchMode):
    """Counts the multiplications and additions of dense matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        place = {"aten::mm": 0, "aten::mv": 0, "aten::addmm": 1, "aten::addmm_": 1}.get(func._schema.name)
        if place is not None and args[place].layout == torch.strided:
            self.count += 2 * args[place].numel() * args[place + 1].numel() // args[place].shape[1]
        assert func._schema.name not in ("aten::bmm", "aten::linear", "aten::baddbmm"), "not counted"
        return func(*args, **(kwargs or {}))


def work(actor: Actor, obs: Tensor) -> tuple[int, int]:
    """Multiplications and additions of products, forward and backward, on what is prepared."""
    with torch.no_grad():
        prepared = actor.prepare(obs)
    parameters = [p for p in actor.parameters() if p.requires_grad]
    with Products() as forward:
        mean, log_std = actor.distribution_of(prepared)
    with Products() as backward:
        torch.autograd.grad((mean + log_std).sum(), parameters)
    return forward.count, backward.count


def test_freezing_saves_products(make_actor: Callable[..., NerveNetActor], observations: Callable[..., Tensor]) -> None:
    size, rows, steps = 64, 4, 4
    trained, frozen = (make_actor("centipede-6", kernels="fused") for _ in range(2))
    freeze(frozen, SNOWFLAKE, train_node_table=False)
    obs = observations(trained.graphs[0], rows)
    of_trained, of_frozen = work(trained, obs), work(frozen, obs)
    # In products of (V N, H) and (H, H). A round has 3 of messages and 6 of the update, the decoder 2, and one of H.
    unit = 2 * 17 * rows * size * size
    forward = 9 * steps + 2 + 1 / size
    assert of_frozen[0] == pytest.approx((forward - 3) * unit, rel=1e-6)  # the first messages are prepared
    # Backward: the decoder's inputs; the update's weights in every round; 9 for the inputs, in the first round 1.
    assert of_frozen[1] == pytest.approx((2 + 1 / size + 6 * steps + 9 * (steps - 1) + 1) * unit, rel=1e-6)
    ratio = sum(of_frozen) / sum(of_trained)
    assert ratio == pytest.approx(89 / 114, rel=2e-3)


def test_no_call_writes_into_a_result(kernels: str, make_actor: Callable[..., NerveNetActor], observations) -> None:
    actor = make_actor("centipede-4", **TINY, kernels=kernels)
    obs = observations(actor.graphs[0], 5)
    with torch.no_grad():
        first = actor.final_states(actor.prepare(obs), 0)
        kept = first.clone()
        actor.final_states(actor.prepare(obs + 1.0), 0)
    grown = actor.final_states(actor.prepare(obs), 0)
    parameters = list(actor.update.parameters())
    grads = torch.autograd.grad(grown.square().sum(), parameters)
    kept_grads = [grad.clone() for grad in grads]
    torch.autograd.grad(actor.final_states(actor.prepare(obs + 1.0), 0).sum(), parameters)
    assert torch.equal(first, kept)
    assert all(torch.equal(a, b) for a, b in zip(grads, kept_grads, strict=True))


def test_two_forward_passes_before_one_backward(
    kernels: str, make_actor: Callable[..., NerveNetActor], observations
) -> None:
    actor = make_actor("centipede-4", **TINY, kernels=kernels).double()
    parameters = list(actor.update.parameters())
    obs = observations(actor.graphs[0], 5).double()

    def loss(shift: float) -> Tensor:
        return actor.final_states(actor.prepare(obs + shift), 0).square().sum()

    apart = [torch.autograd.grad(loss(shift), parameters) for shift in (0.0, 1.0)]
    first, second = loss(0.0), loss(1.0)
    together = torch.autograd.grad(first + second, parameters)
    for a, b, both in zip(*apart, together, strict=True):
        torch.testing.assert_close(a + b, both, rtol=1e-10, atol=1e-12)


def test_a_kept_graph_is_differentiated_again(
    kernels: str, make_actor: Callable[..., NerveNetActor], observations
) -> None:
    actor = make_actor("centipede-4", **TINY, kernels=kernels)
    parameters = list(actor.update.parameters())
    loss = actor.final_states(actor.prepare(observations(actor.graphs[0], 5)), 0).sum()
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    again = torch.autograd.grad(loss, parameters)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(loss, parameters)


def test_memory_is_reused_and_bounded(make_actor: Callable[..., NerveNetActor], observations) -> None:
    actor = make_actor("centipede-4", **TINY, kernels="fused")
    pool = actor._workspaces

    def step(rows: int) -> None:
        actor.final_states(actor.prepare(observations(actor.graphs[0], rows)), 0).sum().backward()

    for rows in (8, 7, 6, 8, 5, 8):
        step(rows)
    assert len(pool.free) == 1  # smaller batches take the memory of larger ones
    held = pool.free[0].memory.nbytes
    assert held == 4 * (7 * 2 + 9) * 11 * 8 * 8  # (7 T + 9) V N H, as documented
    pool.limit = held
    for rows in (64, 8, 64):
        step(rows)
        assert sum(space.memory.nbytes for space in pool.free) <= pool.limit
    assert copy.deepcopy(actor)._workspaces.free == []


def test_many_rows_without_gradients_take_little_memory(make_actor: Callable[..., NerveNetActor], observations) -> None:
    actor = make_actor("centipede-4", **TINY, kernels="fused")
    rows = 5 * actor.rows_at_once() + 3
    obs = observations(actor.graphs[0], rows)
    with torch.no_grad():
        states = actor.final_states(actor.prepare(obs), 0)
        some = actor.final_states(actor.prepare(obs[-7:]), 0)
    torch.testing.assert_close(states[:, -7:], some, rtol=1e-5, atol=1e-6)
    assert states.shape == (11, rows, 8)
    assert sum(space.memory.numel() for space in actor._workspaces.free) <= 2 * 16 * 11 * 8 * actor.rows_at_once()
