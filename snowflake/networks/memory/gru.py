"""A gated recurrent unit over time: the simple alternative to attention over a window."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from snowflake.config.policy import PolicyConfig
from snowflake.networks.base import linear
from snowflake.networks.init import Initializer
from snowflake.networks.memory.past import Past, State


class GRUMemory(nn.Module):
    """Gated recurrent unit (Cho et al. 2014) with the reset gate after the product, as `torch.nn.GRU` has it.

    With W x + b and U h + c in three parts each: z = sigmoid(Wz x + Uz h), r = sigmoid(Wr x + Ur h),
    u = tanh(Wu x + r (Uu h)), h' = z h + (1 - z) u. State: ``hidden`` (N, S, D).

    Args:
        config: for the width D.
        init: fills the weights; each of the six matrices is orthogonal.
    """

    def __init__(self, config: PolicyConfig, init: Initializer) -> None:
        super().__init__()
        self.width = config.memory_width
        self.inputs = linear(self.width, 3 * self.width)
        self.recurrent = linear(self.width, 3 * self.width)
        for layer in (self.inputs, self.recurrent):
            init.orthogonal(layer, blocks=3, bias=0.0)

    def initial_state(self, n: int, streams: int, deployed: bool) -> State:
        """Return the empty state of ``n`` environments with ``streams`` histories each."""
        return {"hidden": self.inputs.weight.new_zeros(n, streams, self.width)}

    def _cell(self, inputs: Tensor, hidden: Tensor) -> Tensor:
        gates, candidate = inputs.split([2 * self.width, self.width], dim=-1)
        own, back = self.recurrent(hidden).split([2 * self.width, self.width], dim=-1)
        keep, reset = torch.sigmoid(gates + own).chunk(2, dim=-1)
        return torch.lerp(torch.tanh(candidate + reset * back), hidden, keep)

    def step(self, x: Tensor, state: State) -> Tensor:
        """Advance by one step x (E, S, D), the state in place; return the new hidden state (E, S, D)."""
        hidden = state["hidden"][:, : x.shape[1]]
        new = self._cell(self.inputs(x), hidden)
        hidden.copy_(new.detach())
        return new

    def sequence(self, x: Tensor, past: Past) -> Tensor:
        """Return the hidden states (T, E, S, D) of steps x (T, E, S, D)."""
        hidden = past.state["hidden"][:, : x.shape[2]]
        goes_on = ~past.starts[:, :, None, None]
        outputs = []
        for inputs, keep in zip(self.inputs(x), goes_on, strict=True):
            hidden = self._cell(inputs, hidden * keep)
            outputs.append(hidden)
        return torch.stack(outputs)
