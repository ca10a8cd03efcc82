"""What a variation does to an editable model: limbs, masses, gears, friction, payload, lost limbs and actuators.

Registers no family; `agents.variation` holds the names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mujoco
import numpy as np

from agents import limbs
from agents.errors import UserError, nearest
from agents.morphology import compile_spec
from agents.tree import Tree, element_id, element_name, find_tree, lowest

BODY, ACTUATOR, JOINT = mujoco.mjtObj.mjOBJ_BODY, mujoco.mjtObj.mjOBJ_ACTUATOR, mujoco.mjtObj.mjOBJ_JOINT
PAYLOAD_DENSITY = 1000.0
"""Sets the size of the payload, a ball [kg/m^3]."""
# The floor that the task "locomotion" gives a model without ground.
_FLOOR_FRICTION, _FLOOR_CONDIM = (1.0, 0.005, 0.0001), 3
_LENGTHS, _REMOVED, _BROKEN = 0, 1, 2  # streams of random numbers
_MUSCLE = (int(mujoco.mjtGain.mjGAIN_MUSCLE), int(mujoco.mjtBias.mjBIAS_MUSCLE))


@dataclass(frozen=True)
class Changes:
    """What to change; the defaults change nothing. Units and meaning: `agents.variation.KEYS`."""

    limb: float = 1.0
    mass: float = 1.0
    gear: float = 1.0
    friction: float = 1.0
    payload: float = 0.0
    remove: int | tuple[str, ...] = 0
    broken: int | tuple[str, ...] = 0
    vary: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Lost:
    """Bodies and actuators that a variation takes away, by ids of the unvaried model."""

    tops: tuple[int, ...]
    bodies: frozenset[int]
    actuators: tuple[int, ...]


def varied_spec(spec: mujoco.MjSpec, root_body: str | None, label: str, changes: Changes) -> mujoco.MjSpec:
    """Return the changed model.

    Order: random factors, lengths, masses, gears, friction, payload, broken actuators, removed limbs; last the root is
    raised or lowered, so that a robot with longer limbs starts as high above the floor as before.

    Args:
        spec: the editable model of the unvaried body; it is changed.
        root_body: top body of the robot, where a file has several.
        label: name of the body, for messages.
        changes: what to change.

    Raises:
        UserError: a name that the body lacks, more lost than it has, or a change that does not fit it.
    """
    model = _without_total_mass(spec, compile_spec(spec, label), label)
    tree = find_tree(model, root_body, label)
    missing = lost(model, tree, label, changes)
    lengths, masses, gears = _factors(model, tree, changes)
    # Numbers of elements are lost when something is added.
    bodies, joints = {body.id: body for body in spec.bodies}, {joint.id: joint for joint in spec.joints}
    actuators = {actuator.id: actuator for actuator in spec.actuators}
    limbs.scale_limbs(spec, model, bodies, lengths)
    for body, factor in masses.items():
        if factor != 1.0:
            limbs.scale_mass(bodies[body], factor)
    _scale_gears(model, actuators, joints, gears)
    if changes.friction != 1.0:
        _scale_friction(spec, model, tree, bodies, changes.friction)
    if changes.payload:
        _add_payload(spec, bodies[tree.root], model.body_ipos[tree.root], changes.payload)
    for actuator in missing.actuators:
        spec.delete(actuators[actuator])
    for top in missing.tops:
        spec.delete(bodies[top])
    if any(factor != 1.0 for factor in lengths.values()):
        _keep_clearance(spec, model, tree, bodies[tree.root], missing.bodies, label)
    return spec


def lost(model: mujoco.MjModel, tree: Tree, label: str, changes: Changes) -> Lost:
    """Return what the keys `remove` and `broken` take from a body.

    Raises:
        UserError: an unknown name, the root, more than there is, or no actuator left.
    """
    limb_tops = tree.limbs(model)
    if isinstance(changes.remove, int):
        tops = _draw(limb_tops, changes.remove, changes.seed, _REMOVED, f"body {label!r} has", "limbs")
    else:
        tops = [element_id(model, BODY, name, label) for name in changes.remove]
        if wrong := [top for top in tops if top == tree.root or tree.moving[top] < 0]:
            name = changes.remove[tops.index(wrong[0])]
            raise UserError(f"body {label!r}: {name!r} is no limb of it: remove a body below the root")
    bodies = frozenset[int]().union(*(tree.subtree(model, top) for top in tops))
    tops = [top for top in tops if int(model.body_parentid[top]) not in bodies]
    left = [a for a, acted in tree.driven.items() if not bodies & set(acted)]
    if isinstance(changes.broken, int):
        broken = _draw(tuple(left), changes.broken, changes.seed, _BROKEN, f"body {label!r} has", "actuators")
    else:
        broken = [actuator for name in changes.broken for actuator in actuators_of(model, name, label)]
    if not set(left) - set(broken):
        raise UserError(f"body {label!r}: no actuator would be left: remove or break fewer")
    return Lost(tuple(sorted(set(tops))), bodies, tuple(sorted(set(broken))))


def actuators_of(model: mujoco.MjModel, name: str, label: str) -> list[int]:
    """Return the actuators that a name stands for: its own, or all of the joint of that name.

    Raises:
        UserError: there is none; the message names the nearest.
    """
    for kind in (ACTUATOR, JOINT):
        for actuator in (every := range(len(model.actuator_trntype))):
            if kind == ACTUATOR and name in (element_name(model, ACTUATOR, actuator), f"actuator#{actuator}"):
                return [actuator]
            if kind == JOINT and name == _joint_name(model, actuator):
                return [other for other in every if _joint_name(model, other) == name]
    names = dict.fromkeys(actuator_name(model, actuator) for actuator in every)
    raise UserError(f"body {label!r} has no actuator {name!r}: {nearest(name, tuple(names))}")


def actuator_name(model: mujoco.MjModel, actuator: int) -> str:
    """Return the name of an actuator, of its joint where it has none and the joint no other, else `"actuator#3"`."""
    name, joint = element_name(model, ACTUATOR, actuator), _joint_name(model, actuator)
    if name != f"actuator#{actuator}" or joint is None:
        return name
    shared = [other for other in range(len(model.actuator_trntype)) if _joint_name(model, other) == joint]
    return joint if shared == [actuator] else name


def _joint_name(model: mujoco.MjModel, actuator: int) -> str | None:
    if model.actuator_trntype[actuator] != mujoco.mjtTrn.mjTRN_JOINT:
        return None
    return element_name(model, JOINT, int(model.actuator_trnid[actuator, 0]))


def _draw(choices: tuple[int, ...], count: int, seed: int, stream: int, owner: str, what: str) -> list[int]:
    if count > len(choices):
        raise UserError(f"{owner} {len(choices)} {what}, {count} cannot be taken: choose fewer")
    return np.random.default_rng([seed, stream]).choice(choices, count, replace=False).tolist() if count else []


def _factors(
    model: mujoco.MjModel, tree: Tree, changes: Changes
) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    """Return the factors of lengths and masses by body, and of gears by actuator.

    Random ones are drawn per moving body and actuator, in the order of their ids; welded bodies follow what they are
    welded to.
    """
    rng = np.random.default_rng([changes.seed, _LENGTHS])
    moving = sorted({int(tree.moving[body]) for body in tree.bodies})
    spread = (1 - changes.vary, 1 + changes.vary)
    length = {body: changes.limb * rng.uniform(*spread) for body in moving if body != tree.root}
    mass = {body: changes.mass * rng.uniform(*spread) for body in moving}
    gears = {actuator: changes.gear * rng.uniform(*spread) for actuator in tree.driven}
    lengths = {body: length[int(tree.moving[body])] for body in tree.limb_bodies()}
    return lengths, {int(body): mass[int(tree.moving[body])] for body in tree.bodies}, gears


def _without_total_mass(spec: mujoco.MjSpec, model: mujoco.MjModel, label: str) -> mujoco.MjModel:
    """Put the compiler's total mass, which would undo every change of masses, into the bodies themselves."""
    if spec.compiler.settotalmass <= 0:
        return model
    total = model.body_mass.sum()
    spec.compiler.settotalmass = -1.0
    plain = compile_spec(spec, label).body_mass.sum()
    for body in spec.bodies:
        limbs.scale_mass(body, total / plain)
    return compile_spec(spec, label)


def _scale_gears(
    model: mujoco.MjModel,
    actuators: dict[int, mujoco.MjsActuator],
    joints: dict[int, mujoco.MjsJoint],
    factors: dict[int, float],
) -> None:
    """Scale what actuators can push: the gear of motors; gains and force limits of servos and the force of muscles.

    A larger gear would move the setpoint of a servo, whose control is a position.
    """
    limits: dict[int, float] = {}
    for number, actuator in actuators.items():
        factor = factors.get(number, 1.0)
        if factor == 1.0:
            continue
        if int(actuator.gaintype) in _MUSCLE[:1]:
            for parameters in (actuator.gainprm, actuator.biasprm):
                parameters[2] *= factor if parameters[2] > 0 else 1.0  # -1: from the scale, which is next
                parameters[3] *= factor
        elif actuator.biastype != mujoco.mjtBias.mjBIAS_NONE:
            actuator.gainprm = factor * np.array(actuator.gainprm)
            actuator.biasprm = factor * np.array(actuator.biasprm)
            actuator.forcerange = factor * np.array(actuator.forcerange)
        else:
            actuator.gear = factor * np.array(actuator.gear)
        if model.actuator_trntype[number] == mujoco.mjtTrn.mjTRN_JOINT:
            joint = int(model.actuator_trnid[number, 0])
            limits[joint] = max(limits.get(joint, 0.0), factor)
    for joint, factor in limits.items():
        joints[joint].actfrcrange = factor * np.array(joints[joint].actfrcrange)


def _scale_friction(
    spec: mujoco.MjSpec, model: mujoco.MjModel, tree: Tree, bodies: dict[int, mujoco.MjsBody], factor: float
) -> None:
    """Scale the friction of all geoms, the ground's too, since MuJoCo takes the larger of two, and of contact pairs."""
    if not _has_ground(model, tree):
        # The task will add a floor with a friction of its own: the robot's decides, made as if that were scaled.
        above = int(model.geom_priority.max(initial=0)) + 1
        for geom in (geom for body in tree.bodies for geom in bodies[int(body)].geoms):
            geom.priority, geom.condim = above, max(geom.condim, _FLOOR_CONDIM)
            geom.friction = np.maximum(geom.friction, _FLOOR_FRICTION)
    for geom in spec.geoms:
        geom.friction = factor * np.array(geom.friction)
    for pair in spec.pairs:
        pair.friction = factor * np.array(pair.friction)


def _has_ground(model: mujoco.MjModel, tree: Tree) -> bool:
    """Return whether something that does not move can touch the robot."""
    mine = np.isin(model.geom_bodyid, tree.bodies)
    fixed = model.body_weldid[model.geom_bodyid] == 0
    meet = model.geom_contype[mine, None] & model.geom_conaffinity[None, fixed]
    met = model.geom_conaffinity[mine, None] & model.geom_contype[None, fixed]
    return bool(meet.any() or met.any())


def _add_payload(spec: mujoco.MjSpec, root: mujoco.MjsBody, centre: np.ndarray, mass: float) -> None:
    """Add a ball at the root's centre of mass (3,), which touches nothing."""
    radius = (3 * mass / (4 * math.pi * PAYLOAD_DENSITY)) ** (1 / 3)
    if root.explicitinertial and spec.compiler.inertiafromgeom != mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE:
        inertia = 0.4 * mass * radius**2
        root.mass += mass
        if np.isnan(root.fullinertia[0]):
            root.inertia = np.array(root.inertia) + inertia
        else:  # xx, yy, zz, xy, xz, yz
            root.fullinertia = np.array(root.fullinertia) + np.repeat([inertia, 0.0], 3)
        return
    root.add_geom(name="payload" if spec.geom("payload") is None else "", type=mujoco.mjtGeom.mjGEOM_SPHERE,
                  size=[radius, 0, 0], pos=centre, mass=mass, contype=0, conaffinity=0,
                  group=int(spec.compiler.inertiagrouprange[0]), rgba=[0.3, 0.3, 0.35, 1.0])  # fmt: skip


def _keep_clearance(
    spec: mujoco.MjSpec, model: mujoco.MjModel, tree: Tree, root: mujoco.MjsBody, gone: frozenset[int], label: str
) -> None:
    """Move the root up or down by what the lowest point has moved, in the model's zero and in every keyframe."""
    first, count = int(model.body_jntadr[tree.root]), int(model.body_jntnum[tree.root])
    own = slice(first, first + count) if count else slice(0)
    free = model.jnt_type[own] == mujoco.mjtJoint.mjJNT_FREE
    axes = model.jnt_axis[own, 2]
    slide = (model.jnt_type[own] == mujoco.mjtJoint.mjJNT_SLIDE) & (np.abs(axes) > 0.9)
    if not (free | slide).any():  # it is mounted
        return
    changed = compile_spec(spec, label)
    before = np.array([body for body in tree.bodies if body not in gone])
    after = np.flatnonzero(changed.body_rootid == root.id)
    rise = lowest(model, before, model.qpos0) - lowest(changed, after, changed.qpos0)
    height = int(changed.jnt_qposadr[changed.body_jntadr[root.id]]) + 2
    for key, old, new in zip(spec.keys, model.key_qpos, changed.key_qpos, strict=True):
        if free.any() and len(key.qpos):  # one without is the model's zero
            key.qpos[height] += lowest(model, before, old) - lowest(changed, after, new)
    for joint, axis, along in zip(root.joints, axes, slide, strict=True):
        if along and joint.ref:  # its coordinate is a height, and stays one
            joint.ref += rise * float(np.sign(axis))
    root.pos = np.array(root.pos) + _upwards(spec, root, model.body_quat[tree.root], rise)


def _upwards(spec: mujoco.MjSpec, root: mujoco.MjsBody, quat: np.ndarray, rise: float) -> np.ndarray:
    """Return a rise in the coordinates in which the root's position is written: the world's, or a frame's. (3,)"""
    whole = np.zeros(9)
    mujoco.mju_quat2Mat(whole, quat)
    frame = whole.reshape(3, 3) @ limbs.rotation(spec, root).T
    return frame.T @ [0.0, 0.0, rise]
