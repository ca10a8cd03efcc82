"""Does the physics hold under random actions, and if not, where does it break and what would mend it?"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import mujoco
import numpy as np

from envs import LocomotionVectorEnv
from snowflake.inspection.elements import dof_name
from snowflake.inspection.findings import WARNING, Finding

TRIALS = 3
"""Episodes of random actions, side by side."""

_W = mujoco.mjtWarning
_QPOS, _DOF = (_W.mjWARN_BADQPOS,), (_W.mjWARN_BADQVEL, _W.mjWARN_BADQACC)
_SMALLEST_TIMESTEP = 2e-4  # s; nobody trains with less


@dataclass(frozen=True)
class Breakdown:
    """Where a simulation broke.

    Attributes:
        step: control step, from 1.
        warning: name of MuJoCo's warning, or `"not finite"`.
        where: the joint concerned, `""` if the warning names none.
    """

    step: int
    warning: str
    where: str


def _breakdown(model: mujoco.MjModel, data: mujoco.MjData, step: int) -> Breakdown | None:
    """Say what broke in the last control step, None if nothing did."""
    raised = np.flatnonzero(data.warning.number)
    if len(raised):
        kind = _W(int(raised[0]))
        return Breakdown(step, kind.name, _where(model, kind, int(data.warning[kind].lastinfo)))
    wrong = np.flatnonzero(~np.isfinite(data.qacc))
    if len(wrong):
        return Breakdown(step, "not finite", dof_name(model, int(wrong[0])))
    return None


def play_controls(model: mujoco.MjModel, start: np.ndarray, controls: np.ndarray, frame_skip: int) -> Breakdown | None:
    """Simulate a sequence of controls and tell where it broke, None if it held.

    Args:
        model: the model; must not reset itself (`mjDSBL_AUTORESET`).
        start: `mjSTATE_INTEGRATION` of the first state.
        controls: (steps, nu).
        frame_skip: substeps in a control step.
    """
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, start, mujoco.mjtState.mjSTATE_INTEGRATION)
    for step, control in enumerate(controls, 1):
        data.ctrl[:] = control
        mujoco.mj_step(model, data, frame_skip)
        if found := _breakdown(model, data, step):
            return found
    return None


def _where(model: mujoco.MjModel, kind: mujoco.mjtWarning, info: int) -> str:
    if kind in _DOF and 0 <= info < model.nv:
        return dof_name(model, info)
    if kind in _QPOS and 0 <= info < model.nq:
        joint = int(np.flatnonzero(model.jnt_qposadr <= info)[-1])
        return dof_name(model, int(model.jnt_dofadr[joint]))
    return ""


def check_stability(env: LocomotionVectorEnv, steps: int, seed: int) -> tuple[dict[str, object], list[Finding]]:
    """Play random actions, without a restart after a fall; where the physics breaks, look for what would hold.

    Args:
        env: environments of one body, one a trial.
        steps: control steps.
        seed: of the start states and of the actions.

    Returns:
        What was done, as plain data, and the findings.
    """
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    starts = env.physics.get_state()
    controls = np.zeros((env.num_envs, steps, env.model.nu))
    broken: dict[int, Breakdown] = {}
    for step in range(steps):
        _, _, _, _, infos = env.step_without_reset(rng.uniform(-1, 1, env.action_space.shape))
        for trial, data in enumerate(env.physics.data):
            controls[trial, step] = data.ctrl
            if infos["unstable"][trial] and trial not in broken:
                found = _breakdown(env.model, data, step + 1)
                broken[trial] = found or Breakdown(step + 1, "a reward or observation that is not finite", "")
        if len(broken) == env.num_envs:
            break
    done: dict[str, object] = {"trials": env.num_envs, "steps": steps, "broken": len(broken)}
    if not broken:
        return done, []
    trial, first = min(broken.items(), key=lambda pair: pair[1].step)
    at = f" at joint {first.where!r}" if first.where else ""
    message = f"unstable under random actions in {len(broken)} of {env.num_envs} trials of {steps} steps: "
    message += f"{first.warning}{at} in step {first.step}"
    if first.warning in ("mjWARN_CNSTRFULL", "mjWARN_CONTACTFULL"):
        advice = 'give it more memory: <size memory="100M"/>'
    else:
        frame_skip = round(env.dt / env.model.opt.timestep)
        advice = _cure(env.model, starts[trial], controls[trial, : first.step], frame_skip)
    done |= {"step": first.step, "warning": first.warning, "joint": first.where, "advice": advice}
    return done, [Finding(WARNING, "unstable", message, advice, (first.where,) if first.where else ())]


def _cure(model: mujoco.MjModel, start: np.ndarray, controls: np.ndarray, frame_skip: int) -> str:
    """Try smaller time steps, then more armature, on the trial that broke first."""
    timestep = float(model.opt.timestep)
    for part in (2, 4):
        if timestep / part < _SMALLEST_TIMESTEP:
            break
        finer = copy.copy(model)
        finer.opt.timestep = timestep / part
        if play_controls(finer, start, controls, frame_skip * part) is None:
            return f"timestep {timestep / part:g} s instead of {timestep:g} s holds here"
    heavier = copy.copy(model)
    heavier.dof_armature[:] = np.maximum(heavier.dof_armature, 0.01 * np.maximum(heavier.dof_M0, 1e-6)) * 10
    if play_controls(heavier, start, controls, frame_skip) is None:
        return "ten times the armature of the joints holds here (a tenth of their inertia where there is none)"
    return "try a smaller timestep, more armature or damping, or weaker actuators"
