"""The index arrays of one body, as buffers that follow the module to its device and stay out of its state dict."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks.native.rounds import Links


class _Cache:
    """Holds matrices that are easily made again, and which PyTorch can neither copy nor pickle."""

    def __init__(self) -> None:
        self.pair: tuple[Tensor, Tensor] | None = None
        self.links: tuple[Links, Links] | None = None

    def __reduce__(self) -> tuple[type[_Cache], tuple[()]]:
        return _Cache, ()


class BodyIndices(nn.Module):
    """Gathers the inputs of a body's nodes from observations, and aggregates messages along its edges.

    Args:
        graph: the body.
        config: for the kind of aggregation and the order of the outputs.

    Attributes:
        node_class: (V,) int64.
        joint_class: the same without the root. (V - 1,) int64
        output_node: node whose output is an actuator's action. (A,) int64
        output_class: class of the joint that an actuator drives. (A,) int64
        outputs_are_nodes: whether an output is read off one node, and most nodes have one.
        edge_index: sender and receiver of every edge. (2, E) int64
    """

    node_class: Tensor
    joint_class: Tensor
    output_node: Tensor
    output_class: Tensor
    edge_index: Tensor
    root_columns: Tensor
    joint_columns: Tensor
    adjacency: Tensor
    neighbours: Tensor

    def __init__(self, graph: MorphologyGraph, config: PolicyConfig) -> None:
        super().__init__()
        self.num_joints, self.joint_features = graph.joint_columns.shape
        # The official code hands the outputs to the actuators in node order, which is not actuator order.
        official = config.actuator_wiring == "official"
        output_node = np.sort(graph.output_node) if official else graph.output_node
        self._index("node_class", graph.node_class)
        self._index("joint_class", graph.node_class[1:])
        self._index("output_node", output_node)
        self.outputs_are_nodes = graph.feature_set != "general" and 2 * len(output_node) >= graph.num_nodes
        self._index("output_class", graph.node_class[graph.output_node])
        self._index("edge_index", graph.edge_index)
        self._index("root_columns", graph.root_columns)
        self._index("joint_columns", graph.joint_columns.reshape(-1))
        self.aggregation = config.aggregation
        self.alone = graph.num_nodes == 1
        if config.aggregation == "max" and not self.alone:
            self._index("neighbours", neighbour_lists(graph))
        else:
            matrix = torch.tensor(adjacency(graph, mean=config.aggregation == "mean"), dtype=torch.float32)
            self.register_buffer("adjacency", matrix, persistent=False)
        self._sparse = _Cache()

    has_activations = False
    """Whether controls have activations, which the read-out then takes."""

    def _index(self, name: str, value: np.ndarray) -> None:
        self.register_buffer(name, torch.tensor(value, dtype=torch.int64), persistent=False)

    def sparse(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the matrix that aggregates, and its transpose, (V, V), as the CPU multiplies by them fastest.

        In compressed rows where Intel's MKL is there to multiply, so that the cost grows with the edges and not with
        the square of the nodes; None, twice, where no node has a neighbour.
        """
        if self.alone:
            return None, None
        if self._sparse.pair is None or self._sparse.pair[0].dtype != self.adjacency.dtype:
            self._sparse.pair = (_rows(self.adjacency), _rows(self.adjacency.t()))
        return self._sparse.pair

    def links(self) -> tuple[Links, Links] | None:
        """Return the entries of the matrix that aggregates, and of its transpose; None without any."""
        if self.alone:
            return None
        if self._sparse.links is None or self._sparse.links[0].weight.dtype != self.adjacency.dtype:
            self._sparse.links = (Links.of(self.adjacency), Links.of(self.adjacency.t()))
        return self._sparse.links

    def gather(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs of the root (N, F_root) and of the joints (N, V - 1, F_joint) from obs (N, D or wider)."""
        joint = obs.index_select(1, self.joint_columns).view(len(obs), self.num_joints, self.joint_features)
        return obs.index_select(1, self.root_columns), joint

    def add_static(self, root: Tensor, joint: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs of the encoder: the normalised ones as they are, there are no static features.

        Args:
            root: (N, F_root).
            joint: (V - 1, N, F_joint).
        """
        return root, joint

    def activations(self, obs: Tensor) -> Tensor | None:
        """Return the activation of every control (A, N, 1) for the read-out; None where controls have none."""
        return None

    def read_out(self, states: Tensor, activations: Tensor | None) -> Tensor:
        """Return what the decoder reads of the last states (V, N, H), for every actuator: (A, N, H)."""
        return states.index_select(0, self.output_node)

    def aggregate(self, messages: Tensor) -> Tensor:
        """Return the mean, sum or maximum over every node's neighbours of their messages. (V, N, H) -> (V, N, H).

        A node without neighbours, the only one of its body, gets zeros.
        """
        if self.alone:
            return torch.zeros_like(messages)
        if self.aggregation == "max":
            return messages[self.neighbours].amax(dim=1)
        if messages.device.type == "cpu" and not torch.compiler.is_compiling():
            return _SparseSum.apply(messages, *self.sparse())  # type: ignore[no-any-return]
        return (self.adjacency @ messages.flatten(1)).view_as(messages)


class _SparseSum(torch.autograd.Function):
    """The product with a sparse matrix, the same with a gradient or without: the order of sums decides the last bit."""

    @staticmethod
    def forward(ctx: Any, messages: Tensor, forth: Tensor, back: Tensor) -> Tensor:
        ctx.back = back
        return (forth @ messages.flatten(1)).view_as(messages)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return (ctx.back @ grad.flatten(1)).view_as(grad), None, None


def _rows(matrix: Tensor) -> Tensor:
    """Return a matrix in compressed rows, or as it is where there is no MKL to multiply by such."""
    if not torch.backends.mkl.is_available():
        return matrix.contiguous()
    with warnings.catch_warnings():  # PyTorch calls this layout a beta
        warnings.simplefilter("ignore", UserWarning)
        return matrix.to_sparse_csr()


def adjacency(graph: MorphologyGraph, *, mean: bool) -> np.ndarray:
    """Return the matrix (V, V) float64 that sums, or averages, over the senders (columns) of each receiver (rows)."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    np.add.at(matrix, (graph.edge_index[1], graph.edge_index[0]), 1.0)
    return matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1.0) if mean else matrix


def neighbour_lists(graph: MorphologyGraph) -> np.ndarray:
    """Return the senders of each receiver, short lists filled up with their first entry. (V, max degree) int64.

    Every node of a morphology graph of two or more has a neighbour; a repeated entry does not change a maximum.
    """
    senders = [graph.edge_index[0, graph.edge_index[1] == node] for node in range(graph.num_nodes)]
    width = max(len(row) for row in senders)
    return np.stack([np.concatenate([row, np.repeat(row[:1], width - len(row))]) for row in senders])
