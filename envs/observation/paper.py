"""The feature set `paper`, of NerveNet (Wang et al. 2018) and Snowflake (Blake et al. 2021).

Positions without the absolute x and y of the root, velocities, and the contact forces on every body, clipped to
[-1, 1].
"""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np

from envs.observation.layout import BODY, CONTACT_CLIP, JOINT, WORLD, Column, ObservationLayout, make_layout
from envs.physics import BatchedPhysics

_QUATERNION = ("quat_w", "quat_x", "quat_y", "quat_z")
_ANGULAR = ("angular_x", "angular_y", "angular_z")
_FREE, _BALL, _SLIDE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("FREE", "BALL", "SLIDE"))


def paper_layout(model: mujoco.MjModel) -> ObservationLayout:
    """Return the layout `qpos without root x, y | qvel | cfrc_ext` of a model.

    The root's absolute position in the plane is left out: x and y of a free root, or its unactuated horizontal slides;
    a fixed base leaves nothing out. `cfrc_ext` has six columns a body, torque x, y, z then force x, y, z, the world's
    row included (it is owned by `WORLD`).

    Args:
        model: any compiled model.
    """
    columns = [*_position_columns(model), *_velocity_columns(model), *_contact_columns(model)]
    return make_layout("paper", model, columns)


class PaperObserver:
    """Computes the observations of `paper_layout` for a batch.

    Args:
        model: the compiled model.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        self.layout = paper_layout(model)
        self._qpos_index = np.array([column.source for column in _position_columns(model)], dtype=np.intp)
        self._qpos_end = len(self._qpos_index)
        self._qvel_end = self._qpos_end + model.nv

    def observe(
        self, physics: BatchedPhysics, rows: np.ndarray | slice = slice(None), command: np.ndarray | None = None
    ) -> np.ndarray:
        """Return new observations.

        Args:
            physics: the batch after a control step.
            rows: which of its N environments.
            command: not observed by this feature set.

        Returns:
            (len(rows), D) float32.
        """
        qpos = physics.qpos[rows]
        obs = np.empty((len(qpos), self.layout.size), dtype=np.float32)
        obs[:, : self._qpos_end] = qpos[:, self._qpos_index]
        obs[:, self._qpos_end : self._qvel_end] = physics.qvel[rows]
        contacts = physics.cfrc_ext[rows].reshape(len(qpos), -1)
        np.clip(contacts, -CONTACT_CLIP, CONTACT_CLIP, out=obs[:, self._qvel_end :], casting="same_kind")
        return obs


def _position_columns(model: mujoco.MjModel) -> Iterator[Column]:
    for joint in range(model.njnt):
        address, kind = int(model.jnt_qposadr[joint]), model.jnt_type[joint]
        if kind == _FREE:
            yield Column("qpos_z", "m", JOINT, joint, address + 2)
            for i, part in enumerate(_QUATERNION):
                yield Column(f"qpos_{part}", "1", JOINT, joint, address + 3 + i)
        elif kind == _BALL:
            for i, part in enumerate(_QUATERNION):
                yield Column(f"qpos_{part}", "1", JOINT, joint, address + i)
        elif not _is_planar_root(model, joint):
            yield Column("qpos", "m" if kind == _SLIDE else "rad", JOINT, joint, address)


def _is_planar_root(model: mujoco.MjModel, joint: int) -> bool:
    """Whether a joint carries the whole body through the plane: an unactuated horizontal slide on the world."""
    on_world = model.body_parentid[model.jnt_bodyid[joint]] == 0
    horizontal = abs(model.jnt_axis[joint, 2]) < 1e-6
    on_joint = np.isin(model.actuator_trntype, (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT))
    actuated = np.any(on_joint & (model.actuator_trnid[:, 0] == joint))
    return bool(model.jnt_type[joint] == _SLIDE and on_world and horizontal and not actuated)


def _velocity_columns(model: mujoco.MjModel) -> Iterator[Column]:
    for joint in range(model.njnt):
        address, kind = int(model.jnt_dofadr[joint]), model.jnt_type[joint]
        if kind == _FREE:
            for i, axis in enumerate("xyz"):
                yield Column(f"qvel_{axis}", "m/s", JOINT, joint, address + i)
        if kind in (_FREE, _BALL):
            first = address + (3 if kind == _FREE else 0)
            for i, part in enumerate(_ANGULAR):
                yield Column(f"qvel_{part}", "rad/s", JOINT, joint, first + i)
        else:
            yield Column("qvel", "m/s" if kind == _SLIDE else "rad/s", JOINT, joint, address)


def _contact_columns(model: mujoco.MjModel) -> Iterator[Column]:
    for body in range(model.nbody):
        for i in range(6):
            kind = BODY if body else WORLD
            yield Column(f"cfrc_ext_{i}", "N·m" if i < 3 else "N", kind, body, 6 * body + i)
