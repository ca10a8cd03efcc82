"""The gated update with the reset gate after the product, as `torch.nn.GRUCell` has it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from snowflake.networks.activation import tanh
from snowflake.networks.base import linear
from snowflake.networks.init import Initializer


class ResetAfterUpdate(nn.Module):
    """Gated recurrent update of a state h by a message m, with one product of the state instead of two.

    z = sigmoid(Wz m + Uz h + bz), r = sigmoid(Wr m + Ur h + br), u = tanh(Wu m + bu + r * (Uu h + cu)),
    h' = z * h + (1 - z) * u. In the form of Cho et al. (2014), `snowflake.networks.nervenet.GRUUpdate`, it is
    u = tanh(Wu m + bu + Uu (r * h)).

    Args:
        size: H, of states and of messages.
        init: fills the weights; every one of the six matrices is orthogonal.

    Shapes:
        (..., H), (..., H) -> (..., H)
    """

    def __init__(self, size: int, init: Initializer) -> None:
        super().__init__()
        self.message = linear(size, 3 * size)  # Wz, Wr, Wu and bz, br, bu
        self.state = linear(size, 3 * size, bias=False)  # Uz, Ur, Uu
        self.bias = nn.Parameter(torch.zeros(size))  # cu
        for layer in (self.message, self.state):
            init.orthogonal(layer, blocks=3, bias=0.0)

    def forward(self, message: Tensor, state: Tensor) -> Tensor:
        """Return the new state."""
        size = state.shape[-1]
        gates, candidate = self.message(message).split([2 * size, size], dim=-1)
        state_gates, state_candidate = self.state(state).split([2 * size, size], dim=-1)
        keep, reset = torch.sigmoid(gates + state_gates).chunk(2, dim=-1)
        candidate = tanh(candidate + reset * (state_candidate + self.bias))
        return torch.lerp(candidate, state, keep)
