"""Training by every recipe: PPO's loss on the graph network, unit-scaled layers, demotion."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from snowflake.networks import Actor
from snowflake.numerics import DemotionConfig, Recipe, convert, find_recipe
from snowflake.numerics.unit.modules import UnitLinear

MakeActor = Callable[..., Actor]
Observations = Callable[[int], Tensor]
RECIPES = ["fp32", "bf16", "fp8-amax", "fp8-cscale", "fp8-mor"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_oracle_25_ppo_step(recipe: str, make_actor: MakeActor, observations: Observations) -> None:
    """Epoch 0 starts at ratio 1, and steps on PPO's loss move the policy to what was rewarded."""
    actor = make_actor(propagation_steps=1)
    conversion = convert(actor, recipe)
    optimiser = torch.optim.Adam(actor.parameters(), lr=3e-3)
    obs = observations(64)
    for _ in range(2):
        with torch.no_grad():
            mean, log_std = actor.distribution(obs)
            noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(0))
            action = mean + log_std.exp() * noise
            old = log_prob(actor, obs, action)
        advantage = action.sum(-1) - action.sum(-1).mean()
        for epoch in range(3):
            ratio = (log_prob(actor, obs[:32], action[:32]) - old[:32]).exp()
            if epoch == 0:
                assert (ratio - 1).abs().max() < 1e-5
            loss = -torch.min(ratio * advantage[:32], ratio.clamp(0.8, 1.2) * advantage[:32]).mean()
            optimiser.zero_grad()
            loss.backward()
            assert all(p.grad is None or p.grad.isfinite().all() for p in actor.parameters())
            optimiser.step()
        assert conversion.step().nonfinite == 0
        assert actor.distribution(obs)[0].mean() > mean.mean()


def log_prob(actor: Actor, obs: Tensor, action: Tensor) -> Tensor:
    mean, log_std = actor.distribution(obs)
    return (-0.5 * ((action - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


class UnitNet(nn.Module):
    """One unit-scaled layer, named as the rules know it."""

    def __init__(self) -> None:
        super().__init__()
        self.update = UnitLinear(nn.Linear(32, 48), rows=256)
        nn.init.normal_(self.update.weight, generator=torch.Generator().manual_seed(0))
        nn.init.zeros_(self.update.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.update(x)


def run(net: UnitNet, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x = x.clone().requires_grad_()
    net.zero_grad()
    y = net(x)
    y.backward(g)
    assert x.grad is not None
    assert net.update.weight.grad is not None
    return y.detach(), x.grad, net.update.weight.grad


def test_unit_scaled_layers_get_the_product_put_in() -> None:
    generator = torch.Generator().manual_seed(1)
    x, g = torch.randn(256, 32, generator=generator), torch.randn(256, 48, generator=generator)
    net = UnitNet()
    plain = run(net, x, g)
    conversion = convert(net, "fp8-unit", parametrization="unit")
    assert type(net.update) is UnitLinear
    low = run(net, x, g)
    errors = [((a - b).norm() / b.norm()).item() for a, b in zip(low, plain, strict=True)]
    assert errors == pytest.approx([0.0375, 0.0593, 0.0593], rel=0.1)
    run(net, x, g)
    assert conversion.layers["update"].quantisers["w"].tensors == 1
    reading = conversion.step()
    assert reading.changes == []
    assert 0.9 < reading.operands["update/x"].rms < 1.1
    assert reading.operands["update/x"].log2_scale == 4
    assert reading.operands["update/g"].log2_scale == 8
    conversion.revert()
    assert torch.equal(run(net, x, g)[0], plain[0])


@pytest.mark.parametrize("scale", [30.0, 100.0])  # RMS beyond 16; saturation besides
def test_layers_that_outgrow_their_format_are_demoted(scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    x, g = scale * torch.randn(64, 32, generator=generator), torch.randn(64, 48, generator=generator)
    net = UnitNet()
    conversion = convert(net, "fp8-unit", parametrization="unit")
    run(net, x, g)
    assert conversion.step().changes == ["update/x", "update/w", "update/g"]
    exact = run(UnitNet(), x, g)
    low = run(net, x, g)
    assert all(((a - b).norm() / b.norm()).item() < 0.004 for a, b in zip(low, exact, strict=True))
    reading = conversion.step()
    assert reading.changes == []
    assert reading.operand_shares["bf16"] == 1.0
    other = UnitNet()
    restored = convert(other, "fp8-unit", parametrization="unit")
    restored.load_state_dict(conversion.state_dict())
    assert torch.equal(run(other, x, g)[0], low[0])


def test_without_demotion_saturation_stays() -> None:
    recipe: Recipe = replace(find_recipe("fp8-unit"), demotion=None)
    assert find_recipe("fp8-unit").demotion == DemotionConfig(1e-4, 16.0)
    net = UnitNet()
    conversion = convert(net, recipe, parametrization="unit")
    run(net, torch.full((4, 32), 1e3), torch.ones(4, 48))
    reading = conversion.step()
    assert reading.operands["update/x"].sat_frac == 1.0
    assert reading.changes == []
