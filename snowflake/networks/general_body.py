"""The arrays of one body under the feature set `general`: slots that may be missing, controls on several nodes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from agents.errors import UserError
from snowflake.config.policy import PolicyConfig
from snowflake.graph import JOINT_SLOTS, MorphologyGraph
from snowflake.networks.body import BodyIndices


class GeneralBodyIndices(BodyIndices):
    """Gathers fixed slots, a missing one as 0; hands out static features; reads controls off several nodes.

    Args:
        graph: the body.
        config: as for `BodyIndices`.

    Attributes:
        root_class: group of the root in statistics of its own. (1,) int64
        root_mask: which slots of the root the body has. (F_root,) bool
        joint_mask: which slots of each joint it has. (V - 1, F_joint) bool
        readout: rows that average (A) and that take the signed mean (A) of a control's nodes. (2 A, V) float32

    Raises:
        UserError: the official code's wiring of actuators is asked for, which has no meaning here.
    """

    root_class: Tensor
    root_mask: Tensor
    joint_mask: Tensor
    root_static: Tensor
    joint_static: Tensor
    actuator_static: Tensor
    act_columns: Tensor
    shared_columns: Tensor
    shared_mean: Tensor
    readout: Tensor

    def __init__(self, graph: MorphologyGraph, config: PolicyConfig) -> None:
        if config.actuator_wiring == "official":
            raise UserError(
                f"policy.actuator_wiring = 'official' reproduces a defect of the papers' code on Centipedes, and "
                f"{graph.name or 'this body'} has the features of any robot: set it to 'correct'"
            )
        super().__init__(graph, config)
        self.obs_dim = graph.obs_dim
        root_mask, joint_mask = graph.slot_masks()
        self._index("root_class", np.zeros(1))
        self._constant("root_mask", root_mask)
        self._constant("joint_mask", joint_mask)
        for name in ("root_static", "joint_static", "actuator_static"):
            self._constant(name, getattr(graph, name))
        # What is missing reads one more column on the right, which is 0; after it come the means of shared activations.
        nodes, columns = np.unique(graph.shared_act[0]), np.unique(graph.shared_act[1])
        joint_columns = _padded(graph.joint_columns, graph.obs_dim)
        joint_columns[nodes - 1, JOINT_SLOTS.index("act")] = graph.obs_dim + 1 + np.arange(len(nodes))
        mean = np.zeros((len(columns), len(nodes)), dtype=np.float32)
        for node, column in graph.shared_act.T:
            share = np.count_nonzero(graph.shared_act[0] == node)
            mean[np.searchsorted(columns, column), np.searchsorted(nodes, node)] = 1.0 / share
        self._index("root_columns", _padded(graph.root_columns, graph.obs_dim))
        self._index("joint_columns", joint_columns.reshape(-1))
        self._index("act_columns", _padded(graph.act_columns, graph.obs_dim))
        self._index("shared_columns", columns)
        self._constant("shared_mean", mean)
        self._constant("readout", _readout(graph))
        self.has_activations = bool((graph.act_columns >= 0).any())

    def _constant(self, name: str, value: np.ndarray) -> None:
        self.register_buffer(name, torch.tensor(value), persistent=False)

    def gather(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """See `BodyIndices.gather`; a slot that the body lacks is 0."""
        padded = F.pad(obs[:, : self.obs_dim], (0, 1))
        if len(self.shared_columns):
            padded = torch.cat([padded, obs.index_select(1, self.shared_columns) @ self.shared_mean], dim=1)
        joint = padded.index_select(1, self.joint_columns).view(len(obs), self.num_joints, self.joint_features)
        return padded.index_select(1, self.root_columns), joint

    def add_static(self, root: Tensor, joint: Tensor) -> tuple[Tensor, Tensor]:
        """Append the static features to (normalised) inputs; see `BodyIndices.add_static`."""
        rows = len(root)
        return (
            torch.cat([root, self.root_static.expand(rows, -1)], dim=-1),
            torch.cat([joint, self.joint_static[:, None, :].expand(-1, rows, -1)], dim=-1),
        )

    def activations(self, obs: Tensor) -> Tensor | None:
        """See `BodyIndices.activations`."""
        if not self.has_activations:
            return None
        return F.pad(obs[:, : self.obs_dim], (0, 1)).index_select(1, self.act_columns).t()[:, :, None]

    def read_out(self, states: Tensor, activations: Tensor | None) -> Tensor:
        """Return what the decoder reads, [mean; signed mean of a control's nodes; its static features; activation].

        Args:
            states: (V, N, H).
            activations: (A, N, 1), or None for zeros.

        Returns:
            (A, N, 2 H + S_actuator + 1).
        """
        controls, rows, size = len(self.actuator_static), states.shape[1], states.shape[-1]
        mean, signed = (self.readout @ states.flatten(1)).view(2, controls, rows, size)
        static = self.actuator_static[:, None, :].expand(-1, rows, -1)
        act = states.new_zeros(1, 1, 1).expand(controls, rows, 1) if activations is None else activations
        return torch.cat([mean, signed, static, act], dim=-1)


def _padded(columns: np.ndarray, zero_column: int) -> np.ndarray:
    return np.where(columns < 0, zero_column, columns)


def _readout(graph: MorphologyGraph) -> np.ndarray:
    control, node = graph.attachment
    matrix = np.zeros((2, graph.act_dim, graph.num_nodes), dtype=np.float32)
    matrix[0, control, node] = 1.0 / np.bincount(control, minlength=graph.act_dim)[control]
    matrix[1, control, node] = graph.attachment_weight
    return matrix.reshape(-1, graph.num_nodes)
