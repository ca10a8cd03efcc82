"""The update with the reset gate after the product is PyTorch's; a network of it trains without the fused rounds."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from agents.errors import UserError
from snowflake.config import PolicyConfig
from snowflake.networks import build_actor
from snowflake.networks.gru import ResetAfterUpdate
from snowflake.networks.init import Initializer
from snowflake.numerics import convert
from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.train import build
from tests.snowflake.ppo.helpers import tiny_config


def test_it_is_the_cell_of_pytorch() -> None:
    size, generator = 6, torch.Generator().manual_seed(0)
    update = ResetAfterUpdate(size, Initializer("independent", generator)).double()
    nn.init.normal_(update.bias, generator=generator)
    nn.init.normal_(update.message.bias, generator=generator)
    cell = nn.GRUCell(size, size).double()

    def order(rows: torch.Tensor) -> torch.Tensor:
        """Keep, reset, candidate -> reset, keep, candidate, as the cell has them."""
        keep, reset, candidate = rows.detach().chunk(3)
        return torch.cat([reset, keep, candidate])

    with torch.no_grad():
        cell.weight_ih.copy_(order(update.message.weight))
        cell.weight_hh.copy_(order(update.state.weight))
        cell.bias_ih.copy_(order(update.message.bias))
        cell.bias_hh.zero_()
        cell.bias_hh[2 * size :] = update.bias
    message, state = torch.randn(2, 5, size, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(update(message, state), cell(message, state))


def test_a_policy_has_it_trains_it_and_converts_it() -> None:
    algorithm = build(tiny_config("snowflake", policy={"gru": "reset_after", "hidden_size": 8}))
    actor = algorithm.policy.actor
    graphs, config = algorithm.policy.graphs, algorithm.policy.config
    obs = torch.randn(7, graphs[0].obs_dim, generator=torch.Generator().manual_seed(0))
    mean = actor.distribution(obs)[0]
    names = {name for name, p in actor.named_parameters() if p.requires_grad}
    grads = torch.autograd.grad(
        mean.square().sum(), [p for n, p in actor.named_parameters() if n in names - {"log_std"}]
    )
    assert all(float(grad.abs().max()) > 0 for grad in grads)
    before = dataclasses.replace(config, gru="reset_before")
    other = build_actor(graphs, before, torch.Generator().manual_seed(0))
    assert not torch.allclose(mean, other.distribution(obs)[0])
    assert {"update.joint.message", "update.joint.state"} <= set(convert(actor, "fp8-amax").layers)


def test_what_does_not_go_with_it_is_refused() -> None:
    with pytest.raises(UserError, match=r"policy\.gru = 'reset_after' has no unit-scaled form"):
        PolicyConfig(gru="reset_after", parametrization="unit")
    with pytest.raises(UserError, match=r"policy\.gru = 'before' is not a choice"):
        PolicyConfig(gru="before")
    algorithm = build(tiny_config("snowflake", policy={"hidden_size": 8}))
    after = build(tiny_config("snowflake", policy={"hidden_size": 8, "gru": "reset_after"})).policy
    assert isinstance(after, GraphActorCriticPolicy)
    with pytest.raises(UserError, match="does not fit"):
        after.load_actor(algorithm.policy.actor.state_dict())
