"""The compiled library against PyTorch: layers and rounds of any width, any number of rows, any precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snowflake.networks import NerveNetActor
from snowflake.networks.mlp import MLP
from snowflake.networks.native.library import library

pytestmark = pytest.mark.skipif(isinstance(library(), str), reason=str(library()))
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def layers(sizes: tuple[int, ...], dtype: torch.dtype, *, final_tanh: bool) -> tuple[MLP, MLP]:
    """The same stack, compiled and in PyTorch."""
    made = [MLP(sizes, final_tanh=final_tanh, kernels=kernels).to(dtype) for kernels in ("compiled", "reference")]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p, q in zip(made[0].parameters(), made[1].parameters(), strict=True):
            q.copy_(p.copy_(torch.randn(p.shape, generator=generator) / p.shape[-1] ** 0.5))
    return made[0], made[1]


def results(stack: MLP, x: Tensor) -> list[Tensor]:
    """Output, and gradients of input and parameters, of a loss in which every entry has a weight of its own."""
    x = x.clone().requires_grad_()
    out = stack(x)
    weight = torch.linspace(-1.0, 2.0, out.numel(), dtype=x.dtype).view_as(out)
    return [out.detach(), *torch.autograd.grad((weight * out).sum(), [x, *stack.parameters()])]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("final_tanh", [False, True])
@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ((64, 64, 64, 1), (5, 77)),
        ((50, 50, 1), (400,)),  # more rows than are computed at once, and no multiple of a vector
        ((33, 7, 12), (3,)),
        ((1, 1), (1,)),
        ((128, 96, 200), (2, 9)),
        ((16, 1), (7,)),
    ],
)
def test_layers(sizes: tuple[int, ...], shape: tuple[int, ...], final_tanh: bool, dtype: torch.dtype) -> None:
    compiled, plain = layers(sizes, dtype, final_tanh=final_tanh)
    x = torch.randn(*shape, sizes[0], dtype=dtype, generator=torch.Generator().manual_seed(0))
    found = results(compiled, x)
    for mine, wanted in zip(found, results(plain, x), strict=True):
        assert mine.shape == wanted.shape
        assert float((mine - wanted).norm()) <= TOLERANCE[dtype] * float(wanted.norm())
    with torch.no_grad():
        assert torch.equal(compiled(x), found[0])


def test_frozen_layers_get_no_gradients() -> None:
    grads = []
    for stack in layers((8, 8, 8), torch.float64, final_tanh=True):
        first, last = stack.linears()
        first.requires_grad_(False)
        x = torch.randn(5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        stack(x).square().sum().backward()
        assert first.weight.grad is None
        grads.append(last.weight.grad)
    torch.testing.assert_close(*grads, rtol=1e-10, atol=0)


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, 2e-7), (torch.float64, 5e-16)])
def test_tanh_is_exact_to_rounding(dtype: torch.dtype, unit: float) -> None:
    identity, _ = layers((1, 1), dtype, final_tanh=True)
    with torch.no_grad():
        identity.linears()[0].weight.fill_(1.0)
        identity.linears()[0].bias.zero_()
        x = torch.cat([torch.linspace(-30, 30, 4001), 10.0 ** -torch.arange(1.0, 30.0), torch.zeros(1)]).to(dtype)
        torch.testing.assert_close(identity(x[:, None])[:, 0].double(), torch.tanh(x.double()), rtol=unit, atol=0)
        extreme = torch.tensor([[float("inf")], [-float("inf")], [float("nan")], [1e30]], dtype=dtype)
        torch.testing.assert_close(identity(extreme), torch.tanh(extreme), equal_nan=True)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("size", "rows"), [(50, 70), (128, 3), (200, 2)])
def test_rounds_of_other_widths(
    size: int, rows: int, dtype: torch.dtype, make_actor: Callable[..., NerveNetActor], observations
) -> None:
    found = []
    for kernels in ("compiled", "reference"):
        actor = make_actor("centipede-8", hidden_size=size, propagation_steps=2, kernels=kernels).to(dtype)
        prepared = actor.prepare(observations(actor.graphs[0], rows).to(dtype))
        states = actor.final_states(prepared, 0)
        weight = torch.linspace(-1.0, 2.0, states.numel(), dtype=dtype).view_as(states)
        parts = (*actor.encoder.parameters(), *actor.message.parameters(), *actor.update.parameters())
        found.append([states.detach(), *torch.autograd.grad((weight * states).sum(), parts)])
    for mine, wanted in zip(*found, strict=True):
        assert float((mine - wanted).norm()) <= TOLERANCE[dtype] * float(wanted.norm())


def test_a_row_does_not_depend_on_those_beside_it(make_actor: Callable[..., NerveNetActor], observations) -> None:
    actor = make_actor("centipede-6")
    obs = observations(actor.graphs[0], 150)
    with torch.no_grad():
        states = actor.final_states(actor.prepare(obs), 0)
        for part in (slice(0, 1), slice(7, 20), slice(100, 150)):
            # The encoder is PyTorch's, so take what it prepared of all.
            some = actor.final_states(tuple(t[..., part, :] for t in actor.prepare(obs)), 0)
            torch.testing.assert_close(some, states[:, part], rtol=1e-6, atol=1e-6)
    trained = actor.final_states(actor.prepare(obs), 0)
    assert torch.equal(trained, states), "with and without gradients"


def test_a_swapped_layer_is_called(monkeypatch) -> None:
    compiled, plain = layers((8, 8, 8), torch.float32, final_tanh=False)

    class Doubled(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2.0 * super().forward(x)

    x = torch.ones(3, 8)
    for stack in (compiled, plain):
        swapped = Doubled(8, 8)
        swapped.load_state_dict(stack.layers[0].state_dict())
        stack.layers[0] = swapped
    torch.testing.assert_close(compiled(x), plain(x))


def test_the_library_is_left_alone_where_it_does_not_fit(make_actor: Callable[..., NerveNetActor]) -> None:
    actor = make_actor("centipede-4", hidden_size=8)
    for change in ({"kernels": "fused"}, {"kernels": "reference"}, {"aggregation": "max"}):
        config = dataclasses.replace(actor.config, **change)
        other = make_actor("centipede-4", **{f.name: getattr(config, f.name) for f in dataclasses.fields(config)})
        assert other.fused(torch.zeros(11, 2, 8)) == (change == {"kernels": "fused"})
