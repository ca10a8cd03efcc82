"""Which part of a compiled model is the robot: its tree of bodies, its joints, and what its controls act on.

Everything follows from the compiled model by ids; names serve messages only.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from agents.errors import UserError, nearest

ROOT_NODE = -1
"""Stands for the root in `Robot.attachments`, where other entries are joint ids."""

_TRN = mujoco.mjtTrn
_ON_JOINT = (int(_TRN.mjTRN_JOINT), int(_TRN.mjTRN_JOINTINPARENT))
# Of an orientation servo, to a ball joint or between two sites; MuJoCo has it since 4.0.
_ON_ORIENTATION = int(getattr(_TRN, "mjTRN_SO3", -1))
_ON_TENDON, _ON_SITE, _ON_CRANK, _ON_BODY = (
    int(kind) for kind in (_TRN.mjTRN_TENDON, _TRN.mjTRN_SITE, _TRN.mjTRN_SLIDERCRANK, _TRN.mjTRN_BODY)
)
_TRANSMISSIONS = {
    int(_TRN.mjTRN_JOINT): "joint",
    int(_TRN.mjTRN_JOINTINPARENT): "jointinparent",
    _ON_TENDON: "tendon",
    _ON_SITE: "site",
    _ON_CRANK: "slider-crank",
    _ON_BODY: "body",
}
_FREE = int(mujoco.mjtJoint.mjJNT_FREE)
_WRAP_JOINT, _WRAP_SITE, _WRAP_SPHERE, _WRAP_CYLINDER = (
    int(getattr(mujoco.mjtWrap, f"mjWRAP_{kind}")) for kind in ("JOINT", "SITE", "SPHERE", "CYLINDER")
)


@dataclass(frozen=True, eq=False)
class Robot:
    """The one actuated tree of a model. Arrays of ids are ascending, int64 and read-only.

    Attributes:
        root_body: top body of the tree, a child of the world.
        bodies: all bodies of the tree. (B,)
        moving_body: nearest body that carries joints, from the body itself upwards within the tree, `root_body` where
            there is none; -1 outside the tree. (nbody,)
        root_joints: joints of the root body that no actuator drives by a joint of their own (a free joint; the slides
            and the hinge of a planar body): the root node stands for them. (R,)
        node_joints: all other joints of the tree, one node each. (J,)
        controls: indices into `mjData.ctrl` of the controls that act on the tree. (A,)
        actuators: actuator of each of these controls; one actuator may own several. (A,)
        attachments: for every control, the node joints that its actuator acts on, ascending; `ROOT_NODE` (-1) stands
            for the root. Never empty.
    """

    root_body: int
    bodies: np.ndarray
    moving_body: np.ndarray
    root_joints: np.ndarray
    node_joints: np.ndarray
    controls: np.ndarray
    actuators: np.ndarray
    attachments: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            if isinstance(value, np.ndarray):
                array = np.array(value, dtype=np.int64)
                array.setflags(write=False)
                object.__setattr__(self, key, array)


@dataclass(frozen=True)
class _Target:
    """What an actuator acts on: joints themselves, and bodies (0 for the world) at which a tendon or force attaches."""

    joints: tuple[int, ...] = ()
    bodies: tuple[int, ...] = ()
    every_joint: bool = False  # of these bodies, or their first


def element_name(model: mujoco.MjModel, kind: mujoco.mjtObj, element: int) -> str:
    """Return the name of an element, `""` for one without, or whose name is no UTF-8: that is as good as none."""
    try:
        return mujoco.mj_id2name(model, kind, element) or ""
    except UnicodeDecodeError:
        return ""


def display_name(model: mujoco.MjModel, kind: mujoco.mjtObj, element: int) -> str:
    """Return the name of an element, or `"joint#7"` and the like for one without."""
    return element_name(model, kind, element) or f"{kind.name.removeprefix('mjOBJ_').lower()}#{element}"


def find_robot(model: mujoco.MjModel, root_body: str | None = None, name: str = "") -> Robot:
    """Find the actuated tree of a model and what acts on it.

    An actuator on a joint attaches to that joint; on a fixed tendon, to the joints in it; on a spatial tendon, to the
    joints of the moving bodies that carry its sites and wrapping geoms; on a site, a slider-crank or a body (adhesion),
    to the first joint of the moving body. The root stands for its merged joints and for a body without any.

    Args:
        model: any compiled model.
        root_body: top body of the tree to control, by its name or as `"body#3"`; needed where several trees are
            actuated, whose actuators then stay out of it.
        name: name of the body, for messages.

    Raises:
        UserError: no actuator, several actuated trees and no `root_body`, no such root, an actuator between two trees,
            one that moves nothing, or one of a kind that is not supported.
    """
    label = name or "the model"
    slots = [int(count) for count in model.actuator_ctrlnum]
    acting = [actuator for actuator in range(model.nactuator) if slots[actuator]]
    if not acting:
        raise UserError(f"{label} has no actuator, so there is nothing to control: add motors to its joints")
    targets = {actuator: _target(model, actuator, label) for actuator in acting}
    trees = {actuator: _trees(model, targets[actuator]) for actuator in acting}
    top = _top_body(model, trees, root_body, label)
    own = [actuator for actuator in acting if top in trees[actuator]]
    _check_one_tree(model, own, trees, label)
    bodies = np.flatnonzero(model.body_rootid == top)
    moving = _moving_bodies(model, bodies, top)
    merged, nodes = _split_joints(model, top, [targets[actuator] for actuator in own])
    controls = np.array([model.actuator_ctrladr[a] + slot for a in own for slot in range(slots[a])], dtype=np.int64)
    owners = np.repeat(own, [slots[actuator] for actuator in own])
    order = np.argsort(controls)
    attached = {actuator: _attachments(model, targets[actuator], moving, merged, nodes) for actuator in own}
    return Robot(
        root_body=top,
        bodies=bodies,
        moving_body=moving,
        root_joints=merged,
        node_joints=nodes,
        controls=controls[order],
        actuators=owners[order],
        attachments=tuple(attached[actuator] for actuator in owners[order]),
    )


def all_controls(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all controls, and the actuator that each belongs to; both (nu,), in the order of the ids."""
    owners = np.zeros(model.nu, dtype=np.int64)
    for actuator in range(model.nactuator):
        first = int(model.actuator_ctrladr[actuator])
        owners[first : first + int(model.actuator_ctrlnum[actuator])] = actuator
    return np.arange(model.nu), owners


def transmission(model: mujoco.MjModel, actuator: int) -> str:
    """Return how an actuator acts, in a word: `"joint"`, `"fixed tendon"`, `"spatial tendon"`, `"site"`, ..."""
    kind = int(model.actuator_trntype[actuator])
    if kind == _ON_TENDON:
        first = int(model.tendon_adr[model.actuator_trnid[actuator, 0]])
        return "fixed tendon" if model.wrap_type[first] == _WRAP_JOINT else "spatial tendon"
    if kind == _ON_ORIENTATION:
        return "site" if model.actuator_trnid[actuator, 1] >= 0 else "joint"
    return _TRANSMISSIONS.get(kind, f"transmission {kind}")


def _actuator(model: mujoco.MjModel, actuator: int, label: str) -> str:
    name = display_name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, actuator)
    return f"{label}: actuator {name!r} ({transmission(model, actuator)})"


def _target(model: mujoco.MjModel, actuator: int, label: str) -> _Target:
    kind, (first, second) = int(model.actuator_trntype[actuator]), model.actuator_trnid[actuator].tolist()
    if kind in _ON_JOINT or (kind == _ON_ORIENTATION and second < 0):
        return _Target(joints=(first,))
    if kind == _ON_TENDON:
        return _tendon_target(model, first)
    if kind in (_ON_SITE, _ON_ORIENTATION):
        return _Target(bodies=(int(model.site_bodyid[first]),))
    if kind == _ON_CRANK:
        return _Target(bodies=(int(model.site_bodyid[first]), int(model.site_bodyid[second])))
    if kind == _ON_BODY:
        return _Target(bodies=(first,))
    raise UserError(
        f"{_actuator(model, actuator, label)} is of a kind that is not supported: give it a joint, tendon, site or body"
    )


def _tendon_target(model: mujoco.MjModel, tendon: int) -> _Target:
    joints: list[int] = []
    bodies: list[int] = []
    first = int(model.tendon_adr[tendon])
    for wrap in range(first, first + int(model.tendon_num[tendon])):
        kind, element = model.wrap_type[wrap], int(model.wrap_objid[wrap])
        if kind == _WRAP_JOINT:
            joints.append(element)
        elif kind == _WRAP_SITE:
            bodies.append(int(model.site_bodyid[element]))
        elif kind in (_WRAP_SPHERE, _WRAP_CYLINDER):
            bodies.append(int(model.geom_bodyid[element]))
    return _Target(tuple(joints), tuple(bodies), every_joint=True)


def _trees(model: mujoco.MjModel, target: _Target) -> frozenset[int]:
    """Return the top bodies of the trees that a target is in; what cannot move (the world, posts, mocap) is in none."""
    bodies = [*model.jnt_bodyid[list(target.joints)], *target.bodies]
    return frozenset(
        int(model.body_rootid[body]) for body in bodies if model.body_weldid[body] and not _mocap(model, body)
    )


def _mocap(model: mujoco.MjModel, body: int) -> bool:
    return bool(model.body_mocapid[model.body_rootid[body]] >= 0)


def _top_body(model: mujoco.MjModel, trees: dict[int, frozenset[int]], root_body: str | None, label: str) -> int:
    for actuator, tops in trees.items():
        if not tops:
            raise UserError(
                f"{_actuator(model, actuator, label)} acts on nothing that moves: remove it, or give the body a joint"
            )
    tops = sorted(set().union(*trees.values()))
    names = {display_name(model, mujoco.mjtObj.mjOBJ_BODY, top): top for top in tops}
    listed = ", ".join(repr(name) for name in names)
    if root_body is None:
        if len(tops) == 1:
            return tops[0]
        tied = set().union(*(several for several in trees.values() if len(several) > 1))
        free = [repr(name) for name, top in names.items() if top not in tied]
        if not free:  # whichever is chosen, an actuator of it acts on another too
            _check_one_tree(model, list(trees), trees, label)
        raise UserError(
            f"{label} has {len(tops)} actuated trees, with the top bodies {listed}: choose "
            f"{'one' if len(free) == len(tops) else ' or '.join(free)} with --root-body NAME"
        )
    if root_body in names:
        return names[root_body]
    bodies = {display_name(model, mujoco.mjtObj.mjOBJ_BODY, body): body for body in range(1, model.nbody)}
    body = bodies.get(root_body, 0)
    if body:
        top = int(model.body_rootid[body])
        if top in tops:
            inside = display_name(model, mujoco.mjtObj.mjOBJ_BODY, top)
            raise UserError(f"{label}: the root body {root_body!r} is a part of {inside!r}: name the top body")
        raise UserError(f"{label}: no actuator acts on the root body {root_body!r}: choose from {listed}")
    raise UserError(f"{label}: there is no root body {root_body!r}: {nearest(root_body, tuple(names))}")


def _check_one_tree(model: mujoco.MjModel, own: list[int], trees: dict[int, frozenset[int]], label: str) -> None:
    for actuator in own:
        if len(trees[actuator]) > 1:
            names = " and ".join(
                repr(display_name(model, mujoco.mjtObj.mjOBJ_BODY, top)) for top in sorted(trees[actuator])
            )
            raise UserError(
                f"{_actuator(model, actuator, label)} acts between the separate trees {names}: a robot is one tree, "
                f"so put one body into the other in the file, or remove this actuator"
            )


def _moving_bodies(model: mujoco.MjModel, bodies: np.ndarray, top: int) -> np.ndarray:
    moving = np.full(model.nbody, -1, dtype=np.int64)
    moving[top] = top
    for body in bodies[1:].tolist():  # a parent's id is lower than its child's
        moving[body] = body if model.body_jntnum[body] else moving[model.body_parentid[body]]
    return moving


def _split_joints(model: mujoco.MjModel, top: int, targets: list[_Target]) -> tuple[np.ndarray, np.ndarray]:
    """Return the tree's joints that the root stands for, and the others."""
    driven = {joint for target in targets for joint in target.joints}
    # A tendon between the world and the tree pulls at the top body's joints; one inside the tree does not.
    anchored = any(
        target.every_joint and top in target.bodies and any(model.body_rootid[body] != top for body in target.bodies)
        for target in targets
    )
    joints = np.flatnonzero(model.body_rootid[model.jnt_bodyid] == top)
    kept = [anchored or joint in driven for joint in joints.tolist()]
    merged = (model.jnt_bodyid[joints] == top) & ((model.jnt_type[joints] == _FREE) | ~np.array(kept, dtype=bool))
    return joints[merged], joints[~merged]


def _attachments(
    model: mujoco.MjModel, target: _Target, moving: np.ndarray, merged: np.ndarray, nodes: np.ndarray
) -> tuple[int, ...]:
    found = {ROOT_NODE if joint in merged else int(joint) for joint in target.joints}
    for body in target.bodies:
        if moving[body] >= 0:
            own = nodes[model.jnt_bodyid[nodes] == moving[body]].tolist()
            found.update((own if target.every_joint else own[:1]) or [ROOT_NODE])
    return tuple(sorted(found))
