"""N simulations of one body, stepped together by a few threads."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import mujoco
import numpy as np

_LOGGER = logging.getLogger(__name__)
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION  # FULLPHYSICS lacks the solver's warm start: a restart from it drifts
_WARNINGS = tuple(mujoco.mjtWarning(i).name for i in range(int(mujoco.mjtWarning.mjNWARNING)))


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux: honours taskset and container limits
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _log_warning(message: str) -> None:
    _LOGGER.debug("MuJoCo: %s", message)


def route_mujoco_warnings() -> None:
    """Send MuJoCo's warnings to the logger `envs.physics`, at level debug; a handler already installed stays.

    Without a handler MuJoCo appends to a file MUJOCO_LOG.TXT in the working directory. What a warning means for an
    episode is read from the counters in `BatchedPhysics.warnings`.
    """
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log_warning)


class BatchedPhysics:
    """N `mujoco.MjData` of one model; the results of a step lie in arrays over the batch, filled in place.

    `mj_step` releases the interpreter lock, so plain threads do. The calling thread works too, and the others sleep
    between steps. Which thread steps which environment does not touch the numbers.

    Attributes:
        qpos: positions. (N, nq)
        qvel: velocities. (N, nv)
        xpos: origins of the body frames in the world [m]; as MuJoCo leaves them they lag a step's end. (N, nbody, 3)
        subtree_com: centres of mass of every body with all below it [m]; they lag like xpos. (N, nbody, 3)
        cfrc_ext: external torque [N·m] and force [N] on every body, from `mj_rnePostConstraint`. (N, nbody, 6)
        act: activations. (N, na)
        actuator_force: force of every actuator output in the last substep [N or N·m]. (N, nout)
        actuator_velocity: velocity of every actuator output in the last substep [m/s or rad/s]. (N, nout)
        warnings: MuJoCo's warning counters over the last control step. (N, number of warnings) int32

    Args:
        model: the model; the caller leaves it unchanged from now on.
        num_envs: N.
        frame_skip: substeps in a control step.
        num_threads: threads to step with, 0 for one a core; never more than N are used.
        keyframe: keyframe that environments are reset to before they are placed, -1 for none.
    """

    def __init__(
        self, model: mujoco.MjModel, num_envs: int, frame_skip: int, num_threads: int = 0, keyframe: int = -1
    ) -> None:
        if not model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_AUTORESET:
            raise ValueError("the model resets itself when it diverges: set mjDSBL_AUTORESET in opt.disableflags")
        route_mujoco_warnings()
        self.model = model
        self.num_envs = num_envs
        self.data = tuple(mujoco.MjData(model) for _ in range(num_envs))
        self.qpos = np.zeros((num_envs, model.nq))
        self.qvel = np.zeros((num_envs, model.nv))
        self.xpos = np.zeros((num_envs, model.nbody, 3))
        self.subtree_com = np.zeros((num_envs, model.nbody, 3))
        self.cfrc_ext = np.zeros((num_envs, model.nbody, 6))
        self.act = np.zeros((num_envs, model.na))
        # One row an output: an actuator on an orientation has three.
        self.actuator_force = np.zeros((num_envs, len(self.data[0].actuator_force)))
        self.actuator_velocity = np.zeros_like(self.actuator_force)
        self.warnings = np.zeros((num_envs, len(_WARNINGS)), dtype=np.int32)
        self._ctrl = np.zeros((num_envs, model.nu))
        self._frame_skip = frame_skip
        self._keyframe = keyframe
        # Row of a batch array and view into MjData, resolved once: making the views costs more than copying.
        self._outputs = tuple(tuple(self._pairs(env)) for env in range(num_envs))
        self._ctrl_views = tuple(data.ctrl for data in self.data)
        self._warning_views = tuple(data.warning.number for data in self.data)
        self._helpers = min(num_threads or available_cores(), num_envs) - 1
        self._pool = ThreadPoolExecutor(self._helpers, thread_name_prefix="physics") if self._helpers else None

    def _pairs(self, env: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        data = self.data[env]
        yield self.qpos[env], data.qpos
        yield self.qvel[env], data.qvel
        yield self.xpos[env], data.xpos
        yield self.subtree_com[env], data.subtree_com
        yield self.cfrc_ext[env], data.cfrc_ext
        if self.model.na:
            yield self.act[env], data.act
        yield self.actuator_force[env], data.actuator_force
        yield self.actuator_velocity[env], data.actuator_velocity
        yield self.warnings[env], data.warning.number

    def step(self, ctrl: np.ndarray) -> None:
        """Advance every environment by one control step and refresh the arrays.

        Args:
            ctrl: what goes into `mjData.ctrl`, held for the whole control step. (N, nu)
        """
        np.copyto(self._ctrl, ctrl)
        queue = iter(range(self.num_envs))  # taken one by one: a robot on its back costs more than one in the air
        helpers = [self._pool.submit(self._work, queue) for _ in range(self._helpers)] if self._pool else []
        try:
            self._work(queue)
        finally:
            wait(helpers)  # whatever happens, nobody touches the simulations afterwards
        for helper in helpers:
            helper.result()

    def _work(self, queue: Iterator[int]) -> None:
        for env in queue:
            data = self.data[env]
            self._ctrl_views[env][:] = self._ctrl[env]
            self._warning_views[env].fill(0)
            mujoco.mj_step(self.model, data, self._frame_skip)
            mujoco.mj_rnePostConstraint(self.model, data)  # mj_step leaves cfrc_ext at zero
            self._read(env)

    def _read(self, env: int) -> None:
        for row, view in self._outputs[env]:
            np.copyto(row, view)

    def place(self, env: int, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Put a freshly reset environment into a state and compute where its bodies are; `start` must follow.

        Args:
            env: index into the batch.
            qpos: positions, quaternions of any length. (nq,)
            qvel: velocities. (nv,)
        """
        data = self.data[env]
        if self._keyframe < 0:
            mujoco.mj_resetData(self.model, data)
        else:
            mujoco.mj_resetDataKeyframe(self.model, data, self._keyframe)
        data.qpos[:] = qpos
        data.qvel[:] = qvel
        mujoco.mj_normalizeQuat(self.model, data.qpos)
        mujoco.mj_kinematics(self.model, data)
        np.copyto(self.xpos[env], data.xpos)

    def start(self, env: int) -> None:
        """Compute everything that follows from the state set by `place` and refresh the environment's rows."""
        mujoco.mj_forward(self.model, self.data[env])
        mujoco.mj_rnePostConstraint(self.model, self.data[env])
        self._read(env)

    def warning_names(self, env: int) -> list[str]:
        """Return the names of the warnings that MuJoCo raised in the last control step, e.g. `mjWARN_BADQVEL`."""
        return [_WARNINGS[i] for i in np.flatnonzero(self.warnings[env])]

    def get_state(self) -> np.ndarray:
        """Return all that the next steps depend on, (N, size of mjSTATE_INTEGRATION) float64."""
        state = np.empty((self.num_envs, mujoco.mj_stateSize(self.model, _STATE)))
        for env, data in enumerate(self.data):
            mujoco.mj_getState(self.model, data, state[env], _STATE)
        return state

    def set_state(self, state: np.ndarray) -> None:
        """Put back what `get_state` returned; the other arrays keep their values until the next step."""
        for env, data in enumerate(self.data):
            mujoco.mj_setState(self.model, data, state[env], _STATE)
            np.copyto(self.qpos[env], data.qpos)
            np.copyto(self.qvel[env], data.qvel)
            np.copyto(self.act[env], data.act)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
