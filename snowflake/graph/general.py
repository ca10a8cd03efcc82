"""The graph of any robot, for the feature set `general`: fixed slots, static features, controls on several nodes."""

from __future__ import annotations

import mujoco
import numpy as np

from envs.observation import ACTUATOR, BODY, JOINT, ROOT, ObservationLayout
from envs.robot import Robot
from snowflake.graph.edges import add_links, equality_links, tree_edges
from snowflake.graph.moments import control_moments
from snowflake.graph.morphology import (
    GENERAL_CLASSES,
    JOINT_NODE,
    JOINT_SLOTS,
    MISSING,
    ROOT_NODE,
    ROOT_SLOTS,
    MorphologyGraph,
)
from snowflake.graph.rest import RestPose
from snowflake.graph.static import actuator_static, joint_static, root_static

_JOINT_TYPES = {
    int(mujoco.mjtJoint.mjJNT_HINGE): "hinge",
    int(mujoco.mjtJoint.mjJNT_SLIDE): "slide",
    int(mujoco.mjtJoint.mjJNT_BALL): "ball",
}

_Columns = dict[tuple[int, int, str], int]  # owner kind, owner id, feature -> column


def build_general_graph(
    model: mujoco.MjModel, layout: ObservationLayout, robot: Robot, name: str, equality_edges: bool
) -> MorphologyGraph:
    """Build the graph of a robot; see `build_graph`."""
    joints = robot.node_joints
    attached = _attached_nodes(robot)
    classes = _classes(model, robot, attached)
    edges = tree_edges(model, robot.root_body, joints)
    if equality_edges:
        edges = add_links(edges, equality_links(model, robot))
    columns = _columns(layout)
    joint_columns, shared_act = _joint_columns(model, columns, robot, attached)
    rest = RestPose(model, robot)
    moments = control_moments(model, rest, attached)
    return MorphologyGraph(
        name=name,
        vocabulary=GENERAL_CLASSES,
        feature_set=layout.feature_set,
        obs_dim=layout.size,
        act_dim=len(robot.controls),
        node_type=np.array([ROOT_NODE] + [JOINT_NODE] * len(joints)),
        node_class=classes,
        joint_id=np.array([-1, *joints]),
        edge_index=edges,
        root_columns=_root_columns(columns, robot),
        joint_columns=joint_columns,
        output_node=np.array([_output_node(classes, nodes) for nodes in attached]),
        act_columns=np.array([columns.get((ACTUATOR, int(a), "act_0"), MISSING) for a in robot.actuators]),
        shared_act=shared_act,
        attachment=np.array([(control, node) for control, nodes in enumerate(attached) for node in nodes]).T,
        attachment_weight=moments.share,
        root_static=root_static(model, rest, attached),
        joint_static=joint_static(model, rest, attached),
        actuator_static=actuator_static(model, rest, attached, moments),
    )


def _attached_nodes(robot: Robot) -> list[list[int]]:
    """Return the nodes that each control acts on, ascending."""
    node_of_joint = {-1: 0} | {int(joint): node for node, joint in enumerate(robot.node_joints, start=1)}
    return [sorted({node_of_joint[joint] for joint in joints}) for joints in robot.attachments]


def _classes(model: mujoco.MjModel, robot: Robot, attached: list[list[int]]) -> np.ndarray:
    actuated = {node for nodes in attached for node in nodes}
    kinds = ["root"]
    for node, joint in enumerate(robot.node_joints, start=1):
        kind = _JOINT_TYPES.get(int(model.jnt_type[joint]))
        kinds.append(f"{kind}_{'actuated' if node in actuated else 'passive'}" if kind else "other")
    return np.array([GENERAL_CLASSES.index(kind) for kind in kinds])


def _output_node(classes: np.ndarray, nodes: list[int]) -> int:
    """Return the attached joint of the lowest class, the root if there is none: the order of siblings has no say."""
    return min((node for node in nodes if node), key=lambda node: (classes[node], node), default=0)


def _columns(layout: ObservationLayout) -> _Columns:
    owners = zip(layout.owner_kind.tolist(), layout.owner_id.tolist(), layout.features, strict=True)
    return {owner: column for column, owner in enumerate(owners)}


def _root_columns(columns: _Columns, robot: Robot) -> np.ndarray:
    kinds = [BODY if slot.startswith("contact") else ROOT for slot in ROOT_SLOTS]
    found = [columns.get((kind, robot.root_body, slot), MISSING) for kind, slot in zip(kinds, ROOT_SLOTS, strict=True)]
    return np.array(found)


def _joint_columns(
    model: mujoco.MjModel, columns: _Columns, robot: Robot, attached: list[list[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return `MorphologyGraph.joint_columns` and `.shared_act`."""
    activations: dict[int, list[int]] = {}
    for actuator, nodes in dict(zip(robot.actuators.tolist(), attached, strict=True)).items():
        column = columns.get((ACTUATOR, actuator, "act_0"), MISSING)
        if column != MISSING:
            for node in nodes:
                activations.setdefault(node, []).append(column)
    rows, shared = [], []
    for node, joint in enumerate(robot.node_joints.tolist(), start=1):
        body = int(model.jnt_bodyid[joint])
        row = [
            columns.get((BODY, body, slot) if slot.startswith("contact") else (JOINT, joint, slot), MISSING)
            for slot in JOINT_SLOTS[:-1]
        ]
        acts = activations.get(node, [])
        rows.append([*row, acts[0] if len(acts) == 1 else MISSING])
        shared += [(node, column) for column in acts if len(acts) > 1]
    return np.array(rows, dtype=np.int64).reshape(-1, len(JOINT_SLOTS)), np.array(shared, np.int64).reshape(-1, 2).T
