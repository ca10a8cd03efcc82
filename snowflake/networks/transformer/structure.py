"""What attention knows of bodies besides their nodes' states: distances, which nodes there are, the context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snowflake.graph import MorphologyGraph


class Structure(NamedTuple):
    """The bodies of a batch of N observations: one for all, or one a row, padded to the longest.

    Attributes:
        hops: number of edges on the shortest path between nodes, clamped. (V, V) int64, or of K bodies (K, V, V)
        near: which pairs are equal or linked, True throughout the rows of padding. (V, V) or (N, V, V) bool
        context: what queries and keys are made of instead of the state, (V, H) or (N, V, H); None for the state
        visible: nodes that there are, others are padding. (N, V) bool; None for all
        body: which of the K bodies each row is. (N,) int64; None with one body for all
    """

    hops: Tensor
    near: Tensor
    context: Tensor | None = None
    visible: Tensor | None = None
    body: Tensor | None = None

    def keys(self, masked: bool) -> Tensor | None:
        """Return which keys a query may see, to be broadcast with (N, h, V, V); None for all of them.

        Args:
            masked: only the node itself and its neighbours.
        """
        real = None if self.visible is None else self.visible[:, None, None, :]
        if not masked:
            return real
        near = self.near.unsqueeze(-3)
        return near if real is None else near & real


class BodyStructures(nn.Module):
    """Structures of a network's bodies, as buffers outside the state dict.

    Args:
        graphs: the bodies.
        max_hops: distance from which on all count as one; nodes without a path between them count as so far too.
    """

    hops: Tensor
    near: Tensor
    real: Tensor

    def __init__(self, graphs: Sequence[MorphologyGraph], max_hops: int) -> None:
        super().__init__()
        self.sizes = [graph.num_nodes for graph in graphs]
        self.longest = max(self.sizes)
        hops = np.full((len(graphs), self.longest, self.longest), max_hops)
        near = np.ones_like(hops, dtype=bool)
        for k, (graph, size) in enumerate(zip(graphs, self.sizes, strict=True)):
            distance = graph.distances()
            hops[k, :size, :size] = np.minimum(np.where(distance < 0, max_hops, distance), max_hops)
            near[k, :size, :size] = (distance == 0) | (distance == 1)
        real = np.arange(self.longest) < np.array(self.sizes)[:, None]
        for name, value in (("hops", hops), ("near", near), ("real", real)):
            self.register_buffer(name, torch.tensor(value), persistent=False)

    def one(self, k: int, context: Tensor | None) -> Structure:
        """Return the structure of body k, whose context is given (V, H)."""
        size = self.sizes[k]
        return Structure(self.hops[k, :size, :size], self.near[k, :size, :size], context)

    def padded(self, bodies: Sequence[int], rows: Sequence[int], contexts: Sequence[Tensor | None]) -> Structure:
        """Return the structure of a batch of several bodies, one after the other.

        Args:
            bodies: which they are.
            rows: how many rows each has.
            contexts: the context of each (V, H), or None.
        """
        device = self.hops.device
        body = torch.repeat_interleave(torch.tensor(bodies, device=device), torch.tensor(rows, device=device))
        filled = [self.pad(c).expand(n, -1, -1) for c, n in zip(contexts, rows, strict=True) if c is not None]
        context = torch.cat(filled) if filled else None
        return Structure(self.hops, self.near[body], context, self.real[body], body)

    def pad(self, nodes: Tensor) -> Tensor:
        """Fill up the nodes of a body with zeros. (..., V, H) -> (..., longest, H)."""
        return F.pad(nodes, (0, 0, 0, self.longest - nodes.shape[-2]))
