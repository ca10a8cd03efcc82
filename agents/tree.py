"""The robot in a compiled model: which bodies it has, what they move with, where it is driven. Registers no family."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from agents.errors import UserError, nearest

_TRN, _WRAP, _GEOM = mujoco.mjtTrn, mujoco.mjtWrap, mujoco.mjtGeom
_ON_JOINT = (int(_TRN.mjTRN_JOINT), int(_TRN.mjTRN_JOINTINPARENT))
_ON_SITE = (int(_TRN.mjTRN_SITE), int(_TRN.mjTRN_SLIDERCRANK))


@dataclass(frozen=True, eq=False)
class Tree:
    """The one driven tree of a model.

    Attributes:
        root: id of its top body, a child of the world.
        bodies: ids of all its bodies, ascending. (B,)
        moving: nearest body with joints, from the body itself upwards, `root` where there is none below it; -1 outside
            the tree. (nbody,)
        driven: for every actuator of the tree, the bodies that it acts on.
    """

    root: int
    bodies: np.ndarray
    moving: np.ndarray
    driven: dict[int, tuple[int, ...]]

    def limb_bodies(self) -> tuple[int, ...]:
        """Return the bodies that move against the root, ascending."""
        return tuple(int(body) for body in self.bodies if self.moving[body] != self.root)

    def limbs(self, model: mujoco.MjModel) -> tuple[int, ...]:
        """Return the top bodies of the limbs: from every last body upwards until the tree branches, or to the root."""
        children = np.bincount(model.body_parentid[self.bodies], minlength=model.nbody)
        tops = []
        for last in self.bodies[children[self.bodies] == 0]:
            top = int(last)
            while (parent := int(model.body_parentid[top])) != self.root and children[parent] == 1 and top != self.root:
                top = parent
            if self.moving[last] != self.root:
                tops.append(top)
        return tuple(sorted(set(tops)))

    def subtree(self, model: mujoco.MjModel, top: int) -> frozenset[int]:
        """Return a body and all below it."""
        inside = {top}
        for body in range(top + 1, model.nbody):  # parents come first
            if int(model.body_parentid[body]) in inside:
                inside.add(body)
        return frozenset(inside)


def find_tree(model: mujoco.MjModel, root_body: str | None, label: str) -> Tree:
    """Find the tree of bodies that the actuators drive.

    Args:
        model: any compiled model.
        root_body: name of its top body, or `"body#3"`; needed where several trees are driven.
        label: name of the body, for messages.

    Raises:
        UserError: no driven tree, several and no `root_body`, or no such root.
    """
    driven = {actuator: _bodies_of(model, actuator) for actuator in range(len(model.actuator_trntype))}
    roots = sorted({int(model.body_rootid[body]) for bodies in driven.values() for body in bodies if body})
    if root_body is not None:
        root = element_id(model, mujoco.mjtObj.mjOBJ_BODY, root_body, label)
    elif len(roots) == 1:
        root = roots[0]
    else:
        names = ", ".join(element_name(model, mujoco.mjtObj.mjOBJ_BODY, top) for top in roots)
        raise UserError(f"body {label!r} cannot be varied: its actuators drive {len(roots)} trees ({names or 'none'})")
    bodies = np.flatnonzero(model.body_rootid == root)
    moving = np.full(model.nbody, -1)
    for body in bodies:
        own = body == root or model.body_jntnum[body]
        moving[body] = body if own else moving[model.body_parentid[body]]
    return Tree(root, bodies, moving, {a: found for a, found in driven.items() if set(found) & set(bodies.tolist())})


def element_name(model: mujoco.MjModel, kind: mujoco.mjtObj, element: int) -> str:
    """Return the name of an element, or `"body#7"` and the like for one without."""
    try:
        name = mujoco.mj_id2name(model, kind, element)
    except UnicodeDecodeError:
        name = None
    return name or f"{kind.name.removeprefix('mjOBJ_').lower()}#{element}"


def element_id(model: mujoco.MjModel, kind: mujoco.mjtObj, name: str, label: str) -> int:
    """Return the id of a name, or of `"body#7"`.

    Raises:
        UserError: there is none; the message names the nearest.
    """
    what, count = kind.name.removeprefix("mjOBJ_").lower(), _count(model, kind)
    found = mujoco.mj_name2id(model, kind, name)
    number = name.removeprefix(f"{what}#")
    if found < 0 and number != name and number.isdecimal() and int(number) < count:
        found = int(number)
    if found < 0:
        names = tuple(element_name(model, kind, element) for element in range(count) if element or what != "body")
        raise UserError(f"body {label!r} has no {what} {name!r}: {nearest(name, names)}")
    return found


def lowest(model: mujoco.MjModel, bodies: np.ndarray, qpos: np.ndarray) -> float:
    """Return the height of the lowest point of some bodies in a pose [m].

    Geoms count that can touch something (all if none can; the bodies' frames without geoms); a shape other than sphere,
    capsule, box or mesh counts as its bounding box.
    """
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    mine = np.isin(model.geom_bodyid, bodies)
    solid = mine & ((model.geom_contype != 0) | (model.geom_conaffinity != 0))
    geoms = np.flatnonzero(solid if solid.any() else mine)
    if not len(geoms):
        return float(data.xpos[bodies, 2].min())
    return min(float(data.geom_xpos[geom, 2]) - _depth(model, int(geom), data.geom_xmat[geom, 6:9]) for geom in geoms)


def _depth(model: mujoco.MjModel, geom: int, up: np.ndarray) -> float:
    """Return how far a geom reaches below its centre; `up` is the height of its own axes (3,)."""
    kind, size = model.geom_type[geom], model.geom_size[geom]
    if kind == _GEOM.mjGEOM_SPHERE:
        return float(size[0])
    if kind == _GEOM.mjGEOM_CAPSULE:
        return float(size[0] + size[1] * abs(up[2]))
    if kind == _GEOM.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        return float(-(model.mesh_vert[first : first + count] @ up).min())
    centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    return float(np.abs(up) @ half - up @ centre)


def _bodies_of(model: mujoco.MjModel, actuator: int) -> tuple[int, ...]:
    """Return the bodies that an actuator acts on; the world among them stands for nothing."""
    kind, target = int(model.actuator_trntype[actuator]), int(model.actuator_trnid[actuator, 0])
    if kind in _ON_JOINT:
        return (int(model.jnt_bodyid[target]),)
    if kind in _ON_SITE:
        return (int(model.site_bodyid[target]),)
    if kind == int(_TRN.mjTRN_BODY):
        return (target,)
    if kind != int(_TRN.mjTRN_TENDON):
        return ()
    owners = {_WRAP.mjWRAP_JOINT: model.jnt_bodyid, _WRAP.mjWRAP_SITE: model.site_bodyid,
              _WRAP.mjWRAP_SPHERE: model.geom_bodyid, _WRAP.mjWRAP_CYLINDER: model.geom_bodyid}  # fmt: skip
    start, count = int(model.tendon_adr[target]), int(model.tendon_num[target])
    bodies = set()
    for wrap in range(start, start + count):
        kind, thing = int(model.wrap_type[wrap]), int(model.wrap_objid[wrap])
        bodies |= {int(owner[thing]) for key, owner in owners.items() if kind == int(key)}
    return tuple(sorted(bodies))


def _count(model: mujoco.MjModel, kind: mujoco.mjtObj) -> int:
    if kind == mujoco.mjtObj.mjOBJ_ACTUATOR:
        return len(model.actuator_trntype)  # nu counts controls, and an actuator may own several
    return {mujoco.mjtObj.mjOBJ_BODY: model.nbody, mujoco.mjtObj.mjOBJ_JOINT: model.njnt}[kind]
