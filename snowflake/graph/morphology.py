"""The graph of a body as arrays, and its forms for PyTorch Geometric and JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.errors import UserError

if TYPE_CHECKING:
    from torch_geometric.data import Data

ROOT_NODE, JOINT_NODE = 0, 1
"""Values of `MorphologyGraph.node_type`."""

PAPER_CLASSES = ("root", "lefthip", "ankle", "righthip", "body", "bodyupdown")
"""Node classes of the papers' Centipedes, for bodies whose generator supplies them."""

GENERAL_CLASSES = (
    "root",
    "hinge_actuated",
    "hinge_passive",
    "slide_actuated",
    "slide_passive",
    "ball_actuated",
    "ball_passive",
    "other",
)
"""Node classes of any other body: type of the joint, actuated or not."""


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}_{i}" for i in range(count))


ROOT_SLOTS = (
    "height",
    *_numbered("rot", 6),
    *_numbered("linvel", 3),
    *_numbered("angvel", 3),
    *_numbered("contact", 6),
    *_numbered("command", 3),
)
"""What the root of any body reads under the feature set `general`; a feature that a body lacks reads 0."""

JOINT_SLOTS = (*_numbered("pos", 6), *_numbered("vel", 3), *_numbered("contact", 6), "act")
"""What a joint reads under `general`; `act` is the mean first activation of the actuators attached to it."""

MISSING = -1
"""Entry of a column array for a feature that the body lacks."""


@dataclass(frozen=True, eq=False)
class MorphologyGraph:
    """A body as numbers, for networks. Node 0 is the root; the joints follow in joint-id order.

    The static features and the attachments belong to the feature set `general`; under `paper` they are empty.

    Attributes:
        name: name of the body.
        vocabulary: names of the node classes; `"root"` first.
        feature_set: name of the observation's feature set.
        obs_dim: columns of the observation, D.
        act_dim: number of controls, A.
        node_type: `ROOT_NODE` or `JOINT_NODE`. (V,) int64, as are all arrays here but those said to be float32
        node_class: index into `vocabulary`. (V,)
        joint_id: joint of a node, -1 for the root. (V,)
        edge_index: directed edges, row 0 the sender, row 1 the receiver; every link appears in both directions. (2, E)
        root_columns: columns of the observation that the root reads; under `general` by `ROOT_SLOTS`, -1 where the body
            lacks the feature, which then reads 0. (F_root,)
        joint_columns: columns that each joint node reads, features in the same order for all; under `general` by
            `JOINT_SLOTS`, with -1 as above. (V - 1, F_joint)
        output_node: node that each control drives, by control; where it drives several, the one whose class gives the
            control its log standard deviation (see `build_graph`). (A,)
        act_columns: column of the first activation of each control's actuator, -1 for none. (A,)
        shared_act: joint nodes with several activations, whose slot `act` reads their mean: row 0 the node, row 1 a
            column; -1 stands in `joint_columns`. (2, Q)
        attachment: row 0 a control, ascending, row 1 a node that it acts on; every control has at least one. (2, P)
        attachment_weight: share of the node in the control's moment at the reference pose `qpos0`, with its sign:
            absolute values sum to 1 for every control. (P,) float32
        root_static: static features of the root, by `ROOT_STATIC`. (S_root,) float32
        joint_static: static features of the joints, by `JOINT_STATIC`. (V - 1, S_joint) float32
        actuator_static: static features of the controls, by `ACTUATOR_STATIC`. (A, S_actuator) float32
    """

    name: str
    vocabulary: tuple[str, ...]
    feature_set: str
    obs_dim: int
    act_dim: int
    node_type: np.ndarray
    node_class: np.ndarray
    joint_id: np.ndarray
    edge_index: np.ndarray
    root_columns: np.ndarray
    joint_columns: np.ndarray
    output_node: np.ndarray
    act_columns: np.ndarray = field(default_factory=lambda: np.zeros(0))
    shared_act: np.ndarray = field(default_factory=lambda: np.zeros((2, 0)))
    attachment: np.ndarray = field(default_factory=lambda: np.zeros((2, 0)))
    attachment_weight: np.ndarray = field(default_factory=lambda: np.zeros(0))
    root_static: np.ndarray = field(default_factory=lambda: np.zeros(0))
    joint_static: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    actuator_static: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        object.__setattr__(self, "vocabulary", tuple(self.vocabulary))
        for key, value in vars(self).items():
            if isinstance(value, np.ndarray):
                array = np.array(value, dtype=_dtype(key))
                array.setflags(write=False)
                object.__setattr__(self, key, array)

    @property
    def num_nodes(self) -> int:
        """Number of nodes V."""
        return len(self.node_type)

    @property
    def num_edges(self) -> int:
        """Number of directed edges E."""
        return self.edge_index.shape[1]

    @property
    def unseen_columns(self) -> np.ndarray:
        """Columns of the observation that reach no node and no output. (U,) int64."""
        read = (self.root_columns, self.joint_columns.reshape(-1), self.act_columns, self.shared_act[1])
        return np.setdiff1d(np.arange(self.obs_dim), np.concatenate(read))

    def distances(self) -> np.ndarray:
        """Return the number of edges on the shortest path between all nodes, -1 where there is none. (V, V) int64."""
        adjacency = np.zeros((self.num_nodes, self.num_nodes), dtype=np.int64)
        adjacency[self.edge_index[0], self.edge_index[1]] = 1
        distance = np.full_like(adjacency, -1)
        reached = np.eye(self.num_nodes, dtype=np.int64)
        for hops in range(self.num_nodes):
            distance[(distance < 0) & (reached > 0)] = hops
            reached = np.minimum(reached @ adjacency, 1)
        return distance

    def to_data(self, obs: Any = None) -> Data:
        """Return the graph in PyTorch Geometric's form, ready for `torch_geometric.data.Batch`.

        Args:
            obs: one observation, array or tensor (D,); optional.

        Returns:
            `Data` with `edge_index` (2, E), `node_type` (V,), `node_class` (V,), `output_index` (A,), all int64 (a
            batch shifts `output_index` as it shifts edges), and, if `obs` is given, `x_root` (1, F_root) and
            `x_joint` (V - 1, F_joint), float32. Under `general` also `attachment_index` (P,), the nodes of all
            controls one control after the other, `attachment_count` (A,), how many each has, `attachment_weight` (P,),
            `mask_root` and `mask_joint`, bool, which slots the body has, `static_root` (1, S_root), `static_joint`,
            `static_actuator` and, if `obs` is given, `x_actuator` (A, 1).
        """
        import torch
        from torch_geometric.data import Data

        data = Data(
            edge_index=torch.tensor(self.edge_index),
            node_type=torch.tensor(self.node_type),
            node_class=torch.tensor(self.node_class),
            output_index=torch.tensor(self.output_node),
            num_nodes=self.num_nodes,
        )
        if self.feature_set == "general":
            mask_root, mask_joint = self.slot_masks()
            data.mask_root, data.mask_joint = torch.tensor(mask_root)[None], torch.tensor(mask_joint)
            data.attachment_index = torch.tensor(self.attachment[1])
            data.attachment_count = torch.tensor(np.bincount(self.attachment[0], minlength=self.act_dim))
            data.attachment_weight = torch.tensor(self.attachment_weight)
            data.static_root, data.static_joint = torch.tensor(self.root_static)[None], torch.tensor(self.joint_static)
            data.static_actuator = torch.tensor(self.actuator_static)
        if obs is not None:
            row = torch.as_tensor(obs, dtype=torch.float32)[: self.obs_dim]
            padded = torch.cat([row, row.new_zeros(1)])  # -1 is the last entry
            data.x_root = padded[torch.tensor(self.root_columns)][None]
            data.x_joint = padded[torch.tensor(self.joint_columns)]
            for node in np.unique(self.shared_act[0]):
                columns = self.shared_act[1, self.shared_act[0] == node]
                data.x_joint[node - 1, JOINT_SLOTS.index("act")] = padded[torch.tensor(columns)].mean()
            if self.feature_set == "general":
                data.x_actuator = padded[torch.tensor(self.act_columns)][:, None]
        return data

    def slot_masks(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which slots the body has: of the root (F_root,) and of every joint (V - 1, F_joint), bool."""
        joint = self.joint_columns != MISSING
        if self.shared_act.size:
            joint[self.shared_act[0] - 1, JOINT_SLOTS.index("act")] = True
        return self.root_columns != MISSING, joint

    def check_compatible(self, target: MorphologyGraph) -> None:
        """Require that an actor of this body fits ``target``: same feature set, node vocabulary and feature widths.

        Raises:
            UserError: it does not.
        """
        if self.feature_set != target.feature_set or self.vocabulary != target.vocabulary:
            raise UserError(
                f"a policy of {self.name!r} has node types {', '.join(self.vocabulary)}; body {target.name!r} has "
                f"{', '.join(target.vocabulary)}: choose a body of the same family, or train with --features general"
            )
        widths = [(len(g.root_columns), g.joint_columns.shape[1]) for g in (self, target)]
        if widths[0] != widths[1]:
            raise UserError(
                f"a policy of {self.name!r} reads {widths[0][0]} root and {widths[0][1]} joint features; body "
                f"{target.name!r} has {widths[1][0]} and {widths[1][1]}: choose a body of the same family"
            )

    def to_json(self) -> str:
        """Return the graph as a JSON object, all that `from_json` needs."""
        return json.dumps({key: _to_plain(value) for key, value in vars(self).items()}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> MorphologyGraph:
        """Rebuild a graph from `to_json`."""
        values: dict[str, Any] = json.loads(text)
        for one in fields(cls):
            if one.type == "np.ndarray" and one.name in values:
                values[one.name] = _from_plain(values[one.name], _dtype(one.name))
        return cls(**values)


def _dtype(key: str) -> type:
    return np.float32 if key.endswith(("_static", "_weight")) else np.int64


def _to_plain(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return value.tolist() if value.size else {"shape": value.shape}  # nested lists lose the shape of nothing


def _from_plain(value: Any, dtype: type) -> np.ndarray:
    return np.zeros(value["shape"], dtype) if isinstance(value, dict) else np.array(value, dtype=dtype)
