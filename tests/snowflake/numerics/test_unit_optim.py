"""Learning rates under unit scaling: factors, weight decay, and a best rate that does not move with the width."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import agents
from snowflake.config.policy import PolicyConfig
from snowflake.networks import build_actor
from snowflake.numerics import convert
from snowflake.numerics.unit import functional as U
from snowflake.numerics.unit import loss_factor, max_grad_norm, parameter_groups, rate_factors, to_unit
from snowflake.numerics.unit.modules import UnitEncoder, UnitLinear, UnitMLP
from tests.snowflake.graph.models import general_graph


def mlp(width: int) -> nn.Module:
    """Build 8 -> width -> width -> 1."""
    generator = torch.Generator().manual_seed(0)
    linears = [nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 1)]
    for layer in linears:
        nn.init.normal_(layer.weight, generator=generator)
        nn.init.zeros_(layer.bias)
    kinds = ("input", "hidden", "readout")
    return UnitMLP([UnitLinear(layer, 128, kind) for layer, kind in zip(linears, kinds, strict=True)], final_tanh=False)


def test_oracle_19_rate_factors_and_weight_decay() -> None:
    network = UnitMLP(
        [UnitLinear(nn.Linear(64, 128), 10), UnitLinear(nn.Linear(128, 4), 10, "readout")], final_tanh=False
    )
    groups = parameter_groups(network, 1 / 8, weight_decay=1e-4)
    by_parameter = {id(p): group for group in groups for p in group["params"]}
    hidden, readout = (by_parameter[id(layer.weight)] for layer in network.layers)
    assert (hidden["lr"], hidden["weight_decay"]) == pytest.approx((1 / 64, 0.0064))
    assert (readout["lr"], readout["weight_decay"]) == pytest.approx((1 / 8, 0.0008))
    assert by_parameter[id(network.layers[0].bias)]["lr"] == 1 / 8
    optimizer = torch.optim.AdamW(groups)
    for group in optimizer.param_groups:
        assert group["lr"] == pytest.approx(group["lr_factor"] / 8)
        assert group["lr"] * group["weight_decay"] == pytest.approx(1e-4), "decay does not depend on the rate"
    network.layers[0].weight.requires_grad_(False)
    left = [p for group in parameter_groups(network, 0.1) for p in group["params"]]
    assert all(p is not network.layers[0].weight for p in left)
    assert len(left) == 3
    assert max_grad_norm(network.parameters(), rms=2.0) == 2 * math.sqrt(128 + 4 * 128 + 4)


def test_input_weights_and_table_have_a_switch() -> None:
    encoder = UnitEncoder(
        nn.Parameter(torch.zeros(3, 32)),
        UnitLinear(nn.Linear(5, 32), 1, "input"),
        UnitLinear(nn.Linear(7, 32), 1, "input"),
        3,
    )
    assert set(rate_factors(encoder).values()) == {1.0}
    factors = rate_factors(encoder, input_width_power=0.5)
    assert factors == {
        "table": 0.125, "root.weight": 0.125, "root.bias": 1.0, "joint.weight": 0.125, "joint.bias": 1.0,
    }  # fmt: skip


def best_rate(width: int) -> float:
    """Return log2 of the rate, among octaves, with which Adam fits a toy function best in 40 steps."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(128, 8, generator=generator)
    target = torch.sin(2.0 * x[:, :1]) * x[:, 1:2]
    losses = {}
    for octave in range(-5, 2):
        network = mlp(width)
        optimizer = torch.optim.Adam(parameter_groups(network, 2.0**octave))
        for _ in range(40):
            loss = U.mse_loss(network(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[octave] = float(loss.detach())
    return min(losses, key=losses.__getitem__)


def test_oracle_20_the_best_rate_moves_at_most_an_octave_with_the_width() -> None:
    best = [best_rate(width) for width in (32, 64, 128)]
    assert max(best) - min(best) <= 1, best
    assert -5 < min(best) <= max(best) < 1, "the best rate is inside of the range searched"


@pytest.mark.parametrize("precision", ["fp32", "fp8-unit"])
def test_a_unit_scaled_graph_network_learns(precision: str) -> None:
    generator = torch.Generator().manual_seed(0)
    graph = general_graph(agents.load("ant").compile(), "ant")
    network: Any = build_actor([graph], PolicyConfig(hidden_size=32, propagation_steps=2), generator)
    to_unit(network, 64, generator)
    convert(network, precision, parametrization="unit")
    obs = torch.randn(64, graph.obs_dim, generator=generator)
    teacher: Any = build_actor([graph], PolicyConfig(hidden_size=8, propagation_steps=1), generator)
    target = teacher.distribution(obs)[0].detach()
    target = (target - target.mean(dim=0)) / target.std(dim=0)
    optimizer = torch.optim.Adam(parameter_groups(network, 0.1))
    bound = max_grad_norm(network.parameters())
    losses = []
    for _ in range(40):
        loss = nn.functional.mse_loss(network.distribution(obs)[0], target) * loss_factor(64)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), bound)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
