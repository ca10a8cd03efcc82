"""One model file of the survey: compile it, build its graph, and check observations and actions against MuJoCo.

Usage: ``python benchmarks/survey_checks.py FILE [ROOT_BODY]``; prints one line of JSON. `survey.py` calls it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import agents
from agents.errors import UserError
from agents.files import FileError
from envs import LocomotionVectorEnv
from envs.observation import JOINT, ROOT
from envs.physics import route_mujoco_warnings
from envs.robot import display_name, find_robot
from snowflake.graph import build_graph

STEPS = 50
SMALLEST = 1e-4  # rad, m, or per second: what must show in a float32 column
ACTIONS = (-1.0, -0.3, 0.3, 1.0)
NOT_A_MODEL = ("missing", "empty", "broken", "fragment", "missing asset")
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION


def survey(path: str, root_body: str | None) -> dict[str, Any]:
    """Return `outcome`, `reason`, and sizes; `roots` where the file holds several robots."""
    try:
        morphology = agents.load(path, root_body)
    except FileError as error:
        outcome = "not a model" if error.kind in NOT_A_MODEL else error.kind
        outcome = outcome if outcome in ("not a model", "no actuators") else "crashed"
        return {"outcome": outcome, "reason": f"{error.kind}: {str(error).removeprefix(f'{path}: ')}"}
    model = morphology.compile()
    if root_body is None and len(roots := actuated_roots(model)) > 1:
        return {"outcome": "several robots", "reason": ", ".join(roots), "roots": roots}
    try:
        env = LocomotionVectorEnv(morphology, 1, features="general", num_threads=1)
        graph = build_graph(env.model, env.layout, name=morphology.name, robot=env.robot)
    except UserError as error:
        return {"outcome": "refused", "reason": str(error)}
    found: dict[str, Any] = {
        "nodes": graph.num_nodes,
        "links": graph.num_edges // 2,
        "observations": env.layout.size,
        "actions": len(env.robot.controls),
        "control_hz": round(1 / env.dt, 1),
    }
    faults, found["unstable"] = check_observations(env)
    faults += check_actions(env)
    found |= {"outcome": "check failed" if faults else "graph", "reason": "; ".join(faults)}
    return found


def actuated_roots(model: mujoco.MjModel) -> list[str]:
    """Return the top bodies of all actuated trees; only one where the whole is one robot, or is refused."""
    try:
        find_robot(model)
        return []
    except UserError as error:
        if "actuated trees" not in str(error):
            return []
    roots = []
    for top in np.unique(model.body_rootid[1:]):
        name = display_name(model, mujoco.mjtObj.mjOBJ_BODY, int(top))
        try:
            find_robot(model, name)
        except UserError as error:
            if "no actuator acts on" in str(error):
                continue
        roots.append(name)
    return roots


def check_observations(env: LocomotionVectorEnv) -> tuple[list[str], int]:
    """Take random steps; what moved in MuJoCo must have moved in its columns. Returns faults, and unstable steps."""
    rng = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    seen, qpos, qvel, unstable = [obs[0]], [env.physics.qpos[0].copy()], [env.physics.qvel[0].copy()], 0
    faults = []
    for step in range(STEPS):
        obs, rewards, _, _, infos = env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))
        if not env.observation_space.contains(obs) or not np.isfinite(obs).all():
            faults.append(f"observation outside its space in step {step + 1}")
            break
        if not np.isfinite(rewards).all():
            faults.append(f"reward is not finite in step {step + 1}")
            break
        unstable += int(infos["unstable"][0])
        seen.append(obs[0])
        qpos.append(env.physics.qpos[0].copy())
        qvel.append(env.physics.qvel[0].copy())
    moved = np.ptp(np.array(seen, dtype=np.float64), axis=0)
    return faults + _still_columns(env, moved, np.ptp(qpos, axis=0), np.ptp(qvel, axis=0)), unstable


def _still_columns(env: LocomotionVectorEnv, moved: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> list[str]:
    """Name the joints that moved in MuJoCo and whose columns did not, and columns of joints that stood still."""
    model, layout, faults = env.model, env.layout, []
    for joint in env.robot.node_joints.tolist():
        name = display_name(model, mujoco.mjtObj.mjOBJ_JOINT, joint)
        wide = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_BALL
        parts = {
            "pos_": qpos[model.jnt_qposadr[joint] :][: 4 if wide else 1],
            "vel_": qvel[model.jnt_dofadr[joint] :][: 3 if wide else 1],
        }
        for prefix, motion in parts.items():
            own = (layout.owner_kind == JOINT) & (layout.owner_id == joint)
            own &= np.array([feature.startswith(prefix) for feature in layout.features])
            if not own.any():
                faults.append(f"joint {name!r} has no {prefix} column")
            elif motion.max() > SMALLEST and not moved[own].max() > 0:
                faults.append(f"joint {name!r} moved, its {prefix} columns did not")
            elif motion.max() == 0 and moved[own].max() > 0:
                faults.append(f"joint {name!r} stood still, its {prefix} columns moved")
    root = np.flatnonzero(layout.owner_kind == ROOT)
    still = [layout.features[c] for c in root if moved[c] == 0 and not layout.features[c].startswith("command")]
    if still and qvel[model.jnt_dofadr[env.robot.root_joints]].max(initial=0.0) > SMALLEST:
        faults.append(f"root columns stood still: {', '.join(still)}")
    return faults


def check_actions(env: LocomotionVectorEnv) -> list[str]:
    """Action i may change only the force and activation of its actuator, and forces on the joints that this moves."""
    model, robot = env.model, env.robot
    env.reset(seed=0)
    state, saved = env.physics.get_state()[0], env.get_state()
    data, faults = mujoco.MjData(model), []

    def forces(actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        env.set_state(saved)
        env.step_without_reset(actions)
        control = env.physics.data[0].ctrl.copy()
        mujoco.mj_setState(model, data, state, _STATE)
        data.ctrl[:] = control
        mujoco.mj_forward(model, data)
        return data.actuator_force.copy(), data.act_dot.copy(), data.qfrc_actuator.copy()

    rest = forces(np.zeros(env.action_space.shape))
    for action, actuator in enumerate(robot.actuators.tolist()):
        effect = 0.0
        for value in ACTIONS:
            actions = np.zeros(env.action_space.shape)
            actions[0, action] = value
            after = forces(actions)
            changed = [np.flatnonzero(a != b) for a, b in zip(after, rest, strict=True)]
            allowed = (_slots(model.actuator_outadr, model.actuator_outnum, actuator),
                       _slots(model.actuator_actadr, model.actuator_actnum, actuator),
                       _moment_dofs(model, data, actuator))  # fmt: skip
            for what, found, own in zip(("force", "activation", "joint force"), changed, allowed, strict=True):
                if strangers := set(found.tolist()) - set(own):
                    faults.append(f"action {action} changes the {what} of {sorted(strangers)[:5]}, beyond {own[:5]}")
            effect = max(effect, *(np.abs(a - b).max(initial=0.0) for a, b in zip(after[:2], rest[:2], strict=True)))
            if faults:
                return faults
        if not effect:
            name = display_name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, actuator)
            faults.append(f"action {action} changes nothing of actuator {name!r}")
    return faults


def _slots(first: np.ndarray, count: np.ndarray, index: int) -> list[int]:
    return list(range(int(first[index]), int(first[index] + count[index]))) if count[index] else []


def _moment_dofs(model: mujoco.MjModel, data: mujoco.MjData, actuator: int) -> list[int]:
    """Return the degrees of freedom on which an actuator has a moment."""
    dofs: set[int] = set()
    for row in _slots(model.actuator_outadr, model.actuator_outnum, actuator):
        start, count = int(data.moment_rowadr[row]), int(data.moment_rownnz[row])
        dofs.update(data.moment_colind[start : start + count].tolist())
    return sorted(dofs)


if __name__ == "__main__":
    route_mujoco_warnings()
    print(json.dumps(survey(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 and sys.argv[2] else None)))
