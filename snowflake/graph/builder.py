"""From a compiled model to its graph, by ids alone.

One root node, one node for every other joint, and a link wherever two joints meet at a body, after NerveNet (Wang et
al. 2018) and Snowflake (Blake et al. 2021). This file holds the way in and the rules of the papers' feature set;
`general` has the rules for any robot.
"""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from agents.errors import UserError
from envs.observation import BODY, JOINT, ObservationLayout
from envs.robot import Robot, display_name, find_robot
from snowflake.graph.edges import tree_edges
from snowflake.graph.general import build_general_graph
from snowflake.graph.morphology import GENERAL_CLASSES, JOINT_NODE, PAPER_CLASSES, ROOT_NODE, MorphologyGraph

_OBJ = mujoco.mjtObj
_JOINT_TRANSMISSIONS = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_JOINT_TYPES = {
    int(mujoco.mjtJoint.mjJNT_HINGE): "hinge",
    int(mujoco.mjtJoint.mjJNT_SLIDE): "slide",
    int(mujoco.mjtJoint.mjJNT_BALL): "ball",
}


def build_graph(
    model: mujoco.MjModel,
    layout: ObservationLayout,
    node_class: Sequence[str] | None = None,
    name: str = "",
    robot: Robot | None = None,
    equality_edges: bool = False,
) -> MorphologyGraph:
    """Build the graph of a body from its compiled model.

    The root merges the top body of the actuated tree with that body's unactuated joints (a free joint; the slides and
    the hinge of a planar body). Bodies without joints count as part of the nearest moving body above them. Joints are
    linked so: (a) the first joint of a body to the first joint of the moving body above it, or to the root; (b) further
    joints of a body to its first; (c) further joints of the top body to the root.

    Under the feature set `general` any robot has a graph. A control that acts on several nodes is counted with the
    class, for its log standard deviation, of the attached joint whose class comes first in the vocabulary; with the
    root's if it acts on the root alone.

    Args:
        model: the compiled body.
        layout: what each column of its observation is; its feature set decides the rules.
        node_class: class of every joint id (length `model.njnt`), as the body's generator knows it, for `paper`. The
            classes follow from joint type and actuation where none is given, or where one lies outside the papers'
            vocabulary, and always under `general`.
        name: name of the body, for messages and reports.
        robot: the actuated tree, for `general`; found in the model if not given.
        equality_edges: under `general`, also link joints that an equality constraint ties together.

    Raises:
        UserError: under `general`, what `envs.robot.find_robot` refuses; under `paper`, no actuator, an actuator that
            drives no hinge, slide or ball joint, two on one joint, several separately actuated trees, or joints whose
            observations differ in width.
    """
    if layout.feature_set == "general":
        return build_general_graph(model, layout, robot or find_robot(model, name=name), name, equality_edges)
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
        edge_index=tree_edges(model, top, joints),
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
        what = f"{label}: actuator {display_name(model, _OBJ.mjOBJ_ACTUATOR, actuator)!r}"
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
        names = ", ".join(repr(display_name(model, _OBJ.mjOBJ_BODY, int(top))) for top in tops)
        raise UserError(
            f"{label} has {len(tops)} actuated trees (top bodies {names}): a policy serves one, split the file"
        )
    return int(tops[0])


def _node_joints(model: mujoco.MjModel, top: int, actuated: np.ndarray) -> np.ndarray:
    """Return the joints that are nodes: all of the tree but the top body's unactuated ones. (V - 1,) int64."""
    in_tree = model.body_rootid[model.jnt_bodyid] == top
    merged = (model.jnt_bodyid == top) & ~np.isin(np.arange(model.njnt), actuated)
    return np.flatnonzero(in_tree & ~merged)


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
            other, first = (display_name(model, _OBJ.mjOBJ_JOINT, int(j)) for j in (joint, joints[0]))
            raise UserError(
                f"{label}: joint {other!r} observes {len(these)} columns where joint {first!r} observes "
                f"{len(features[0])}: feature set {layout.feature_set!r} serves hinges and slides only"
            )
    return np.stack(rows)
