"""How large a robot is, what holds it up, and when it has fallen: what the defaults of the general task follow from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mujoco
import numpy as np

from envs.robot import Robot
from envs.tasks.reset import StartPose

GRAVITY = 9.81
"""Stands for the gravity of a model without any, in what speeds and forces are compared to [m/s^2]."""
WALK = 0.5
"""Speed of a walk over sqrt(gravity x size): the Froude number 0.25 of walking animals."""
GAP = 0.1
"""A robot whose lowest point is nearer to the floor than this share of its size stands on it."""
_LOW, _HIGH = 0.5, 2.0
_ALONG = 0.1  # smallest part of an axis along a direction that counts
_WEIGHT = 0.01  # share of its weight below which gravity does not pull a robot down
_PUSH = 1e-6  # share of an actuator's largest moment below which another is rounding error
_FREE, _SLIDE = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_SLIDE)
_TIES = (int(mujoco.mjtEq.mjEQ_CONNECT), int(mujoco.mjtEq.mjEQ_WELD))
_WRAPS = (int(mujoco.mjtWrap.mjWRAP_SPHERE), int(mujoco.mjtWrap.mjWRAP_CYLINDER))


@dataclass(frozen=True)
class Scale:
    """What sets the defaults apart for large and small robots, and for those that stand, fly, hang and swim.

    Attributes:
        support: `"ground"`: gravity pulls the robot down on what is below it; `"air"`: it starts off the floor, and its
            actuators push it as a whole (rotors, thrusters) or something ties it to the world (it hangs); `"none"`:
            nothing pulls it down (a fixed base, a planar root, a driven rail, no gravity, or `gravcomp` bears it).
        length: height of the root's centre of mass above the robot's lowest point in the start pose for `"ground"`;
            half the diagonal of its bounding box for the others [m].
        speed: `WALK` x sqrt(gravity x length) [m/s].
        weight: mass of the robot x gravity [N].
        can_fall: see `measure`.
        can_travel: the root has a free joint, or an unlimited slide that is not at right angles to x.
        healthy_z_range: heights of the root's centre of mass between which it has not fallen, by default [m].
        root_height: that height in the start pose [m].
    """

    support: str
    length: float
    speed: float
    weight: float
    can_fall: bool
    can_travel: bool
    healthy_z_range: tuple[float, float]
    root_height: float


def measure(model: mujoco.MjModel, robot: Robot, pose: StartPose) -> Scale:
    """Measure a robot in its start pose.

    With z the height of the root's centre of mass in that pose, H its height above the robot's lowest point and g the
    gap between that point and the floor, the root may be, by default,

    - on the ground: from 0.5 H above the floor to 2 H, or H above the start if that is higher. It can fall if the root
      body, with what is welded to it, reaches less than 0.5 H below its centre, so that it can get as low: a snake that
      lies already never falls. A walker that a file holds above the floor drops on it and counts as on the ground.
    - in the air: from z - g / 2, half of the way down lost, to twice as high above the floor as in the start.
    - without support: anywhere; it never falls.
    """
    data, root = pose.data, robot.root_body
    own = np.flatnonzero(model.jnt_bodyid == root)
    free, slides = model.jnt_type[own] == _FREE, model.jnt_type[own] == _SLIDE
    along_x = slides & (np.abs(data.xaxis[own, 0]) > _ALONG) & (model.jnt_limited[own] == 0)
    height, lowest = float(data.xipos[root, 2]), pose.geometry.lowest(data)
    standing, gap = height - lowest, lowest - pose.floor
    support = "none"
    if is_pulled_down(model, robot, data) and standing > 1e-6:
        in_air = gap > GAP * pose.size and is_held_up(model, robot, pose)
        support = "air" if in_air else "ground"
    length = standing if support == "ground" else pose.size
    low, high = pose.floor + _LOW * standing, max(pose.floor + _HIGH * standing, height + standing)
    can_fall = False
    if support == "air":
        low, high, can_fall = height - gap / 2, pose.floor + _HIGH * (height - pose.floor), True
    elif support == "ground":
        solid = pose.geometry.root_geoms()
        below = height - pose.geometry.lowest(data, solid) if len(solid) else 0.0
        can_fall = _LOW * standing > below
    gravity = float(np.linalg.norm(model.opt.gravity)) or GRAVITY
    return Scale(
        support=support,
        length=length,
        speed=WALK * math.sqrt(gravity * length),
        weight=max(float(model.body_subtreemass[root]) * gravity, 1e-9),
        can_fall=can_fall,
        can_travel=bool(np.any(free | along_x)),
        healthy_z_range=(low, high),
        root_height=height,
    )


def floor_height(model: mujoco.MjModel, robot: Robot, pose: StartPose) -> float:
    """Return where to put a floor under a robot that has none [m].

    That is its lowest point; for one that is held up in the air the height 0, where the file's own scene would have it.
    """
    return min(pose.floor, 0.0) if is_held_up(model, robot, pose) else pose.floor


def is_pulled_down(model: mujoco.MjModel, robot: Robot, data: mujoco.MjData) -> bool:
    """Return whether the robot has weight that its root gives way to.

    The root has a free joint, or a slide with an upward part that no actuator drives (a driven one is a rail that
    carries the robot), and `gravcomp` bears less than all of the robot.
    """
    own = robot.root_joints
    upward = (model.jnt_type[own] == _SLIDE) & (np.abs(data.xaxis[own, 2]) > _ALONG)
    off = bool(model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY) or model.opt.gravity[2] >= 0
    mass = model.body_mass[robot.bodies]
    borne = mass @ model.body_gravcomp[robot.bodies]
    return bool(
        np.any(upward | (model.jnt_type[own] == _FREE)) and not off and mass.sum() - borne > _WEIGHT * mass.sum()
    )


def is_held_up(model: mujoco.MjModel, robot: Robot, pose: StartPose) -> bool:
    """Return whether something can keep the robot off the floor: thrust, or a tie to what is no part of it."""
    return _pushes_itself(model, robot, pose) or _is_tied(model, robot)


def _pushes_itself(model: mujoco.MjModel, robot: Robot, pose: StartPose) -> bool:
    """Return whether an actuator moves the root's free joint, or its upward slide, rather than joints within."""
    data = mujoco.MjData(model)
    data.qpos[:] = pose.qpos
    data.mocap_pos[:], data.mocap_quat[:] = pose.data.mocap_pos, pose.data.mocap_quat
    mujoco.mj_fwdPosition(model, data)
    lifting = np.zeros(model.nv, dtype=bool)
    for joint in robot.root_joints.tolist():
        address = int(model.jnt_dofadr[joint])
        if model.jnt_type[joint] == _FREE:
            lifting[address : address + 3] = True
        elif model.jnt_type[joint] == _SLIDE and abs(data.xaxis[joint, 2]) > _ALONG:
            lifting[address] = True
    for actuator in np.unique(robot.actuators).tolist():
        if model.actuator_trntype[actuator] == mujoco.mjtTrn.mjTRN_BODY:  # adhesion holds on to what it touches
            continue
        first, number = int(model.actuator_outadr[actuator]), int(model.actuator_outnum[actuator])
        for row in range(first, first + number):
            entries = slice(data.moment_rowadr[row], data.moment_rowadr[row] + data.moment_rownnz[row])
            moment, dofs = np.abs(data.actuator_moment[entries]), data.moment_colind[entries]
            if moment[lifting[dofs]].max(initial=0.0) > _PUSH * max(moment.max(initial=0.0), 1e-6):
                return True
    return False


def _is_tied(model: mujoco.MjModel, robot: Robot) -> bool:
    """Return whether a constraint or a spatial tendon leads from the robot to something else."""
    inside = np.zeros(model.nbody, dtype=bool)
    inside[robot.bodies] = True
    for equality in np.flatnonzero(model.eq_active0).tolist():
        if int(model.eq_type[equality]) in _TIES:
            pair = [int(model.eq_obj1id[equality]), int(model.eq_obj2id[equality])]
            if model.eq_objtype[equality] == mujoco.mjtObj.mjOBJ_SITE:
                pair = model.site_bodyid[pair].tolist()
            if inside[pair].any() and not inside[pair].all():
                return True
    for first, number in zip(model.tendon_adr.tolist(), model.tendon_num.tolist(), strict=True):
        bodies = []
        for wrap in range(first, first + number):
            kind, element = int(model.wrap_type[wrap]), int(model.wrap_objid[wrap])
            if kind == mujoco.mjtWrap.mjWRAP_SITE:
                bodies.append(int(model.site_bodyid[element]))
            elif kind in _WRAPS:
                bodies.append(int(model.geom_bodyid[element]))
        if inside[bodies].any() and not inside[bodies].all():
            return True
    return False
