"""What attention knows of a body's shape: distances along its graph, as buffers outside the state dict."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from snowflake.graph import MorphologyGraph


class BodyStructure(nn.Module):
    """Distances between the nodes of one body.

    Args:
        graph: the body.
        max_hops: distance from which on all count as one.

    Attributes:
        hops: number of edges on the shortest path, at most `max_hops`; that too where there is no path. (V, V) int64
        near: which pairs are equal or linked. (V, V) bool
    """

    hops: Tensor
    near: Tensor

    def __init__(self, graph: MorphologyGraph, max_hops: int) -> None:
        super().__init__()
        distance = graph.distances()
        hops = np.minimum(np.where(distance < 0, max_hops, distance), max_hops)
        self.register_buffer("hops", torch.tensor(hops), persistent=False)
        self.register_buffer("near", torch.tensor((distance == 0) | (distance == 1)), persistent=False)
