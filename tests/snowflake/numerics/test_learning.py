"""Oracle 25: recipes learn what BF16 learns, to within the noise between seeds: a regression, and PPO's loss.

Unit scaling is another parametrisation, with rates and starts of its own, so its recipe is held against BF16 on the
same unit-scaled network.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snowflake.networks import Actor
from snowflake.numerics import Conversion, Recipe, convert, find_recipe
from snowflake.numerics.unit import functional as U
from snowflake.numerics.unit import loss_factor, max_grad_norm, parameter_groups, to_unit
from snowflake.numerics.unit.modules import UnitLinear

MakeActor = Callable[..., Actor]
Observations = Callable[[int], Tensor]
ALL = ("bf16", "fp8-amax", "fp8-cscale", "fp8-mor", "unit bf16", "fp8-unit")
SEEDS = 5
BATCH = 64


def recipe_of(name: str) -> tuple[Recipe, bool]:
    """Return a recipe, and whether it is for a unit-scaled network; `lossy` flushes gradients, as a control."""
    if name == "lossy":
        cscale = find_recipe("fp8-cscale")
        return replace(cscale, name=name, g=replace(cscale.g, exponent=-20)), False
    return find_recipe(name.removeprefix("unit ")), name in ("unit bf16", "fp8-unit")


class Regressor(nn.Module):
    """Two hidden layers of tanh and a read-out, named as the rules of the recipes know them."""

    def __init__(self, generator: torch.Generator, unit: bool) -> None:
        super().__init__()
        self.tanh = U.tanh if unit else torch.tanh
        layers: list[nn.Module] = []
        for sizes, kind in (((4, 24), "input"), ((24, 24), "hidden"), ((24, 1), "readout")):
            layer = nn.utils.skip_init(nn.Linear, *sizes)
            nn.init.zeros_(layer.bias)
            if unit:
                nn.init.normal_(layer.weight, generator=generator)
            else:
                nn.init.orthogonal_(layer.weight, generator=generator)
            layers.append(UnitLinear(layer, 128, kind) if unit else layer)
        self.update = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.update[2](self.tanh(self.update[1](self.tanh(self.update[0](x)))))


def regression(name: str, seed: int, steps: int) -> tuple[list[float], float, Conversion]:
    """Return training losses, and the error on data not trained on, of a fit to noisy values, 128 new ones a step."""
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int) -> tuple[Tensor, Tensor]:
        x = torch.rand(rows, 4, generator=generator) * 2 - 1
        truth = 2 * x[:, :1] * x[:, 1:2]
        return x, truth + 0.3 * torch.randn(truth.shape, generator=generator)

    held_out, wanted = draw(512)
    recipe, unit = recipe_of(name)
    model = Regressor(generator, unit)
    conversion = convert(model, recipe, parametrization="unit" if unit else "standard")
    optimiser = torch.optim.Adam(parameter_groups(model, 0.05) if unit else model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        x, target = draw(128)
        loss = F.mse_loss(model(x), target)
        optimiser.zero_grad()
        (loss * loss_factor(128) if unit else loss).backward()
        optimiser.step()
        losses.append(loss.item())
        if step % 20 == 19:
            assert conversion.step().nonfinite == 0
    with torch.no_grad():
        return losses, F.mse_loss(model(held_out), wanted).item(), conversion


@pytest.mark.parametrize("recipe", ALL)
def test_oracle_25_regression(recipe: str) -> None:
    losses, _, conversion = regression(recipe, seed=0, steps=80)
    assert statistics.mean(losses[-10:]) < 0.7 * statistics.mean(losses[:10])
    assert set(conversion.layers) == {"update.0", "update.1"}


def agree(scores: dict[str, list[float]]) -> dict[str, bool]:
    """Say of every recipe whether its mean is as near to that of BF16 as the seeds of BF16 are to each other."""
    result = {}
    for name, own in scores.items():
        reference = scores["unit bf16" if recipe_of(name)[1] else "bf16"]
        apart = abs(statistics.mean(own) - statistics.mean(reference))
        result[name] = apart <= statistics.stdev(reference) and math.isfinite(sum(own))
    return result


@pytest.mark.slow
def test_oracle_25_regression_over_seeds() -> None:
    scores = {name: [regression(name, seed, 200)[1] for seed in range(SEEDS)] for name in (*ALL, "lossy")}
    assert agree(scores) == {**dict.fromkeys(ALL, True), "lossy": False}, scores


def log_prob(actor: Actor, obs: Tensor, action: Tensor) -> Tensor:
    mean, log_std = actor.distribution(obs)
    return (-0.5 * ((action - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


def ppo(name: str, seed: int, iterations: int, make_actor: MakeActor, obs_dim: int) -> tuple[float, float, Conversion]:
    """Return the mean reward of the mean action before and after PPO on a task of one step.

    The reward is minus the squared distance to what another network would do. Old log-probabilities are computed in
    the minibatches of the first epoch: products of another size may be summed in another order, and a number that this
    moves across the middle between two of a format differs by a whole step. The first minibatch must find a ratio of 1.
    """
    generator = torch.Generator().manual_seed(seed)
    actor, teacher = make_actor("mlp"), make_actor("mlp", hidden_size=8)
    recipe, unit = recipe_of(name)
    if unit:
        to_unit(actor, BATCH, generator)
    else:
        with torch.no_grad():  # every seed has its own start
            for p in actor.parameters():
                p.add_(0.05 * torch.randn(p.shape, generator=generator))
    conversion = convert(actor, recipe, parametrization="unit" if unit else "standard")
    groups = parameter_groups(actor, 0.02) if unit else [{"params": list(actor.parameters())}]
    optimiser = torch.optim.Adam(groups, lr=3e-3)
    bound = max_grad_norm(actor.parameters()) if unit else 0.5
    held_out = torch.randn(256, obs_dim, generator=generator)
    with torch.no_grad():
        typical = teacher.distribution(held_out)[0]
    shift, spread = typical.mean(0), typical.std(0) * 2

    def reward(obs: Tensor, action: Tensor) -> Tensor:
        with torch.no_grad():
            return -(action - (teacher.distribution(obs)[0] - shift) / spread).square().mean(-1)

    def score() -> float:
        with torch.no_grad():
            return reward(held_out, actor.distribution(held_out)[0]).mean().item()

    before = score()
    for _ in range(iterations):
        obs = torch.randn(4 * BATCH, obs_dim, generator=generator)
        with torch.no_grad():
            mean = torch.cat([actor.distribution(o)[0] for o in obs.split(32)])
            action = mean + actor.distribution(obs[:1])[1].exp() * torch.randn(mean.shape, generator=generator)
            order, old = torch.randperm(len(obs), generator=generator), torch.empty(len(obs))
            for rows in order.split(BATCH):
                old[rows] = log_prob(actor, obs[rows], action[rows])
        gain = reward(obs, action)
        advantage = (gain - gain.mean()) / gain.std()
        for epoch in range(4):
            order = torch.randperm(len(obs), generator=generator) if epoch else order
            for k, rows in enumerate(order.split(BATCH)):
                log_ratio = log_prob(actor, obs[rows], action[rows]) - old[rows]
                assert epoch or k or log_ratio.abs().max() < 1e-5
                ratio = log_ratio.exp()
                loss = -torch.min(ratio * advantage[rows], ratio.clamp(0.8, 1.2) * advantage[rows]).mean()
                optimiser.zero_grad()
                factor = loss_factor(BATCH, std=float(actor.log_std.detach().exp().mean())) if unit else 1.0
                (loss * factor).backward()
                torch.nn.utils.clip_grad_norm_(actor.parameters(), bound)
                optimiser.step()
        assert conversion.step().nonfinite == 0
    return before, score(), conversion


@pytest.mark.parametrize("recipe", ALL)
def test_oracle_25_ppo(recipe: str, make_actor: MakeActor, observations: Observations) -> None:
    before, after, _ = ppo(recipe, 0, 3, make_actor, observations(1).shape[1])
    assert math.isfinite(after)
    assert after > before


@pytest.mark.slow
def test_oracle_25_ppo_over_seeds(make_actor: MakeActor, observations: Observations) -> None:
    obs_dim = observations(1).shape[1]
    runs = {name: [ppo(name, s, 12, make_actor, obs_dim) for s in range(SEEDS)] for name in (*ALL, "lossy")}
    scores = {name: [after for _, after, _ in own] for name, own in runs.items()}
    assert agree(scores) == {**dict.fromkeys(ALL, True), "lossy": False}, scores
    assert all(after > before for name in ALL for before, after, _ in runs[name])
