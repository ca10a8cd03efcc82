"""Pose and velocity of a robot's top body, straight from the positions and velocities of its joints."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

_FREE, _BALL, _SLIDE, _HINGE = (
    int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("FREE", "BALL", "SLIDE", "HINGE")
)


@dataclass(frozen=True)
class RootState:
    """Where the frame of the root body is, and how it moves, for a batch.

    Attributes:
        position: of its origin in the world [m]. (N, 3)
        rotation: of the frame; columns are its axes in the world. (N, 3, 3)
        linear: velocity of its origin, in the frame's own axes [m/s]. (N, 3)
        angular: angular velocity, in the frame's own axes [rad/s]. (N, 3)
    """

    position: np.ndarray
    rotation: np.ndarray
    linear: np.ndarray
    angular: np.ndarray


class RootMotion:
    """Forward kinematics of one body under the world, for a batch.

    MuJoCo's own `xpos`, `xmat` and `cvel` are those before the last substep when `mj_step` returns; these are not late.

    Args:
        model: the compiled model.
        body: a child of the world.
    """

    def __init__(self, model: mujoco.MjModel, body: int) -> None:
        self._position = model.body_pos[body].copy()
        self._rotation = rotation_matrices(model.body_quat[body][None])[0]
        first, number = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        self._joints = tuple(range(first, first + number)) if number else ()
        self._kind = model.jnt_type.tolist()
        self._axis, self._anchor = model.jnt_axis.copy(), model.jnt_pos.copy()
        self._qpos_address, self._dof_address = model.jnt_qposadr.tolist(), model.jnt_dofadr.tolist()
        self._qpos0 = model.qpos0.copy()

    def state(self, qpos: np.ndarray, qvel: np.ndarray) -> RootState:
        """Return the state of the root body for positions (N, nq) and velocities (N, nv)."""
        number = len(qpos)
        position = np.broadcast_to(self._position, (number, 3))
        rotation = np.broadcast_to(self._rotation, (number, 3, 3))
        linear, angular = np.zeros((number, 3)), np.zeros((number, 3))
        turns: list[tuple[np.ndarray, np.ndarray]] = []  # point that a joint turns about, and how fast, in the world
        balls: list[tuple[np.ndarray, np.ndarray]] = []  # the same, in the axes of the body
        for joint in self._joints:
            q, dof = self._qpos_address[joint], self._dof_address[joint]
            if self._kind[joint] == _FREE:
                position, rotation = qpos[:, q : q + 3], rotation_matrices(qpos[:, q + 3 : q + 7])
                linear = linear + qvel[:, dof : dof + 3]
                balls.append((position, qvel[:, dof + 3 : dof + 6]))
            elif self._kind[joint] == _SLIDE:
                axis = _turned(rotation, self._axis[joint])
                position = position + axis * (qpos[:, q, None] - self._qpos0[q])
                linear = linear + axis * qvel[:, dof, None]
            else:
                anchor = position + _turned(rotation, self._anchor[joint])
                if self._kind[joint] == _HINGE:
                    turns.append((anchor, _turned(rotation, self._axis[joint]) * qvel[:, dof, None]))
                    rotation = _product(rotation, _turns(self._axis[joint], qpos[:, q] - self._qpos0[q]))
                else:
                    balls.append((anchor, qvel[:, dof : dof + 3]))
                    rotation = _product(rotation, rotation_matrices(qpos[:, q : q + 4]))
                position = anchor - _turned(rotation, self._anchor[joint])
        turns += [(anchor, _turned(rotation, speed)) for anchor, speed in balls]
        for anchor, speed in turns:
            angular = angular + speed
            linear = linear + np.cross(speed, position - anchor)
        own = rotation.transpose(0, 2, 1)
        return RootState(position, rotation, _turned(own, linear), _turned(own, angular))


# A row's result must not depend on how many rows there are, to the last bit; that of matmul and einsum may.
def _turned(rotations: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return rotations (N, 3, 3) applied to vectors (N, 3), or to one (3,). (N, 3)"""
    x, y, z = vectors[..., 0, None], vectors[..., 1, None], vectors[..., 2, None]
    return rotations[:, :, 0] * x + rotations[:, :, 1] * y + rotations[:, :, 2] * z


def _product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the products of rotations. (N, 3, 3)"""
    return np.stack([_turned(first, second[:, :, column]) for column in range(3)], axis=2)


def rotation_matrices(quaternions: np.ndarray) -> np.ndarray:
    """Return the rotations (N, 3, 3) of quaternions (N, 4), w first and of any length but 0."""
    w, x, y, z = (quaternions / np.linalg.norm(quaternions, axis=-1, keepdims=True)).T
    rotation = np.empty((len(quaternions), 3, 3))
    rotation[:, 0, 0] = 1 - 2 * (y * y + z * z)
    rotation[:, 0, 1] = 2 * (x * y - w * z)
    rotation[:, 0, 2] = 2 * (x * z + w * y)
    rotation[:, 1, 0] = 2 * (x * y + w * z)
    rotation[:, 1, 1] = 1 - 2 * (x * x + z * z)
    rotation[:, 1, 2] = 2 * (y * z - w * x)
    rotation[:, 2, 0] = 2 * (x * z - w * y)
    rotation[:, 2, 1] = 2 * (y * z + w * x)
    rotation[:, 2, 2] = 1 - 2 * (x * x + y * y)
    return rotation


def two_columns(rotations: np.ndarray) -> np.ndarray:
    """Return the first two columns of rotations (N, 3, 3), one after the other: R00, R10, R20, R01, R11, R21. (N, 6)"""
    return rotations[:, :, :2].transpose(0, 2, 1).reshape(len(rotations), 6)


def _turns(axis: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return the rotations by angles (N,) [rad] about a unit axis (3,). (N, 3, 3)"""
    half = angles / 2
    return rotation_matrices(np.concatenate([np.cos(half)[:, None], np.sin(half)[:, None] * axis], axis=1))
