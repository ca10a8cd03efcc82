"""The feature set `general`: what every robot observes, whatever its joints and actuators.

The root's height, orientation and velocities; every other joint's position, in a bounded encoding by its type, and
velocity; contact forces by moving body; activations by actuator; and, where the task gives one, the command.
"""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np

from envs.observation.layout import ACTUATOR, BODY, CONTACT_CLIP, JOINT, ROOT, Column, ObservationLayout, make_layout
from envs.observation.root import RootMotion, RootState, rotation_matrices, two_columns
from envs.physics import BatchedPhysics
from envs.robot import Robot

ROOT_COLUMNS = (
    ("height", "m"),
    *((f"rot_{i}", "1") for i in range(6)),
    *((f"linvel_{i}", "m/s") for i in range(3)),
    *((f"angvel_{i}", "rad/s") for i in range(3)),
)
"""Features of the root that follow from its joints, with their units; a robot has those that its joints can change."""
COMMAND_COLUMNS = (("command_0", "m/s"), ("command_1", "m/s"), ("command_2", "rad/s"))
"""Commanded velocities of the root: forward, to the left, and turn rate."""

_BALL, _SLIDE, _HINGE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("BALL", "SLIDE", "HINGE"))
_MIN_SLIDE_SCALE = 1e-3  # m
_MOVES = 1e-6
_SAMPLES = 64
_DYN = mujoco.mjtDyn
_FILTERS = (int(_DYN.mjDYN_FILTER), int(_DYN.mjDYN_FILTEREXACT))

BOUND = 100.0
"""Every column is cut at plus or minus this, in its own unit: no robot that holds together is as fast."""


def general_layout(model: mujoco.MjModel, robot: Robot, command: bool = False) -> ObservationLayout:
    """Return the layout `root | joint positions | joint velocities | contacts | activations` of a robot.

    - `ROOT`: `height` is the z of the root body's origin, `rot_0..5` the first two columns of its rotation matrix
      (R00, R10, R20, R01, R11, R21), `linvel_0..2` and `angvel_0..2` its velocities in its own axes. Only what the
      root's joints can change is there. With a command, `command_0..2` is.
    - `JOINT`, joints with a node: sine and cosine of a hinge's angle, x / (|x| + s) of a slide with s half its range or
      1 m, two columns of a ball's rotation matrix (`pos_*`); velocities (`vel_*`).
    - `BODY`, the root body and those with joints of their own: `contact_0..5`, external torque and force on the body
      and all that is welded to it, clipped to [-1, 1].
    - `ACTUATOR`: `act_*`, one an activation variable, bounded: itself where it stays within [-1, 1], divided by its
      largest value where it has one, a / (1 + |a|) otherwise.

    Args:
        model: the compiled model.
        robot: the part of it that observes.
        command: whether the task commands a velocity.
    """
    return GeneralObserver(model, robot, command).layout


class GeneralObserver:
    """Computes the observations of `general_layout` for a batch.

    Args:
        model: the compiled model.
        robot: the part of it that observes.
        command: whether the task commands a velocity.
    """

    def __init__(self, model: mujoco.MjModel, robot: Robot, command: bool = False) -> None:
        self._root = RootMotion(model, robot.root_body)
        self._root_index = _moved_by_root(model, robot, self._root)
        self._command = command
        self._joints = _JointEncoder(model, robot)
        self._contacts = _ContactSum(robot)
        self._acts = _ActEncoder(model, robot)
        root = [ROOT_COLUMNS[i] for i in self._root_index] + list(COMMAND_COLUMNS if command else ())
        blocks = (
            [Column(feature, unit, ROOT, robot.root_body) for feature, unit in root],
            list(self._joints.columns()),
            list(self._contacts.columns()),
            list(self._acts.columns()),
        )
        ends = np.cumsum([len(block) for block in blocks]).tolist()
        self._blocks = tuple(slice(end - len(block), end) for end, block in zip(ends, blocks, strict=True))
        self.layout = make_layout("general", model, [column for block in blocks for column in block])

    def observe(
        self, physics: BatchedPhysics, rows: np.ndarray | slice = slice(None), command: np.ndarray | None = None
    ) -> np.ndarray:
        """Return new observations.

        Args:
            physics: the batch after a control step.
            rows: which of its N environments.
            command: commanded velocities of all N environments (N, 3), where the layout has them.

        Returns:
            (len(rows), D) float32.
        """
        qpos, qvel = physics.qpos[rows], physics.qvel[rows]
        obs = np.empty((len(qpos), self.layout.size), dtype=np.float32)
        root, joints, contacts, acts = self._blocks
        moved = len(self._root_index)
        if moved:
            obs[:, :moved] = _root_values(self._root.state(qpos, qvel))[:, self._root_index]
        if self._command:
            if command is None:
                raise ValueError("this layout observes a command, and none is given")
            obs[:, moved : root.stop] = command[rows]
        self._joints.encode(qpos, qvel, obs[:, joints])
        obs[:, contacts] = self._contacts.sum(physics.cfrc_ext[rows])
        if acts.stop > acts.start:
            obs[:, acts] = self._acts.encode(physics.act[rows])
        # What a simulation about to diverge shows must not spoil running statistics for good. NaN stays NaN.
        return np.clip(obs, -BOUND, BOUND, out=obs)


def _root_values(state: RootState) -> np.ndarray:
    """Return the numbers of `ROOT_COLUMNS`. (N, 13)"""
    return np.concatenate(
        [state.position[:, 2:], two_columns(state.rotation), state.linear, state.angular],
        axis=1,
    )


def _moved_by_root(model: mujoco.MjModel, robot: Robot, motion: RootMotion) -> np.ndarray:
    """Return which of `ROOT_COLUMNS` the root's joints can change, found by trying random states. (n,)"""
    if not len(robot.root_joints):
        return np.zeros(0, dtype=np.intp)
    rng = np.random.default_rng(0)
    qpos, qvel = np.repeat(model.qpos0[None], _SAMPLES, axis=0), np.zeros((_SAMPLES, model.nv))
    for joint in robot.root_joints.tolist():
        q, dof = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
        q_end = int(model.jnt_qposadr[joint + 1]) if joint + 1 < model.njnt else model.nq
        dof_end = int(model.jnt_dofadr[joint + 1]) if joint + 1 < model.njnt else model.nv
        qpos[:, q:q_end] = rng.uniform(-1, 1, (_SAMPLES, q_end - q))
        qvel[:, dof:dof_end] = rng.uniform(-1, 1, (_SAMPLES, dof_end - dof))
    return np.flatnonzero(np.ptp(_root_values(motion.state(qpos, qvel)), axis=0) > _MOVES)


class _JointEncoder:
    """Positions and velocities of the node joints, each type in one array pass."""

    def __init__(self, model: mujoco.MjModel, robot: Robot) -> None:
        joints = robot.node_joints
        kinds = model.jnt_type[joints]
        self._joints, self._kinds = joints, kinds
        q, dof = model.jnt_qposadr[joints].astype(np.intp), model.jnt_dofadr[joints].astype(np.intp)
        widths = np.select([kinds == _HINGE, kinds == _SLIDE], [2, 1], 6)
        starts = np.cumsum(widths) - widths
        self._hinge_q, self._hinge = q[kinds == _HINGE], starts[kinds == _HINGE]
        self._slide_q, self._slide = q[kinds == _SLIDE], starts[kinds == _SLIDE]
        slides = joints[kinds == _SLIDE]
        half = np.ptp(model.jnt_range[slides], axis=1) / 2
        self._slide_scale = np.where(model.jnt_limited[slides] != 0, np.maximum(half, _MIN_SLIDE_SCALE), 1.0)
        self._balls = tuple(zip(q[kinds == _BALL].tolist(), starts[kinds == _BALL].tolist(), strict=True))
        self._width = int(widths.sum())
        self._dofs = np.array(
            [d + i for d, kind in zip(dof.tolist(), kinds, strict=True) for i in range(3 if kind == _BALL else 1)],
            dtype=np.intp,
        )

    def columns(self) -> Iterator[Column]:
        pairs = tuple(zip(self._joints.tolist(), self._kinds.tolist(), strict=True))
        for joint, kind in pairs:
            for i in range({_HINGE: 2, _SLIDE: 1, _BALL: 6}[kind]):
                yield Column(f"pos_{i}", "1", JOINT, joint)
        for joint, kind in pairs:
            for i in range(3 if kind == _BALL else 1):
                yield Column(f"vel_{i}", "m/s" if kind == _SLIDE else "rad/s", JOINT, joint)

    def encode(self, qpos: np.ndarray, qvel: np.ndarray, out: np.ndarray) -> None:
        angle = qpos.take(self._hinge_q, axis=1)
        out[:, self._hinge] = np.sin(angle)
        out[:, self._hinge + 1] = np.cos(angle)
        if len(self._slide):
            x = qpos[:, self._slide_q]
            out[:, self._slide] = x / (np.abs(x) + self._slide_scale)
        for q, start in self._balls:
            out[:, start : start + 6] = two_columns(rotation_matrices(qpos[:, q : q + 4]))
        out[:, self._width :] = qvel[:, self._dofs]


class _ContactSum:
    """External torques and forces by moving body."""

    def __init__(self, robot: Robot) -> None:
        carriers = robot.moving_body[robot.bodies]
        self.bodies, counts = np.unique(carriers, return_counts=True)
        self._order = robot.bodies[np.argsort(carriers, kind="stable")]
        self._starts = np.cumsum(counts) - counts

    def columns(self) -> Iterator[Column]:
        for body in self.bodies.tolist():
            for i in range(6):
                yield Column(f"contact_{i}", "N·m" if i < 3 else "N", BODY, body)

    def sum(self, cfrc_ext: np.ndarray) -> np.ndarray:
        own = cfrc_ext.take(self._order, axis=1)
        if len(self._starts) < len(self._order):
            own = np.add.reduceat(own, self._starts, axis=1)
        return np.clip(own, -CONTACT_CLIP, CONTACT_CLIP).reshape(len(own), -1)


class _ActEncoder:
    """Activations of the robot's actuators."""

    def __init__(self, model: mujoco.MjModel, robot: Robot) -> None:
        self._entries: list[tuple[int, int]] = []  # actuator, number of the variable
        addresses, bounds = [], []
        for actuator in dict.fromkeys(robot.actuators.tolist()):
            for i in range(int(model.actuator_actnum[actuator])):
                self._entries.append((actuator, i))
                addresses.append(int(model.actuator_actadr[actuator]) + i)
                bounds.append(_act_bound(model, actuator))
        self._address = np.array(addresses, dtype=np.intp)
        bound = np.array(bounds)
        self._soft = np.isinf(bound)
        self._scale = np.where(self._soft, 1.0, np.maximum(bound, 1.0))

    def columns(self) -> Iterator[Column]:
        for actuator, i in self._entries:
            yield Column(f"act_{i}", "1", ACTUATOR, actuator)

    def encode(self, act: np.ndarray) -> np.ndarray:
        own = act[:, self._address]
        return own / np.where(self._soft, 1.0 + np.abs(own), self._scale)


def _act_bound(model: mujoco.MjModel, actuator: int) -> float:
    """Return the largest magnitude that an actuator's activation can have, infinity if it has no bound."""
    kind = int(model.actuator_dyntype[actuator])
    if kind == int(_DYN.mjDYN_MUSCLE):
        return 1.0
    if model.actuator_actlimited[actuator] and model.actuator_actnum[actuator] == 1:
        return float(np.abs(model.actuator_actrange[actuator]).max())
    control = int(model.actuator_ctrladr[actuator])
    if kind in _FILTERS and model.actuator_ctrllimited[control]:  # it follows the control
        return float(np.abs(model.actuator_ctrlrange[control]).max())
    return np.inf
