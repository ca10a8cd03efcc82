"""The blocks of the limb transformer between an embedding and a readout of each token: the network of ``bc``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from snowflake.config.policy import PolicyConfig
from snowflake.networks.base import linear
from snowflake.networks.init import Initializer
from snowflake.networks.transformer.attention import Attention
from snowflake.networks.transformer.feedforward import FeedForward
from snowflake.networks.transformer.norms import make_norm
from snowflake.networks.transformer.structure import Structure
from snowflake.probe.data import OUTPUTS


class TokenRegression(nn.Module):
    """Tokens without a body: every one attends to every other, none is told from another but by its features.

    Args:
        features: Inputs per token.
        config: Policy section; sizes and attention are read.
        generator: Source of the initial weights.

    Shapes:
        (N, V, features) -> (N, V, 2)
    """

    def __init__(self, features: int, config: PolicyConfig, generator: torch.Generator) -> None:
        super().__init__()
        init, attention, width = Initializer(config.init, generator), config.attention, config.hidden_size
        self.embed, self.readout = linear(features, width), linear(width, OUTPUTS)
        for layer in (self.embed, self.readout):
            init.orthogonal(layer, bias=0.0)
        self.attention = nn.ModuleList(Attention(width, attention, False, init) for _ in range(attention.layers))
        self.feedforward = nn.ModuleList(FeedForward(width, attention, init) for _ in range(attention.layers))
        self.norm = make_norm(attention.norm_kind, width)

    def forward(self, x: Tensor) -> Tensor:
        """Predict."""
        count = x.shape[1]
        no_body = Structure(x.new_zeros(count, count, dtype=torch.long), x.new_ones(count, count, dtype=torch.bool))
        tokens = self.embed(x)
        for attention, feedforward in zip(self.attention, self.feedforward, strict=True):
            tokens = feedforward(attention(tokens, no_body))
        return self.readout(self.norm(tokens))  # type: ignore[no-any-return]
