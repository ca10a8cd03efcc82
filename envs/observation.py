"""What a body observes: one flat vector, and a layout that says for every column whose it is, what, and in which unit.

The feature set `paper` is that of NerveNet (Wang et al. 2018) and Snowflake (Blake et al. 2021): positions without the
absolute x and y of the root, velocities, and the contact forces on every body, clipped to [-1, 1].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mujoco
import numpy as np

from envs.physics import BatchedPhysics

WORLD, JOINT, BODY = 0, 1, 2
"""Values of `ObservationLayout.owner_kind`."""

CONTACT_CLIP = 1.0
"""Contact torques [N·m] and forces [N] are observed, and charged by the task, within plus or minus this."""

_QUATERNION = ("quat_w", "quat_x", "quat_y", "quat_z")
_ANGULAR = ("angular_x", "angular_y", "angular_z")
_FREE, _BALL, _SLIDE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("FREE", "BALL", "SLIDE"))


@dataclass(frozen=True, eq=False)
class ObservationLayout:
    """The columns of an observation vector of size D.

    Attributes:
        feature_set: name of the set of features, `"paper"`.
        names: what to call a column in a table, e.g. `"qpos(ankle_0)"`; display only. (D,)
        features: feature of a column, the same for every owner of a kind, e.g. `"qpos"`, `"cfrc_ext_5"`. (D,)
        units: unit of a column, `"1"` for a pure number. (D,)
        owner_kind: `WORLD`, `JOINT` or `BODY`. (D,) int8
        owner_id: joint id or body id; 0 for the world. (D,) int32
    """

    feature_set: str
    names: tuple[str, ...]
    features: tuple[str, ...]
    units: tuple[str, ...]
    owner_kind: np.ndarray
    owner_id: np.ndarray

    @property
    def size(self) -> int:
        """Number of columns D."""
        return len(self.names)


@dataclass(frozen=True)
class _Column:
    feature: str
    unit: str
    owner_kind: int
    owner_id: int
    source: int  # index into qpos, qvel or the flattened cfrc_ext


def paper_layout(model: mujoco.MjModel) -> ObservationLayout:
    """Return the layout `qpos without root x, y | qvel | cfrc_ext` of a model.

    The root's absolute position in the plane is left out: x and y of a free root, or its unactuated horizontal slides;
    a fixed base leaves nothing out. `cfrc_ext` has six columns a body, torque x, y, z then force x, y, z, the world's
    row included (it is owned by `WORLD`).

    Args:
        model: any compiled model.
    """
    columns = [*_position_columns(model), *_velocity_columns(model), *_contact_columns(model)]
    return ObservationLayout(
        feature_set="paper",
        names=tuple(f"{column.feature}({_owner_name(model, column)})" for column in columns),
        features=tuple(column.feature for column in columns),
        units=tuple(column.unit for column in columns),
        owner_kind=np.array([column.owner_kind for column in columns], dtype=np.int8),
        owner_id=np.array([column.owner_id for column in columns], dtype=np.int32),
    )


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

    def observe(self, physics: BatchedPhysics, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return new observations.

        Args:
            physics: the batch after a control step.
            rows: which of its N environments.

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


def _position_columns(model: mujoco.MjModel) -> Iterator[_Column]:
    for joint in range(model.njnt):
        address, kind = int(model.jnt_qposadr[joint]), model.jnt_type[joint]
        if kind == _FREE:
            yield _Column("qpos_z", "m", JOINT, joint, address + 2)
            for i, part in enumerate(_QUATERNION):
                yield _Column(f"qpos_{part}", "1", JOINT, joint, address + 3 + i)
        elif kind == _BALL:
            for i, part in enumerate(_QUATERNION):
                yield _Column(f"qpos_{part}", "1", JOINT, joint, address + i)
        elif not _is_planar_root(model, joint):
            yield _Column("qpos", "m" if kind == _SLIDE else "rad", JOINT, joint, address)


def _is_planar_root(model: mujoco.MjModel, joint: int) -> bool:
    """Whether a joint carries the whole body through the plane: an unactuated horizontal slide on the world."""
    on_world = model.body_parentid[model.jnt_bodyid[joint]] == 0
    horizontal = abs(model.jnt_axis[joint, 2]) < 1e-6
    on_joint = np.isin(model.actuator_trntype, (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT))
    actuated = np.any(on_joint & (model.actuator_trnid[:, 0] == joint))
    return bool(model.jnt_type[joint] == _SLIDE and on_world and horizontal and not actuated)


def _velocity_columns(model: mujoco.MjModel) -> Iterator[_Column]:
    for joint in range(model.njnt):
        address, kind = int(model.jnt_dofadr[joint]), model.jnt_type[joint]
        if kind == _FREE:
            for i, axis in enumerate("xyz"):
                yield _Column(f"qvel_{axis}", "m/s", JOINT, joint, address + i)
        if kind in (_FREE, _BALL):
            first = address + (3 if kind == _FREE else 0)
            for i, part in enumerate(_ANGULAR):
                yield _Column(f"qvel_{part}", "rad/s", JOINT, joint, first + i)
        else:
            yield _Column("qvel", "m/s" if kind == _SLIDE else "rad/s", JOINT, joint, address)


def _contact_columns(model: mujoco.MjModel) -> Iterator[_Column]:
    for body in range(model.nbody):
        for i in range(6):
            kind = BODY if body else WORLD
            yield _Column(f"cfrc_ext_{i}", "N·m" if i < 3 else "N", kind, body, 6 * body + i)


def _owner_name(model: mujoco.MjModel, column: _Column) -> str:
    if column.owner_kind == JOINT:
        return model.joint(column.owner_id).name or f"joint#{column.owner_id}"
    return model.body(column.owner_id).name or f"body#{column.owner_id}"
