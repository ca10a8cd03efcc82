"""The pose that episodes start from: a keyframe or `qpos0`, inside joint limits, on the floor, with a little noise."""

from __future__ import annotations

import mujoco
import numpy as np

from agents.errors import UserError, nearest
from envs.physics import route_mujoco_warnings
from envs.robot import Robot, element_name
from envs.tasks.geometry import Geometry, find_floor

_FREE, _BALL, _SLIDE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("FREE", "BALL", "SLIDE"))
_LIFTS = 20
_UPRIGHT = 0.99


def find_keyframe(model: mujoco.MjModel, reset: str, name: str = "") -> int:
    """Return the keyframe that `TaskOptions.reset` means, -1 for `qpos0`.

    Args:
        model: the compiled model.
        reset: `"auto"`, `"qpos0"`, `"keyframe"`, or `"keyframe:NAME"`, NAME being a name or an index.
        name: name of the body, for messages.

    Raises:
        UserError: the model has no such keyframe.
    """
    if reset == "qpos0" or (reset == "auto" and not model.nkey):
        return -1
    if not model.nkey:
        raise UserError(f"task.reset = {reset!r}: body {name!r} has no keyframe: choose qpos0")
    wanted = reset.partition(":")[2]
    if not wanted:
        return 0
    names = tuple(element_name(model, mujoco.mjtObj.mjOBJ_KEY, key) or str(key) for key in range(model.nkey))
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and int(wanted) < model.nkey:
        return int(wanted)
    raise UserError(f"task.reset = {reset!r}: body {name!r} has no keyframe {wanted!r}: {nearest(wanted, names)}")


class StartPose:
    """Where episodes of a robot start.

    The pose is the keyframe's or `qpos0`. Of the robot, hinges, slides and balls are moved into their limits; then a
    robot that reaches into the floor is lifted out of it, if its root can move up. Everything else in the model starts
    where the keyframe or `qpos0` has it.

    `draw` adds noise to the robot alone: U(-s, s) times the joint's half range, at most 1 rad (1 rad for a joint
    without limits, a ball, and the rotation of a free root; for slides at most `size`), no shift of the root; then
    limits hold again and the robot is lifted again. Velocities get s N(0, 1) of the same amounts per second.

    Attributes:
        keyframe: keyframe of the pose, -1 for `qpos0`.
        qpos: the pose without noise. (nq,)
        qvel: its velocities, the keyframe's or 0. (nv,)
        data: the model in this pose, with positions computed.
        geometry: the shape of the robot.
        floor: height of the floor [m]: of the highest level plane that does not move, or, where there is none, of the
            robot's lowest point in the pose.
        size: half the diagonal of the robot's bounding box [m].

    Args:
        model: the compiled model.
        robot: which part of it is the robot.
        keyframe: see `find_keyframe`.
    """

    def __init__(self, model: mujoco.MjModel, robot: Robot, keyframe: int) -> None:
        route_mujoco_warnings()
        self.keyframe = keyframe
        self._model = model
        self._joints = np.concatenate([robot.root_joints, robot.node_joints])
        self.data = mujoco.MjData(model)
        if keyframe >= 0:
            mujoco.mj_resetDataKeyframe(model, self.data, keyframe)
        mujoco.mj_normalizeQuat(model, self.data.qpos)
        self._clip(self.data.qpos)
        mujoco.mj_kinematics(model, self.data)
        self.geometry = Geometry(model, robot)
        self._level, self._rise = find_floor(model, self.data, self.geometry), _upward(model, self.data, robot)
        self._lift(self.data)
        self._lift_from_terrain()
        self.qpos, self.qvel = self.data.qpos.copy(), self.data.qvel.copy()
        self.floor = self.geometry.lowest(self.data) if self._level is None else self._level
        self.size = self.geometry.size(self.data)
        self._scale = self._noise_scale(robot)
        self._scratch = mujoco.MjData(model)
        self._scratch.mocap_pos[:], self._scratch.mocap_quat[:] = self.data.mocap_pos, self.data.mocap_quat

    def draw(self, rng: np.random.Generator, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the pose with noise.

        Args:
            rng: draws 2 nv numbers.
            noise: s, a share of each joint's half range.

        Returns:
            qpos (nq,), quaternions of unit length, and qvel (nv,).
        """
        shift = noise * self._scale * rng.uniform(-1, 1, self._model.nv)
        qvel = self.qvel + noise * self._scale * rng.standard_normal(self._model.nv)
        qpos = self.qpos.copy()
        mujoco.mj_integratePos(self._model, qpos, shift, 1.0)
        self._clip(qpos)
        if self._level is not None and self._rise is not None:
            self._scratch.qpos[:] = qpos
            mujoco.mj_kinematics(self._model, self._scratch)
            self._lift(self._scratch)
            qpos = self._scratch.qpos.copy()
        return qpos, qvel

    def _clip(self, qpos: np.ndarray) -> None:
        """Move the robot's joints into their limits."""
        model = self._model
        for joint in self._joints[model.jnt_limited[self._joints] == 1]:
            address, kind, (low, high) = model.jnt_qposadr[joint], model.jnt_type[joint], model.jnt_range[joint]
            if kind == _BALL:  # the range of a ball is its largest angle
                turn = np.zeros(3)
                mujoco.mju_quat2Vel(turn, qpos[address : address + 4], 1.0)
                angle = np.linalg.norm(turn)
                if angle > high:
                    mujoco.mju_axisAngle2Quat(qpos[address : address + 4], turn / angle, high)
            elif kind != _FREE:
                qpos[address] = np.clip(qpos[address], low, high)

    def _lift(self, data: mujoco.MjData) -> None:
        """Raise the robot so that none of it is below the level floor; positions must be computed, and are again."""
        if self._level is not None and self._rise is not None:
            depth = self._level - self.geometry.lowest(data)
            if depth > 0:
                self._raise(data, depth)

    def _raise(self, data: mujoco.MjData, height: float) -> None:
        assert self._rise is not None
        address, sign = self._rise
        data.qpos[address] += sign * height
        mujoco.mj_kinematics(self._model, data)

    def _lift_from_terrain(self) -> None:
        """Raise the robot out of whatever else does not move, such as a height field, contact by contact."""
        if self._rise is None:
            return
        scratch = mujoco.MjData(self._model)
        scratch.mocap_pos[:], scratch.mocap_quat[:] = self.data.mocap_pos, self.data.mocap_quat
        scratch.qpos[:] = self.data.qpos
        for _ in range(_LIFTS):
            mujoco.mj_fwdPosition(self._model, scratch)
            depth = self.geometry.depth_in_terrain(scratch)
            if depth <= 0:
                break
            self._raise(scratch, depth)
        self.data.qpos[:] = scratch.qpos
        mujoco.mj_kinematics(self._model, self.data)

    def _noise_scale(self, robot: Robot) -> np.ndarray:
        """Return what noise of 1 amounts to for every degree of freedom [m or rad], 0 outside the robot. (nv,)"""
        model, scale = self._model, np.zeros(self._model.nv)
        merged = set(robot.root_joints.tolist())
        for joint in self._joints.tolist():
            address, kind = model.jnt_dofadr[joint], model.jnt_type[joint]
            limited, (low, high) = model.jnt_limited[joint], model.jnt_range[joint]
            if kind == _FREE:
                scale[address + 3 : address + 6] = 1.0
            elif kind == _BALL:
                scale[address : address + 3] = min(high, 1.0) if limited else 1.0
            elif kind == _SLIDE and joint in merged:
                continue
            else:
                most = self.size if kind == _SLIDE else 1.0
                scale[address] = min((high - low) / 2, most) if limited else most
        return scale


def _upward(model: mujoco.MjModel, data: mujoco.MjData, robot: Robot) -> tuple[int, float] | None:
    """Return the coordinate in qpos that raises the whole robot, and its sign; `None` for a robot fixed in height."""
    for joint in robot.root_joints.tolist():
        address = int(model.jnt_qposadr[joint])
        if model.jnt_type[joint] == _FREE:
            return address + 2, 1.0
        if model.jnt_type[joint] == _SLIDE and abs(data.xaxis[joint, 2]) > _UPRIGHT:
            return address, float(np.sign(data.xaxis[joint, 2]))
    return None
