"""Operands rounded to bfloat16 by the compiled library: which products, by how much, and where it is refused."""

from __future__ import annotations

import types
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import snowflake.networks.native.library as native
from agents.errors import UserError
from snowflake.config import PolicyConfig
from snowflake.networks import MLP, NerveNetActor
from snowflake.networks.operands import refusal, round_operands
from snowflake.policy import GraphActorCriticPolicy
from tests.snowflake.networks.transformer.helpers import graph_of

FOUND = native.library()
needs_bf16 = pytest.mark.skipif(
    isinstance(FOUND, str) or not FOUND.multiplies_bf16, reason="no compiler, or a CPU that multiplies no bfloat16"
)


def policy_of(network: str = "nervenet", **changes) -> GraphActorCriticPolicy:
    config = PolicyConfig(**{"network": network, "hidden_size": 16, "propagation_steps": 2} | changes)
    return GraphActorCriticPolicy.for_graphs([graph_of("centipede-4")], config)


@needs_bf16
@pytest.mark.parametrize("sizes", [(7, 33, 5), (64, 64, 64)])
def test_a_layer_multiplies_rounded_numbers(sizes: tuple[int, ...]) -> None:
    """Of one row and layer by layer: float32 sums of products of numbers rounded to bfloat16."""
    stack = MLP(sizes, final_tanh=False, kernels="compiled")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in stack.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) / p.shape[-1] ** 0.5)
        x = torch.randn(50, sizes[0], generator=generator)
        exact, stack.bf16 = stack(x), True
        rough = stack(x)
        first, last = ((rounded(layer.weight).double(), layer.bias.double()) for layer in stack.linears())
        hidden = torch.tanh(rounded(x).double() @ first[0].t() + first[1])
        wanted = rounded(hidden.float()).double() @ last[0].t() + last[1]
    # A hidden number at the border between two codes may take the other: each moves an output by less than 1e-3.
    torch.testing.assert_close(rough.double(), wanted, rtol=0.0, atol=1e-3)
    assert float((rough - wanted).norm()) < 1e-4 * float(wanted.norm()) < 0.1 * float((rough - exact).norm())


def rounded(x: Tensor) -> Tensor:
    return x.bfloat16().float()


@needs_bf16
@pytest.mark.parametrize("size", [33, 64])
def test_gradients_of_the_rounds(size: int, make_actor: Callable[..., NerveNetActor], observations) -> None:
    actor = make_actor("centipede-4", hidden_size=size, propagation_steps=2)
    prepared = actor.prepare(observations(actor.graphs[0], 7))
    parameters = (*actor.message.parameters(), *actor.update.parameters())
    found = []
    for actor.bf16 in (True, False):
        out = actor.final_states(prepared, 0)
        found.append([out.detach(), *torch.autograd.grad(out.square().sum(), parameters)])
    for rough, wanted in zip(*found, strict=True):
        assert 1e-5 < float((rough - wanted).norm() / wanted.norm()) < 2e-2


@needs_bf16
@pytest.mark.parametrize("network", ["nervenet", "mlp"])
def test_error_of_the_whole_gradient(network: str, observations) -> None:
    """The figure of docs/numerics.md: default width and rounds, of a loss of means and values."""
    policy = policy_of(network, hidden_size=64, propagation_steps=4)
    obs = observations(policy.graphs[0], 256)
    plain = whole_gradient(policy, obs)
    policy.set_precision("bf16", backend="native")
    rough = whole_gradient(policy, obs)
    assert 1e-4 < float((rough - plain).norm() / plain.norm()) < 1e-2


def whole_gradient(policy: GraphActorCriticPolicy, obs: Tensor) -> Tensor:
    mean, value = policy.distribution(obs)[0], policy.predict_values(obs)
    weight = torch.linspace(-1.0, 1.0, mean.numel()).view_as(mean)
    parameters = [p for name, p in policy.named_parameters() if p.requires_grad and "log_std" not in name]
    grads = torch.autograd.grad((weight * mean).sum() + (value - 1.0).square().sum(), parameters)
    return torch.cat([grad.flatten() for grad in grads])


@needs_bf16
def test_what_is_rounded_is_told() -> None:
    policy = policy_of()
    rows = {row.name: row.precision for row in round_operands(policy.actor)}
    rest = {"encoder.root", "encoder.joint", "decoder.layers.2"}
    assert {name for name, precision in rows.items() if precision == "fp32"} == rest
    assert rows.keys() == {n for n, m in policy.actor.named_modules() if isinstance(m, torch.nn.Linear)}
    policy.set_precision("bf16")
    told = policy.numerics.describe()
    assert "products by native, the compiled library, on cpu (this CPU multiplies bfloat16 numbers)" in told
    assert "fp32 encoder.root, encoder.joint (not compiled)" in told
    assert "decoder.layers.0" in policy.numerics.report()
    flat = policy_of("mlp")
    assert [row.precision for row in round_operands(flat.actor)] == ["bf16", "bf16", "fp32"]
    assert round_operands(policy_of(hidden_size=8, kernels="fused").actor)[-1].precision == "fp32"


@needs_bf16
def test_a_policy_without_observations_beside_it_does_the_same(observations) -> None:
    """An output depends on its own row, so that threads may share a minibatch."""
    policy = policy_of()
    policy.set_precision("bf16")
    assert policy.splits_batches
    states = policy.actor.first_states(policy.actor.prepare(observations(policy.graphs[0], 40)), 0).detach()
    with torch.no_grad():
        whole = policy.actor.decoder(policy.actor.final_states((states,), 0))
        part = policy.actor.decoder(policy.actor.final_states((states[:, 7:20],), 0))
    assert torch.equal(part, whole[:, 7:20])


@needs_bf16
def test_other_bodies_compute_the_same_way(observations) -> None:
    policy = policy_of(hidden_size=16)
    policy.set_precision("bf16")
    other = policy.for_bodies([graph_of("centipede-6")])
    assert other.numerics.backend == "auto"
    assert other.actor.bf16
    obs = observations(other.graphs[0], 5)
    exact = policy.for_bodies([graph_of("centipede-6")], precision="fp32")
    difference = other.distribution(obs)[0] - exact.distribution(obs)[0]
    assert 0.0 < float(difference.detach().abs().max()) < 0.02


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kernels": "fused"}, "policy.kernels is fused"),
        ({"kernels": "reference"}, "policy.kernels is reference"),
        ({"aggregation": "max"}, "no compiled form"),
        ({"propagation_steps": 0}, "no compiled form"),
        ({"hidden_size": 260}, "no compiled form"),
        ({"parametrization": "unit"}, "no compiled form"),
        ({"network": "transformer", "critic": "transformer"}, "no compiled form"),
    ],
)
def test_where_it_cannot_be_it_is_refused_and_auto_emulates(changes, words: str) -> None:
    policy = policy_of(**changes)
    with pytest.raises(UserError, match=rf"backend 'native' cannot compute precision bf16 here: .*{words}"):
        policy.set_precision("bf16", backend="native")
    assert policy.numerics is None
    policy.set_precision("bf16")
    assert (
        f"products are emulated on cpu (not native, since {policy.numerics.not_native})" in policy.numerics.arithmetic()
    )
    assert words in policy.numerics.not_native
    assert not policy.splits_batches


def test_other_recipes_machines_and_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="precision fp8-amax here: it is for precision bf16; choose auto or emulate"):
        policy_of().set_precision("fp8-amax", backend="native")
    for found, words in (("there is no compiler", "there is no compiler"), (False, "multiplies no bfloat16")):
        answer = found if isinstance(found, str) else types.SimpleNamespace(multiplies_bf16=found)
        monkeypatch.setattr(native, "library", lambda answer=answer: answer)
        with pytest.raises(UserError, match=words):
            policy_of().set_precision("bf16", backend="native")
        policy = policy_of()
        policy.set_precision("bf16")
        assert words in policy.numerics.arithmetic()


def test_emulation_is_still_there() -> None:
    policy = policy_of()
    policy.set_precision("bf16", backend="emulate")
    assert "products are emulated on cpu (as asked for)" in policy.numerics.arithmetic()
    assert not policy.actor.bf16
    assert refusal(policy.actor)
