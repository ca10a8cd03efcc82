"""The morphology graph: which parts a body has, how they touch, and which numbers belong to which part.

Built from the compiled `mujoco.MjModel` by ids alone, after NerveNet (Wang et al. 2018) and Snowflake (Blake et al.
2021): one root node, one node for every other joint, and a link wherever two joints meet at a body.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from agents.errors import UserError
from envs.observation import BODY, JOINT, ObservationLayout

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

_JOINT_TRANSMISSIONS = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_JOINT_TYPES = {
    int(mujoco.mjtJoint.mjJNT_HINGE): "hinge",
    int(mujoco.mjtJoint.mjJNT_SLIDE): "slide",
    int(mujoco.mjtJoint.mjJNT_BALL): "ball",
}


@dataclass(frozen=True, eq=False)
class MorphologyGraph:
    """A body as integers, for networks. Node 0 is the root; the joints follow in joint-id order.

    Attributes:
        name: name of the body.
        vocabulary: names of the node classes; `"root"` first.
        feature_set: name of the observation's feature set.
        obs_dim: columns of the observation, D.
        act_dim: number of actuators, A.
        node_type: `ROOT_NODE` or `JOINT_NODE`. (V,) int64, as are all arrays here
        node_class: index into `vocabulary`. (V,)
        joint_id: joint of a node, -1 for the root. (V,)
        edge_index: directed edges, row 0 the sender, row 1 the receiver; every link appears in both directions. (2, E)
        root_columns: columns of the observation that the root reads. (F_root,)
        joint_columns: columns that each joint node reads, features in the same order for all. (V - 1, F_joint)
        output_node: node that each actuator drives, by actuator id. (A,)
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "vocabulary", tuple(self.vocabulary))
        for key, value in vars(self).items():
            if isinstance(value, np.ndarray):
                array = np.array(value, dtype=np.int64)
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
        """Columns of the observation that reach no node: the world's, and jointless bodies'. (U,) int64."""
        seen = np.concatenate([self.root_columns, self.joint_columns.reshape(-1)])
        return np.setdiff1d(np.arange(self.obs_dim), seen)

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
            `x_joint` (V - 1, F_joint), float32.
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
        if obs is not None:
            row = torch.as_tensor(obs, dtype=torch.float32)
            data.x_root = row[torch.tensor(self.root_columns)][None]
            data.x_joint = row[torch.tensor(self.joint_columns)]
        return data

    def to_json(self) -> str:
        """Return the graph as a JSON object, all that `from_json` needs."""
        return json.dumps({k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(self).items()})

    @classmethod
    def from_json(cls, text: str) -> MorphologyGraph:
        """Rebuild a graph from `to_json`."""
        values: dict[str, Any] = json.loads(text)
        for field in fields(cls):
            if field.type == "np.ndarray":
                values[field.name] = np.array(values[field.name], dtype=np.int64)
        return cls(**values)


def build_graph(
    model: mujoco.MjModel,
    layout: ObservationLayout,
    node_class: Sequence[str] | None = None,
    name: str = "",
) -> MorphologyGraph:
    """Build the graph of a body from its compiled model.

    The root merges the top body of the actuated tree with that body's unactuated joints (a free joint; the slides and
    the hinge of a planar body). Bodies without joints count as part of the nearest moving body above them.

    Args:
        model: the compiled body.
        layout: what each column of its observation is.
        node_class: class of every joint id (length `model.njnt`), as the body's generator knows it. The classes follow
            from joint type and actuation where none is given, or where one lies outside the papers' vocabulary.
        name: name of the body, for messages and reports.

    Raises:
        UserError: no actuator, an actuator that drives no hinge, slide or ball joint, two on one joint, several
            separately actuated trees, or joints whose observations differ in width.
    """
    label = name or "the model"
    actuated = _actuated_joints(model, label)
    top = _top_body(model, actuated, label)
    joints = _node_joints(model, top, actuated)
    vocabulary, classes = _classes(model, joints, actuated, node_class)
    merged = np.setdiff1d(np.flatnonzero(model.jnt_bodyid == top), joints)
    node_of_joint = np.full(model.njnt, -1, dtype=np.int64)
    node_of_joint[joints] = 1 + np.arange(len(joints))
    return MorphologyGraph(
        name=name,
        vocabulary=vocabulary,
        feature_set=layout.feature_set,
        obs_dim=layout.size,
        act_dim=model.nu,
        node_type=np.array([ROOT_NODE] + [JOINT_NODE] * len(joints)),
        node_class=np.array([0, *classes]),
        joint_id=np.array([-1, *joints]),
        edge_index=_edges(model, top, joints, node_of_joint),
        root_columns=_columns(layout, merged, top),
        joint_columns=_joint_columns(model, layout, joints, label),
        output_node=node_of_joint[actuated],
    )


def _actuated_joints(model: mujoco.MjModel, label: str) -> np.ndarray:
    """Return the joint that each actuator drives. (A,) int64."""
    if model.nu == 0:
        raise UserError(f"{label} has no actuator, so there is nothing to control: add motors to its joints")
    actuated = model.actuator_trnid[:, 0].astype(np.int64)
    for actuator, joint in enumerate(actuated):
        what = f"{label}: actuator {model.actuator(actuator).name or actuator!r}"
        if model.actuator_trntype[actuator] not in _JOINT_TRANSMISSIONS:
            raise UserError(f"{what} drives no joint (but a tendon, site or body): give it a joint transmission")
        if int(model.jnt_type[joint]) not in _JOINT_TYPES:
            raise UserError(f"{what} drives the free joint of the body: give it a hinge or slide joint")
        if joint in actuated[:actuator]:
            raise UserError(f"{what} drives a joint that has an actuator already: keep one actuator per joint")
    return actuated


def _top_body(model: mujoco.MjModel, actuated: np.ndarray, label: str) -> int:
    tops = np.unique(model.body_rootid[model.jnt_bodyid[actuated]])
    if len(tops) > 1:
        names = ", ".join(repr(model.body(int(top)).name or int(top)) for top in tops)
        raise UserError(
            f"{label} has {len(tops)} actuated trees (top bodies {names}): a policy serves one, split the file"
        )
    return int(tops[0])


def _node_joints(model: mujoco.MjModel, top: int, actuated: np.ndarray) -> np.ndarray:
    """Return the joints that are nodes: all of the tree but the top body's unactuated ones. (V - 1,) int64."""
    in_tree = model.body_rootid[model.jnt_bodyid] == top
    merged = (model.jnt_bodyid == top) & ~np.isin(np.arange(model.njnt), actuated)
    return np.flatnonzero(in_tree & ~merged)


def _edges(model: mujoco.MjModel, top: int, joints: np.ndarray, node_of_joint: np.ndarray) -> np.ndarray:
    """Link every joint node to one neighbour nearer the root, both ways. (2, 2 (V - 1)) int64."""
    links = []
    for joint in joints:
        body, neighbour = int(model.jnt_bodyid[joint]), 0
        if body != top:
            first = int(model.body_jntadr[body])
            if joint != first:
                neighbour = node_of_joint[first]
            else:
                parent = _moving_parent(model, body, top)
                if parent != top:
                    neighbour = node_of_joint[model.body_jntadr[parent]]
        links += [(node_of_joint[joint], neighbour), (neighbour, node_of_joint[joint])]
    return np.array(links, dtype=np.int64).T


def _moving_parent(model: mujoco.MjModel, body: int, top: int) -> int:
    parent = int(model.body_parentid[body])
    while parent != top and model.body_jntnum[parent] == 0:
        parent = int(model.body_parentid[parent])
    return parent


def _classes(
    model: mujoco.MjModel, joints: np.ndarray, actuated: np.ndarray, node_class: Sequence[str] | None
) -> tuple[tuple[str, ...], list[int]]:
    """Return the vocabulary, and the class of each joint node as an index into it."""
    if node_class is not None:
        if len(node_class) != model.njnt:
            raise ValueError(f"node_class has {len(node_class)} entries, the model has {model.njnt} joints")
        supplied = [node_class[joint] for joint in joints]
        if set(supplied) <= set(PAPER_CLASSES[1:]):
            return PAPER_CLASSES, [PAPER_CLASSES.index(kind) for kind in supplied]
    kinds = [_JOINT_TYPES[int(model.jnt_type[j])] + ("_actuated" if j in actuated else "_passive") for j in joints]
    return GENERAL_CLASSES, [GENERAL_CLASSES.index(kind) for kind in kinds]


def _columns(layout: ObservationLayout, joints: np.ndarray, body: int) -> np.ndarray:
    """Return the columns that a node reads: its joints' in their order, then those of the body that carries them."""
    own = (layout.owner_kind == JOINT) & np.isin(layout.owner_id, joints)
    carrier = (layout.owner_kind == BODY) & (layout.owner_id == body)
    return np.concatenate([np.flatnonzero(own), np.flatnonzero(carrier)])


def _joint_columns(model: mujoco.MjModel, layout: ObservationLayout, joints: np.ndarray, label: str) -> np.ndarray:
    rows = [_columns(layout, joint, int(model.jnt_bodyid[joint])) for joint in joints]
    features = [tuple(layout.features[column] for column in row) for row in rows]
    for joint, these in zip(joints, features, strict=True):
        if these != features[0]:
            other, first = (model.joint(int(j)).name or int(j) for j in (joint, joints[0]))
            raise UserError(
                f"{label}: joint {other!r} observes {len(these)} columns where joint {first!r} observes "
                f"{len(features[0])}: feature set {layout.feature_set!r} serves hinges and slides only"
            )
    return np.stack(rows)
