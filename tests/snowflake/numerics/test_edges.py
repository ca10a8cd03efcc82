"""Real policies at the edges, by every recipe: odd widths, one node, one row, zeros, one number that is not finite."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

import agents
from agents.errors import UserError
from envs.observation import paper_layout
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.numerics import recipe_names
from snowflake.numerics.backends import Verdict, base
from snowflake.policy import GraphActorCriticPolicy
from tests.snowflake.graph.models import from_xml

RECIPES = [name for name in recipe_names() if name != "fp32"]
NETWORKS = ("nervenet", "mlp")
ONE_NODE = (
    '<body><freejoint/><geom size="0.1"/><site name="p" pos="1 0 0"/><site name="q" pos="-1 0 0"/></body>',
    '<motor site="p" gear="0 0 1 0 0 0.1"/><motor site="q" gear="0 0 1 0 0 -0.1"/>',
)


@cache
def graph_of(body: str) -> MorphologyGraph:
    if body == "one node":
        graph = from_xml(*ONE_NODE)[1]
        assert graph.num_nodes == 1
        return graph
    morphology = agents.load(body)
    model = morphology.compile()
    return build_graph(model, paper_layout(model), morphology.node_class(model), body)


def policy_of(recipe: str, network: str, body: str = "centipede-4", width: int = 16) -> GraphActorCriticPolicy:
    """Build actor and critic on one body, converted, every tensor looked at."""
    unit = "unit" if recipe == "fp8-unit" else "standard"
    critic = "flat" if network == "mlp" else "graph"
    config = PolicyConfig(network=network, critic=critic, hidden_size=width, propagation_steps=1, parametrization=unit)
    policy = GraphActorCriticPolicy.for_graphs([graph_of(body)], config)
    # On some CPUs bf16 would be the compiled library's, which counts nothing.
    policy.set_precision(recipe, backend="emulate" if recipe == "bf16" else "auto", sampling="always")
    return policy


def observations(body: str, rows: int) -> Tensor:
    return torch.randn(rows, graph_of(body).obs_dim, generator=torch.Generator().manual_seed(0))


def outputs(policy: GraphActorCriticPolicy, obs: Tensor) -> tuple[Tensor, Tensor]:
    """Return means (N, A) and values (N,)."""
    return policy.distribution(obs)[0], policy.predict_values(obs).flatten()


def backward(policy: GraphActorCriticPolicy, obs: Tensor, weight: float = 1.0) -> list[Tensor]:
    """Return the gradients of all parameters of a loss on both outputs."""
    policy.zero_grad()
    mean, value = outputs(policy, obs)
    (weight * (mean.sum() + value.sum())).backward()
    return [p.grad for p in policy.parameters() if p.grad is not None]


def nonfinite(policy: GraphActorCriticPolicy) -> dict[str, int]:
    """Read the statistics; return how many groups each network has counted. Every scalar must be finite."""
    assert policy.numerics is not None
    readings = policy.numerics.step()
    assert all(math.isfinite(v) for reading in readings.values() for v in reading.scalars().values())
    return {name: reading.nonfinite for name, reading in readings.items()}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    ("network", "body", "width", "rows"),
    [("nervenet", "centipede-4", 50, 3), ("mlp", "centipede-4", 50, 3), ("nervenet", "one node", 16, 2)],
)
def test_odd_sizes_and_zeros(recipe: str, network: str, body: str, width: int, rows: int) -> None:
    policy = policy_of(recipe, network, body, width)
    obs = observations(body, rows)
    for batch in (obs, obs[:1], torch.zeros_like(obs)):
        gradients = backward(policy, batch)
        assert gradients
        assert all(g.isfinite().all() for g in gradients)
        assert all(t.isfinite().all() for t in outputs(policy, batch))
    assert any(g.abs().max() > 0 for g in backward(policy, obs))
    assert all(not g.any() for g in backward(policy, obs, weight=0.0)), "a gradient of zeros stays one"
    assert set(nonfinite(policy).values()) == {0}
    alone = outputs(policy, obs[:1])
    for whole, one in zip(outputs(policy, obs), alone, strict=True):
        torch.testing.assert_close(whole[:1], one, rtol=0, atol=1e-5)


def spoil(policy: GraphActorCriticPolicy, row: int, bad: float) -> list[RemovableHandle]:
    """Put a number into one row of what the first converted layer of each network reads."""
    assert policy.numerics is not None

    def hook(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = inputs[0].clone()  # (V, N, H) or (N, H)
        x[..., row, 0] = bad
        return (x,)

    networks = {"actor": policy.actor, "critic": policy.critic}
    first = {name: next(iter(conversion.layers)) for name, conversion in policy.numerics.conversions.items()}
    return [networks[name].get_submodule(layer).register_forward_pre_hook(hook) for name, layer in first.items()]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_number_that_is_not_finite_stays_in_its_row_and_is_counted(recipe: str, network: str, bad: float) -> None:
    policy = policy_of(recipe, network)
    obs = observations("centipede-4", 6)
    clean = outputs(policy, obs)
    assert set(nonfinite(policy).values()) == {0}
    hooks = spoil(policy, 2, bad)
    spoilt = outputs(policy, obs)
    for hook in hooks:
        hook.remove()
    others = [0, 1, 3, 4, 5]
    for before, after in zip(clean, spoilt, strict=True):
        torch.testing.assert_close(after[others], before[others], rtol=0, atol=1e-5)
        assert not torch.equal(after[2].nan_to_num(), before[2])
    assert all(torch.equal(a, b) for a, b in zip(outputs(policy, obs), clean, strict=True)), "nothing is left behind"
    # From here on the mixture has its operand in BF16, until checks find it good again.
    assert all(count > 0 for count in nonfinite(policy).values())


@pytest.mark.parametrize("recipe", RECIPES)
def test_observations_that_are_not_finite(recipe: str) -> None:
    """The normaliser clips infinity, so that all is finite behind it; NaN goes through, and is counted."""
    policy = policy_of(recipe, "mlp")
    obs = observations("centipede-4", 3)
    obs[1, 4] = math.inf
    assert all(t.isfinite().all() for t in outputs(policy, obs))
    assert set(nonfinite(policy).values()) == {0}
    obs[1, 4] = math.nan
    mean, value = outputs(policy, obs)
    assert mean[1].isnan().all()
    assert value[1].isnan()
    assert mean[[0, 2]].isfinite().all()
    assert all(count > 0 for count in nonfinite(policy).values())


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_gradient_that_is_not_finite_is_counted(recipe: str) -> None:
    policy = policy_of(recipe, "nervenet")
    mean, value = outputs(policy, observations("centipede-4", 4))
    weight = torch.ones_like(value)
    weight[1] = math.nan
    ((mean.sum(-1) + value) * weight).sum().backward()
    assert all(count > 0 for count in nonfinite(policy).values())


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_that_a_device_cannot_compute_is_named(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_VERDICTS", {("scaled_mm", "cpu"): Verdict(False, "needs compute capability 8.9")})
    unit = "unit" if recipe == "fp8-unit" else "standard"
    policy = GraphActorCriticPolicy.for_graphs(
        [graph_of("centipede-4")], PolicyConfig(hidden_size=16, parametrization=unit)
    )
    with pytest.raises(UserError, match=r"scaled_mm.*(needs compute capability 8\.9|does not|cannot compute).*"):
        policy.set_precision(recipe, backend="scaled_mm")
    assert policy.numerics is None
    policy.set_precision(recipe)
    assert policy.numerics is not None
    told = ("products are emulated on cpu (no 8-bit products on cpu)",)
    if recipe == "bf16":  # depends on CPU and compiler
        told = ("products are emulated on cpu (not native, since ", "products by native, the compiled library, on cpu")
    assert any(words in policy.numerics.arithmetic() for words in told)
