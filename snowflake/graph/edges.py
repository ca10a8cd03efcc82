"""The links of a graph: those of the tree of joints, and those that equality constraints add."""

from __future__ import annotations

from itertools import combinations, product

import mujoco
import numpy as np

from envs.robot import Robot

_EQ, _WRAP = mujoco.mjtEq, mujoco.mjtWrap
# As integers: a NumPy integer is never found `in` a tuple of MuJoCo's enumeration values.
_BETWEEN_BODIES = (int(_EQ.mjEQ_CONNECT), int(_EQ.mjEQ_WELD))
_AROUND_GEOMS = (int(_WRAP.mjWRAP_SPHERE), int(_WRAP.mjWRAP_CYLINDER))


def tree_edges(model: mujoco.MjModel, top: int, joints: np.ndarray) -> np.ndarray:
    """Link every joint node to one neighbour nearer the root, both ways.

    Args:
        model: the compiled body.
        top: top body of the tree.
        joints: joints that are nodes, ascending; node 1 is the first.

    Returns:
        (2, 2 (V - 1)) int64.
    """
    node_of_joint = {int(joint): node for node, joint in enumerate(joints, start=1)}
    links = []
    for joint, node in node_of_joint.items():
        body, neighbour = int(model.jnt_bodyid[joint]), 0
        if body != top:
            first = int(model.body_jntadr[body])
            if joint != first:
                neighbour = node_of_joint[first]
            else:
                parent = moving_parent(model, body, top)
                if parent != top:
                    neighbour = node_of_joint[int(model.body_jntadr[parent])]
        links += [(node, neighbour), (neighbour, node)]
    return as_edges(links)


def moving_parent(model: mujoco.MjModel, body: int, top: int) -> int:
    """Return the nearest body above that carries joints, or the top body."""
    parent = int(model.body_parentid[body])
    while parent != top and model.body_jntnum[parent] == 0:
        parent = int(model.body_parentid[parent])
    return parent


def equality_links(model: mujoco.MjModel, robot: Robot) -> set[tuple[int, int]]:
    """Return the pairs of nodes, smaller first, that equality constraints of the robot tie together.

    `connect` and `weld` tie the first joints of the two moving bodies (the root for the top body); `joint` two joints;
    `tendon` every joint of the one tendon to every joint of the other, or those of a single tendon to each other. What
    ties a node to itself, to the world or to another tree, deformable bodies, and constraints that are switched off at
    the start add nothing.

    Args:
        model: the compiled body.
        robot: its actuated tree.
    """
    pairs: set[tuple[int, int]] = set()
    for equality in np.flatnonzero(model.eq_active0):
        kind = int(model.eq_type[equality])
        first, second = int(model.eq_obj1id[equality]), int(model.eq_obj2id[equality])
        if kind in _BETWEEN_BODIES:
            if model.eq_objtype[equality] == mujoco.mjtObj.mjOBJ_SITE:
                first, second = int(model.site_bodyid[first]), int(model.site_bodyid[second])
            found = product(_of_body(model, robot, first), _of_body(model, robot, second))
        elif kind == _EQ.mjEQ_JOINT and second >= 0:
            found = product(_of_joint(model, robot, first), _of_joint(model, robot, second))
        elif kind == _EQ.mjEQ_TENDON and second >= 0:
            found = product(_of_tendon(model, robot, first), _of_tendon(model, robot, second))
        elif kind == _EQ.mjEQ_TENDON:
            found = combinations(sorted(_of_tendon(model, robot, first)), 2)  # type: ignore[assignment]
        else:
            continue
        pairs |= {(min(pair), max(pair)) for pair in found if pair[0] != pair[1]}
    return pairs


def add_links(edges: np.ndarray, pairs: set[tuple[int, int]]) -> np.ndarray:
    """Return edges (2, E) with the pairs added both ways, but those that are there already. int64."""
    known = set(map(tuple, edges.T.tolist()))
    links = [link for a, b in sorted(pairs) if (a, b) not in known for link in ((a, b), (b, a))]
    return np.concatenate([edges, as_edges(links)], axis=1)


def as_edges(links: list[tuple[int, int]]) -> np.ndarray:
    """Return a list of (sender, receiver) as (2, E) int64, E may be 0."""
    return np.array(links, dtype=np.int64).reshape(-1, 2).T


def _of_joint(model: mujoco.MjModel, robot: Robot, joint: int) -> set[int]:
    """Return the node of a joint, none if it is not the robot's."""
    if joint in robot.root_joints:
        return {0}
    return {1 + int(np.searchsorted(robot.node_joints, joint))} if joint in robot.node_joints else set()


def _of_body(model: mujoco.MjModel, robot: Robot, body: int) -> set[int]:
    moving = int(robot.moving_body[body])
    if moving == robot.root_body:
        return {0}
    return set() if moving < 0 else _of_joint(model, robot, int(model.body_jntadr[moving]))


def _of_tendon(model: mujoco.MjModel, robot: Robot, tendon: int) -> set[int]:
    nodes: set[int] = set()
    for wrap in range(model.tendon_adr[tendon], model.tendon_adr[tendon] + model.tendon_num[tendon]):
        kind, element = int(model.wrap_type[wrap]), int(model.wrap_objid[wrap])
        if kind == _WRAP.mjWRAP_JOINT:
            nodes |= _of_joint(model, robot, element)
        elif kind == _WRAP.mjWRAP_SITE:
            nodes |= _of_body(model, robot, int(model.site_bodyid[element]))
        elif kind in _AROUND_GEOMS:
            nodes |= _of_body(model, robot, int(model.geom_bodyid[element]))
    return nodes
