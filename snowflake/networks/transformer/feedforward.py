"""The feed-forward half of a block."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from snowflake.config.attention import AttentionConfig
from snowflake.networks.base import linear
from snowflake.networks.init import Initializer
from snowflake.networks.transformer.norms import make_norm, make_scale


class FeedForward(nn.Module):
    """x + scale(norm(fc2(activation(fc1(norm(x)))))), node by node.

    Args:
        width: H.
        config: of the attention.
        init: fills the weights.

    Shapes:
        (..., H) -> (..., H)
    """

    def __init__(self, width: int, config: AttentionConfig, init: Initializer) -> None:
        super().__init__()
        self.fc1 = linear(width, config.feedforward * width)
        self.fc2 = linear(config.feedforward * width, width)
        for layer in (self.fc1, self.fc2):
            init.orthogonal(layer, bias=0.0)
        self.activation = F.gelu if config.activation == "gelu" else F.relu
        self.norm = make_norm(config.norm_kind, width)
        self.out_norm = make_norm(config.norm_kind, width, "fc2" in config.out_norm)
        self.scale = make_scale(width, config.layer_scale)

    def forward(self, x: Tensor) -> Tensor:
        """Return the new states."""
        return x + self.scale(self.out_norm(self.fc2(self.activation(self.fc1(self.norm(x))))))  # type: ignore[no-any-return]
