"""The linear layer whose products are quantised. Parameters and state dict are those of the layer that it replaces."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from snowflake.numerics.gemm import QuantisedGemm


class QuantisedLinear(nn.Linear):
    """y = x w^T + b with the product by a `QuantisedGemm`, the sum in float32.

    Args:
        linear: the layer to replace; its parameters are shared, not copied.
        gemm: computes the product.

    Shapes:
        (..., K) -> (..., N)
    """

    def __init__(self, linear: nn.Linear, gemm: QuantisedGemm) -> None:
        nn.Module.__init__(self)
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.weight = linear.weight
        self.bias = linear.bias
        self.gemm = gemm
        self.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer."""
        y = self.gemm(input, self.weight)
        return y if self.bias is None else y + self.bias

    def plain(self) -> nn.Linear:
        """Return an ordinary layer with the same parameters."""
        linear = cast(nn.Linear, nn.utils.skip_init(nn.Linear, self.in_features, self.out_features, bias=False))
        linear.weight, linear.bias = self.weight, self.bias
        return linear.train(self.training)
