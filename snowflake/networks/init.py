"""Initial weights, each drawn from an explicit generator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_SHARED_SEED = 1234  # the constant of the official code

MLP_BIAS = 0.01
"""Initial bias of the graph networks' linear layers; the GRU's are zero."""


class Initializer:
    """Fills weights in place, as NerveNet (Wang et al. 2018) and Snowflake (Blake et al. 2021) do.

    Args:
        scheme: `"independent"`, or `"shared_seed"`: matrices are drawn from a constant seed each, so that all of one
            shape start equal, in every run, which is what the official code does.
        generator: source of all draws but the matrices of `"shared_seed"`.
    """

    def __init__(self, scheme: str, generator: torch.Generator) -> None:
        self._shared = scheme == "shared_seed"
        self._generator = generator

    def _matrix_generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(_SHARED_SEED) if self._shared else self._generator

    def seed(self) -> int:
        """Return a seed for a module that fills its weights from the global generator."""
        return int(torch.randint(2**31, (), generator=self._matrix_generator()))

    def orthogonal(self, layer: nn.Linear, *, blocks: int = 1, bias: float = MLP_BIAS) -> None:
        """Make the weight orthogonal with gain 1, block by block of output rows, and the bias constant.

        Args:
            layer: the layer.
            blocks: how many matrices of equal height the weight stacks.
            bias: value of the bias, if there is one.
        """
        for block in layer.weight.chunk(blocks, dim=0):
            if block.numel():
                nn.init.orthogonal_(block, generator=self._matrix_generator())
        if layer.bias is not None:
            nn.init.constant_(layer.bias, bias)

    def normc(self, layer: nn.Linear, norm: float) -> None:
        """Draw N(0, 1), scale the weights of every output unit to Euclidean length `norm`; bias zero."""
        with torch.no_grad():
            layer.weight.normal_(generator=self._matrix_generator())
            layer.weight.mul_(norm / layer.weight.norm(dim=1, keepdim=True))
        nn.init.zeros_(layer.bias)

    def table(self, table: Tensor) -> None:
        """Draw N(0, 1) and scale every column of a (classes, width) table to unit length."""
        with torch.no_grad():
            table.normal_(generator=self._generator)
            table.div_(table.norm(dim=0, keepdim=True))
