"""What enters the memory in one step: normalised inputs of the nodes and what their controls last did."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from snowflake.graph import MorphologyGraph
from snowflake.networks.activation import tanh
from snowflake.networks.base import linear
from snowflake.networks.init import Initializer


def command_matrix(graph: MorphologyGraph) -> np.ndarray:
    """Return the matrix (V, A) float32 that brings the actions of a body's controls to the nodes they act on.

    Under the feature set `general`, by the signed share of each node in the control's moment.
    """
    matrix = np.zeros((graph.num_nodes, graph.act_dim), np.float32)
    if graph.feature_set == "general":
        control, node = graph.attachment
        np.add.at(matrix, (node, control), graph.attachment_weight)
    else:
        matrix[graph.output_node, np.arange(graph.act_dim)] = 1.0
    return matrix


class NodeTokens(nn.Module):
    """Tokens of width D, one linear map for the root and one for all joints, to which a row per node class is added.

    With scope `body` there is one token: the root's plus the mean over the joints of tanh of theirs.

    Args:
        graphs: the bodies.
        root_features: inputs of the root, F_root.
        joint_features: inputs of a joint, F_joint.
        width: D.
        scope: `limb` or `body`.
        init: fills the weights.

    Shapes:
        (N, F_root), (V - 1, N, F_joint), (N, A) -> (V, N, D), or (1, N, D) with scope `body`
    """

    def __init__(
        self,
        graphs: tuple[MorphologyGraph, ...],
        root_features: int,
        joint_features: int,
        width: int,
        scope: str,
        init: Initializer,
    ) -> None:
        super().__init__()
        self.scope = scope
        self.root = linear(root_features + 1, width)
        self.joint = linear(joint_features + 1, width)
        self.table = nn.Parameter(torch.empty(len(graphs[0].vocabulary), width))
        init.orthogonal(self.root)
        init.orthogonal(self.joint)
        init.table(self.table)
        for k, graph in enumerate(graphs):
            self.register_buffer(f"command_{k}", torch.tensor(command_matrix(graph)), persistent=False)
            self.register_buffer(f"class_{k}", torch.tensor(graph.node_class[1:]).long(), persistent=False)

    def forward(self, root: Tensor, joint: Tensor, actions: Tensor, k: int) -> Tensor:
        """Return the tokens of body k; ``actions`` may have more columns than it has controls."""
        matrix = self.get_buffer(f"command_{k}")
        command = (actions[:, : matrix.shape[1]] @ matrix.t()).t()[..., None]  # (V, N, 1)
        first = self.root(torch.cat([root, command[0]], dim=-1))[None]
        if len(joint) == 0:
            return first
        rows = self.table.index_select(0, self.get_buffer(f"class_{k}"))[:, None]
        others = self.joint(torch.cat([joint, command[1:]], dim=-1)) + rows
        if self.scope == "body":
            return first + tanh(others).mean(dim=0, keepdim=True)
        return torch.cat([first, others])
