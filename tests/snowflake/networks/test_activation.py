"""The fast tanh against torch's."""

from __future__ import annotations

import torch

from snowflake.networks.activation import tanh


def test_values() -> None:
    x = torch.cat([torch.linspace(-20, 20, 100_001), torch.tensor([0.0, 1e-8, -1e-8, torch.inf, -torch.inf])])
    wanted = torch.tanh(x.double())
    for leaf in (x, x.clone().requires_grad_()):
        torch.testing.assert_close(tanh(leaf).double(), wanted, atol=3e-7, rtol=0)
    assert torch.isnan(tanh(torch.tensor(torch.nan)))


def test_input_stays_as_it_is() -> None:
    x = torch.linspace(-1, 1, 5)
    before = x.clone()
    tanh(x)
    assert torch.equal(x, before)


def test_first_and_second_derivative() -> None:
    x = torch.linspace(-2, 2, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(tanh, x)
    assert torch.autograd.gradgradcheck(tanh, x)
