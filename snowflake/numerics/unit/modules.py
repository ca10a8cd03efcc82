"""Unit-scaled forms of the layers of the graph and the flat networks, with the names and shapes of their parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from snowflake.numerics.unit import functional as U
from snowflake.numerics.unit.scale import scale

BRANCH, GATES = 2.0, 3.0
"""Backward factors in the GRU, of the branch through candidate and gates, and of the gates in it once more: the
candidate passes on about half of the gradient, the gates about a quarter of that."""


class UnitLinear(nn.Linear):
    """An `nn.Linear` scaled by `functional.linear`; its weights start at N(0, 1), its bias at 0.

    Args:
        layer: gives the parameters, which are taken over, not copied.
        rows: M, see `functional.linear`.
        kind: `"hidden"`; `"input"`, whose fan-in does not grow with the network; or `"readout"`.

    Attributes:
        gemm: the product, for instance in FP8; None for the plain one.
    """

    def __init__(self, layer: nn.Linear, rows: float, kind: str = "hidden") -> None:
        super().__init__(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.rows, self.kind = rows, kind
        self.gemm: U.Gemm | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., K) to (..., N)."""
        readout = self.kind == "readout"
        return U.linear(input, self.weight, self.bias, readout=readout, rows=self.rows, gemm=self.gemm)

    def extra_repr(self) -> str:
        """See `nn.Module.extra_repr`."""
        return f"{super().extra_repr()}, kind={self.kind}"


class UnitMLP(nn.Module):
    """Linear layers with scaled tanh between them.

    Args:
        layers: first to last.
        final_tanh: whether tanh follows the last layer too.
        pool: factors on the input and on its gradient; if they differ, the input must be a cut edge.

    Shapes:
        (..., K) -> (..., N)
    """

    def __init__(
        self, layers: Sequence[UnitLinear], *, final_tanh: bool, pool: tuple[float, float] = (1.0, 1.0)
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_tanh, self.pool = final_tanh, pool

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers."""
        x = scale(x, *self.pool)
        for layer in self.layers[:-1]:
            x = U.tanh(layer(x))
        x = self.layers[-1](x)
        return U.tanh(x) if self.final_tanh else x


class UnitEncoder(nn.Module):
    """The encoder: rows of the node-class table beside scaled tanh of a linear map of the inputs.

    Args:
        table: (classes, H // 2), N(0, 1) at first.
        root: layer of the root's inputs.
        joint: layer of the joints' inputs.
        lookups: rows of the table used in one pass.

    Shapes:
        (N, F_root), (N, V - 1, F_joint), (V,) -> (V, N, H)
    """

    def __init__(self, table: nn.Parameter, root: UnitLinear, joint: UnitLinear, lookups: float) -> None:
        super().__init__()
        self.table, self.root, self.joint = table, root, joint
        self.lookups = max(lookups, 1.0)

    def forward(self, root: Tensor, joint: Tensor, node_class: Tensor) -> Tensor:
        """Encode normalised inputs."""
        inputs = U.tanh(torch.cat([self.root(root)[None], self.joint(joint)]))
        table = scale(self.table, 1.0, (len(self.table) / self.lookups) ** 0.5)
        rows = table.index_select(0, node_class)[:, None, :].expand(-1, len(root), -1)
        return torch.cat([rows, inputs], dim=-1)


class UnitGRU(nn.Module):
    """The update of a state h by a message m, reset gate before the product, with scaled sums and scaled tanh.

    z, r = sigmoid((W m + U h) / sqrt 2), u = c tanh((Wu m + Uu (r * h)) / sqrt 2), h' = z h + (1 - z) u. Gates and
    blend are not scaled: a factor that makes the blend of independent states unit would let the state grow where z
    is near 1. The way through u, z and r is a residual branch in backward: `BRANCH` multiplies its gradient where it
    joins the state and divides it where it leaves m and h, so weights see a larger gradient and states the true one.
    `GATES` does the same from the gates to U h, which is shared with no candidate.

    Shapes:
        (..., H), (..., H) -> (..., H)
    """

    def __init__(self, message: UnitLinear, gates: UnitLinear, candidate: UnitLinear) -> None:
        super().__init__()
        self.message, self.gates, self.candidate = message, gates, candidate

    def forward(self, message: Tensor, state: Tensor) -> Tensor:
        """Return the new state."""
        size = state.shape[-1]
        inner = scale(state, 1.0, 1.0 / BRANCH)
        gates, candidate = self.message(scale(message, 1.0, 1.0 / BRANCH)).split([2 * size, size], dim=-1)
        gates = U.add(scale(gates, 1.0, 1.0 / GATES), self.gates(scale(inner, 1.0, 1.0 / GATES)))
        keep, reset = scale(torch.sigmoid(gates), 1.0, GATES).chunk(2, dim=-1)
        candidate = U.tanh(U.add(candidate, self.candidate(reset * inner)))
        return torch.lerp(scale(candidate, 1.0, BRANCH), state, scale(keep, 1.0, BRANCH))
