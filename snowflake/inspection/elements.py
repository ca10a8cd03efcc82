"""Parts of a compiled model as plain data: the tree of bodies, joints, what each actuator is and drives."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from envs.robot import ROOT_NODE, Robot, display_name, transmission

_OBJ = mujoco.mjtObj
_JOINTS = {int(kind): kind.name.removeprefix("mjJNT_").lower() for kind in mujoco.mjtJoint.__members__.values()}
_WELD, _CONNECT = mujoco.mjtEq.mjEQ_WELD, mujoco.mjtEq.mjEQ_CONNECT


def _word(enum: Any, value: int) -> str:
    """Return the lower-case name of a value of one of MuJoCo's enumerations, without its prefix."""
    return enum(value).name.split("_", 1)[1].lower()


def joint_type(model: mujoco.MjModel, joint: int) -> str:
    """Return `"hinge"`, `"slide"`, `"ball"` or `"free"`."""
    return _JOINTS[int(model.jnt_type[joint])]


def joint_name(model: mujoco.MjModel, joint: int) -> str:
    """Return a joint's name, or `"joint#7"`."""
    return display_name(model, _OBJ.mjOBJ_JOINT, int(joint))


def body_name(model: mujoco.MjModel, body: int) -> str:
    """Return a body's name, or `"body#7"`."""
    return display_name(model, _OBJ.mjOBJ_BODY, int(body))


def actuator_name(model: mujoco.MjModel, actuator: int | np.integer) -> str:
    """Return an actuator's name, or `"actuator#7"`."""
    return display_name(model, _OBJ.mjOBJ_ACTUATOR, int(actuator))


def dof_name(model: mujoco.MjModel, dof: int) -> str:
    """Return the name of the joint that a degree of freedom belongs to, with the component where it has several."""
    joint = int(model.dof_jntid[dof])
    part = dof - int(model.jnt_dofadr[joint])
    several = joint_type(model, joint) in ("free", "ball")
    return joint_name(model, joint) + (f"[{part}]" if several else "")


def sizes(model: mujoco.MjModel) -> dict[str, Any]:
    """Return counts, mass [kg] and time step [s] of a model."""
    return {
        "bodies": model.nbody - 1,
        "joints": model.njnt,
        "degrees_of_freedom": model.nv,
        "actuators": model.nactuator,
        "controls": model.nu,
        "activations": model.na,
        "tendons": model.ntendon,
        "equality_constraints": model.neq,
        "keyframes": model.nkey,
        "mass": float(model.body_subtreemass[0]),
        "timestep": float(model.opt.timestep),
    }


def tree(model: mujoco.MjModel, robot: Robot | None) -> list[dict[str, Any]]:
    """Return all bodies but the world, parents first, with their joints.

    Each is `{"id", "name", "depth", "parent", "mass" [kg], "part", "joints"}`; `part` says `"robot"`, `"mocap"`,
    `"other"` (a passive tree, or another robot) or `"fixed"` (part of the scene).
    """
    own = set() if robot is None else set(robot.bodies.tolist())
    depth = np.zeros(model.nbody, dtype=int)
    rows = []
    for body in range(1, model.nbody):
        parent, root = int(model.body_parentid[body]), int(model.body_rootid[body])
        depth[body] = depth[parent] + 1
        joints = range(int(model.body_jntadr[body]), int(model.body_jntadr[body] + model.body_jntnum[body]))
        moves = model.body_weldid[body] != 0
        part = "robot" if body in own else "mocap" if model.body_mocapid[root] >= 0 else "other" if moves else "fixed"
        rows.append(
            {
                "id": body,
                "name": body_name(model, body),
                "depth": int(depth[body]) - 1,
                "parent": parent,
                "mass": float(model.body_mass[body]),
                "part": part,
                "joints": [joint(model, j) for j in joints] if model.body_jntnum[body] else [],
            }
        )
    return rows


def joint(model: mujoco.MjModel, index: int) -> dict[str, Any]:
    """Return `{"id", "name", "type", "range" (rad or m, None if unlimited)}` of a joint."""
    limited = bool(model.jnt_limited[index])
    return {
        "id": index,
        "name": joint_name(model, index),
        "type": joint_type(model, index),
        "range": model.jnt_range[index].tolist() if limited else None,
    }


def actuator_kind(model: mujoco.MjModel, actuator: int) -> str:
    """Return the kind of an actuator as its numbers tell it: `"motor"`, `"position"`, `"velocity"`, `"damper"`, ...

    The compiled model no longer knows by which element an actuator was written; what fits no shortcut is `"general"`.
    """
    gain, bias = _word(mujoco.mjtGain, model.actuator_gaintype[actuator]), model.actuator_biastype[actuator]
    bias, dynamics = _word(mujoco.mjtBias, bias), _word(mujoco.mjtDyn, model.actuator_dyntype[actuator])
    for special in ("muscle", "dcmotor", "pid", "so3", "user"):
        if special in (gain, bias, dynamics):
            return {"so3": "orientation"}.get(special, special)
    if model.actuator_trntype[actuator] == mujoco.mjtTrn.mjTRN_BODY:
        return "adhesion"
    strength, offsets = float(model.actuator_gainprm[actuator, 0]), model.actuator_biasprm[actuator, :3]
    if gain == "affine":
        return "damper" if strength == 0 and bias == "none" else "general"
    if bias == "none":
        return "motor" if dynamics == "none" else "general"
    if np.isclose(offsets[1], -strength) and strength and offsets[0] == 0:
        return "intvelocity" if dynamics == "integrator" else "position"
    if offsets[1] == 0 and strength and np.isclose(offsets[2], -strength):
        return "velocity"
    return "cylinder" if dynamics == "filter" else "general"


def attachment_names(model: mujoco.MjModel, attachments: tuple[int, ...]) -> list[str]:
    """Return the names of the joints that a control acts on, `"root"` for the root node."""
    return ["root" if joint == ROOT_NODE else joint_name(model, joint) for joint in attachments]


def actuators(model: mujoco.MjModel, robot: Robot | None) -> list[dict[str, Any]]:
    """Return every actuator: what it is, how strong, through what it acts, and on which joints.

    `controls` are indices into `mjData.ctrl`; `drives` is `None` for an actuator that is no part of the robot.
    """
    drives: dict[int, list[str]] = {}
    if robot is not None:
        for actuator, attached in zip(robot.actuators.tolist(), robot.attachments, strict=True):
            drives[actuator] = attachment_names(model, attached)
    rows = []
    for actuator in range(model.nactuator):
        first = int(model.actuator_ctrladr[actuator])
        force = int(model.actuator_forcelimited[actuator])
        output = int(model.actuator_outadr[actuator]) if hasattr(model, "actuator_outadr") else actuator
        rows.append(
            {
                "id": actuator,
                "name": actuator_name(model, actuator),
                "controls": list(range(first, first + int(model.actuator_ctrlnum[actuator]))),
                "kind": actuator_kind(model, actuator),
                "transmission": transmission(model, actuator),
                "gain": float(model.actuator_gainprm[actuator, 0]),
                "gear": _trimmed(model.actuator_gear[output]),
                "dynamics": _word(mujoco.mjtDyn, model.actuator_dyntype[actuator]),
                "force_range": model.actuator_forcerange[actuator].tolist() if force else None,
                "drives": drives.get(actuator),
            }
        )
    return rows


def _trimmed(gear: np.ndarray) -> list[float]:
    """Return a gear without the zeros at its end, which only site transmissions and ball joints use."""
    used = np.flatnonzero(gear)
    return gear[: used[-1] + 1].tolist() if len(used) else [0.0]


def equalities(model: mujoco.MjModel) -> list[dict[str, Any]]:
    """Return the equality constraints as `{"id", "name", "type", "between"}`."""
    rows = []
    for index in range(model.neq):
        kind, of = int(model.eq_type[index]), int(model.eq_objtype[index])
        pair = (int(model.eq_obj1id[index]), int(model.eq_obj2id[index]))
        if kind in (_CONNECT, _WELD) and of == _OBJ.mjOBJ_SITE:
            pair = tuple(int(model.site_bodyid[site]) for site in pair)
            of = int(_OBJ.mjOBJ_BODY)
        rows.append(
            {
                "id": index,
                "name": display_name(model, _OBJ.mjOBJ_EQUALITY, index),
                "type": _word(mujoco.mjtEq, kind),
                "between": [display_name(model, _OBJ(of), element) for element in pair if element >= 0],
            }
        )
    return rows
