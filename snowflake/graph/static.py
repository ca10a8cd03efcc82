"""Static features of a robot: what does not change while it moves, from compiled numbers alone.

Fixed formulas bring every number to order one, so no running statistics touch them; all are finite and within +-10 for
any model. With x a number and u a unit (the magnitude from which it starts to matter):

- `wide(x, u)` = sign(x) log1p(|x| / u) / 4, for what spans powers of ten (u = 1e-3 and x = 0.1 give 1.2);
- `bounded(x, s)` = x / (|x| + s), for positions of any size, in (-1, 1);
- one-hots for kinds, 0 or 1 for flags.

All are taken at the reference pose `qpos0`. Directions are in the frame of the moving body above (the world for a
joint of the top body), lengths `wide` with unit 0.1 of the robot's size, its radius of gyration in that pose:
sqrt(sum_i (m_i |x_i - c|^2 + tr(I_i) / 2) / sum_i m_i) over the bodies that can move, c the centre of mass, I_i the
inertia of body i about its own centre. The "part" of a joint or of the root is its moving body with all that is welded
to it; what cannot move at all (a fixed base) counts as having no mass.
"""

from __future__ import annotations

import mujoco
import numpy as np

from snowflake.graph.edges import moving_parent
from snowflake.graph.moments import ControlMoments
from snowflake.graph.rest import RestPose, inertia_of_point


def _axes(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_{axis}" for axis in "xyz")


ROOT_STATIC = (
    *("is_free", "is_partly_free", "is_fixed", "freedoms"),
    *("total_mass", "size", "joints", "controls", "own_controls"),
    *("mass", "mass_fraction", "inertia", *_axes("centre"), "gravity", *_axes("down")),
)
"""Static features of the root; `down` is the direction of gravity in the frame of the top body."""

JOINT_STATIC = (
    *("is_hinge", "is_slide", "is_ball", "is_other", *_axes("axis"), *_axes("offset")),
    *("is_limited", "lower", "upper", "reference", "spring_reference"),
    *("damping", "armature", "stiffness", "frictionloss", "is_force_limited", "force_limit"),
    *("mass", "mass_fraction", "inertia", *_axes("centre"), "controls"),
)
"""Static features of a joint."""

ACTUATOR_STATIC = (
    *(f"is_{kind}" for kind in ("motor", "position", "velocity", "affine", "muscle", "adhesion", "other")),
    *(f"on_{target}" for target in ("joint", "tendon", "site", "slider_crank", "body", "other")),
    *(f"input_{kind}" for kind in ("position", "velocity", "feedforward", "other")),
    *(f"slot_{slot}" for slot in range(4)),
    *("gear", *(f"gear_direction_{i}" for i in range(6)), "moment", "nodes"),
    *(*_axes("root_force"), *_axes("root_torque")),
    *("gain", "bias_constant", "bias_position", "bias_velocity", "has_activation", "is_integrator", "time_constant"),
    *("is_limited", "lower", "upper", "is_force_limited", "force_lower", "force_upper"),
)
"""Static features of a control. `root_force` and `root_torque` are the direction, of length 1 together, in which the
actuator pushes the whole robot, in the frame of the top body: 0 for inner forces, telling for the thrust of a rotor."""

_JOINT, _TRN, _GAIN, _BIAS = mujoco.mjtJoint, mujoco.mjtTrn, mujoco.mjtGain, mujoco.mjtBias
# As integers: a NumPy integer is never found `in` a tuple of MuJoCo's enumeration values.
_TYPES = tuple(int(kind) for kind in (_JOINT.mjJNT_HINGE, _JOINT.mjJNT_SLIDE, _JOINT.mjJNT_BALL))
_AFFINE_BIAS = (int(_BIAS.mjBIAS_NONE), int(_BIAS.mjBIAS_AFFINE))
_LINEAR_GAIN = (int(_GAIN.mjGAIN_FIXED), int(_GAIN.mjGAIN_PID))
_TRANSMISSIONS = {
    int(_TRN.mjTRN_JOINT): 0,
    int(_TRN.mjTRN_JOINTINPARENT): 0,
    int(_TRN.mjTRN_TENDON): 1,
    int(_TRN.mjTRN_SITE): 2,
    int(_TRN.mjTRN_SLIDERCRANK): 3,
    int(_TRN.mjTRN_BODY): 4,
}
_WITH_SIGNATURE = (int(_GAIN.mjGAIN_PID), int(_GAIN.mjGAIN_DCMOTOR))
_INPUT_BITS = (1, 2, 4)  # `actuator_ctrlspec`: setpoints of position and velocity, feedforward


def wide(x: float, unit: float) -> float:
    """Return sign(x) log1p(|x| / unit) / 4, x held within 1e15 units; 0 for what is no number."""
    if np.isnan(x):
        return 0.0
    return float(np.sign(x) * np.log1p(min(abs(x) / unit, 1e15)) / 4)


def bounded(x: float, scale: float) -> float:
    """Return x / (|x| + scale), the sign of an infinite x; 0 for what is no number."""
    if np.isnan(x):
        return 0.0
    return float(np.sign(x)) if np.isinf(x) else float(x / (abs(x) + scale))


def _float32(rows: list[list[float]], width: int) -> np.ndarray:
    finite = np.nan_to_num(np.array(rows, dtype=np.float64).reshape(-1, width))
    return np.clip(finite, -10.0, 10.0).astype(np.float32)


def root_static(model: mujoco.MjModel, rest: RestPose, attached: list[list[int]]) -> np.ndarray:
    """Return the root's features (len(ROOT_STATIC),) float32. `attached`: nodes of every control."""
    robot, top = rest.robot, rest.robot.root_body
    free = bool(np.any(model.jnt_type[robot.root_joints] == _JOINT.mjJNT_FREE))
    partly = len(robot.root_joints) > 0 and not free
    mass, centre, inertia = rest.part(top)
    frame, gravity = rest.frame(top), _gravity(model)
    offset = _length(frame @ (centre - rest.data.xpos[top]), rest) if mass > 0 else [0.0] * 3
    row = [
        *(float(free), float(partly), float(not free and not partly)),
        sum(_freedoms(model, int(joint)) for joint in robot.root_joints) / 6,
        wide(rest.total_mass, 0.1),
        wide(rest.size, 0.01),
        wide(len(robot.node_joints), 1.0),
        wide(len(robot.controls), 1.0),
        wide(sum(0 in nodes for nodes in attached), 1.0),
        wide(mass, 0.01),
        rest.fraction(mass),
        wide(float(np.trace(inertia)) / 3, 1e-5),
        *offset,
        wide(float(np.linalg.norm(gravity)), 1.0),
        *(frame @ gravity / max(float(np.linalg.norm(gravity)), 1e-9)),
    ]
    return _float32([row], len(ROOT_STATIC))[0]


def _length(vector: np.ndarray, rest: RestPose) -> list[float]:
    """Encode a vector of lengths: small parts on a large fixed base are many sizes away from it."""
    return [wide(float(x) / rest.size, 0.1) for x in vector]


def _freedoms(model: mujoco.MjModel, joint: int) -> int:
    return {int(_JOINT.mjJNT_FREE): 6, int(_JOINT.mjJNT_BALL): 3}.get(int(model.jnt_type[joint]), 1)


def _gravity(model: mujoco.MjModel) -> np.ndarray:
    off = model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_GRAVITY)
    return np.zeros(3) if off else np.array(model.opt.gravity)


def joint_static(model: mujoco.MjModel, rest: RestPose, attached: list[list[int]]) -> np.ndarray:
    """Return the joints' features (V - 1, len(JOINT_STATIC)) float32."""
    joints = enumerate(rest.robot.node_joints.tolist(), start=1)
    rows = [_joint_row(model, rest, joint, sum(node in nodes for nodes in attached)) for node, joint in joints]
    return _float32(rows, len(JOINT_STATIC))


def _joint_row(model: mujoco.MjModel, rest: RestPose, joint: int, controls: int) -> list[float]:
    data, top = rest.data, rest.robot.root_body
    body, kind, dof = int(model.jnt_bodyid[joint]), int(model.jnt_type[joint]), int(model.jnt_dofadr[joint])
    ball, slide = kind == _JOINT.mjJNT_BALL, kind == _JOINT.mjJNT_SLIDE
    parent = 0 if body == top else moving_parent(model, body, top)
    frame, anchor, axis = rest.frame(parent), data.xanchor[joint], data.xaxis[joint]
    origin = data.xpos[parent] if parent else data.xpos[body]  # where the robot stands in the world does not matter
    mass, centre, inertia = rest.part(body)
    about_anchor = inertia + inertia_of_point(mass, centre - anchor)
    turning = float(np.trace(about_anchor)) / 3 if ball else float(axis @ about_anchor @ axis)
    scale = rest.size if slide else 1.0
    reference = spring = 0.0
    if not ball:
        reference = float(model.qpos0[model.jnt_qposadr[joint]])
        spring = float(model.qpos_spring[model.jnt_qposadr[joint]]) - reference
    limited, force_limited = bool(model.jnt_limited[joint]), bool(model.jnt_actfrclimited[joint])
    lower, upper = model.jnt_range[joint] if limited else (0.0, 0.0)
    return [
        *(float(kind == one) for one in _TYPES),
        float(kind not in _TYPES),
        *(np.zeros(3) if ball else frame @ axis),
        *_length(frame @ (anchor - origin), rest),
        *(float(limited), bounded(lower, scale), bounded(upper, scale), bounded(reference, scale)),
        bounded(spring, scale),
        wide(float(model.dof_damping[dof]), 0.01),
        wide(float(model.dof_armature[dof]), 1e-4),
        wide(float(model.jnt_stiffness[joint]), 0.01),
        wide(float(model.dof_frictionloss[dof]), 0.01),
        float(force_limited),
        wide(float(np.abs(model.jnt_actfrcrange[joint]).max()), 0.1) if force_limited else 0.0,
        wide(mass, 0.01),
        rest.fraction(mass),
        wide(mass if slide else turning, 0.01 if slide else 1e-5),
        *(_length(frame @ (centre - anchor), rest) if mass > 0 else [0.0] * 3),
        wide(controls, 1.0),
    ]


def actuator_static(
    model: mujoco.MjModel, rest: RestPose, attached: list[list[int]], moments: ControlMoments
) -> np.ndarray:
    """Return the controls' features (A, len(ACTUATOR_STATIC)) float32."""
    robot = rest.robot
    rows = []
    for index, (control, actuator) in enumerate(zip(robot.controls.tolist(), robot.actuators.tolist(), strict=True)):
        slot = control - int(model.actuator_ctrladr[actuator])
        rows.append(
            [
                *_one_hot(_kind(model, actuator), 7),
                *_one_hot(_TRANSMISSIONS.get(int(model.actuator_trntype[actuator]), 5), 6),
                *_one_hot(_input(model, actuator, slot), 4),
                *_one_hot(min(slot, 3), 4),
                *_gear(model.actuator_gear[moments.output[index]]),
                *(wide(float(moments.total[index]), 0.01), wide(len(attached[index]), 1.0), *moments.on_root[index]),
                *_force(model, actuator),
                *_ranges(model, control, actuator),
            ]
        )
    return _float32(rows, len(ACTUATOR_STATIC))


def _one_hot(index: int, size: int) -> list[float]:
    return [float(i == index) for i in range(size)]


def _kind(model: mujoco.MjModel, actuator: int) -> int:
    """Return the index of motor, position, velocity, affine, muscle, adhesion or other."""
    gain, bias = int(model.actuator_gaintype[actuator]), int(model.actuator_biastype[actuator])
    if model.actuator_trntype[actuator] == _TRN.mjTRN_BODY:
        return 5
    if gain == _GAIN.mjGAIN_MUSCLE:
        return 4
    if gain == _GAIN.mjGAIN_AFFINE:
        return 3
    if bias not in _AFFINE_BIAS or gain not in _LINEAR_GAIN:
        return 6
    _, position, velocity = _bias(model, actuator)
    return 1 if position else 2 if velocity else 0


def _input(model: mujoco.MjModel, actuator: int, slot: int) -> int:
    """Return the index of position setpoint, velocity setpoint, feedforward or other."""
    if int(model.actuator_gaintype[actuator]) in _WITH_SIGNATURE:
        present = [i for i, bit in enumerate(_INPUT_BITS) if int(model.actuator_ctrlspec[actuator]) & bit]
        return present[slot] if slot < len(present) else 3
    # Elsewhere the signature is a note of the element that was written, which `general` can say without it.
    return {1: 0, 2: 1}.get(_kind(model, actuator), 3)


def _gear(gear: np.ndarray) -> list[float]:
    norm = float(np.linalg.norm(gear))
    return [wide(norm, 0.01), *(gear / norm if norm > 0 else np.zeros(6))]


def _bias(model: mujoco.MjModel, actuator: int) -> np.ndarray:
    affine = model.actuator_biastype[actuator] == _BIAS.mjBIAS_AFFINE
    return model.actuator_biasprm[actuator, :3] if affine else np.zeros(3)


def _force(model: mujoco.MjModel, actuator: int) -> list[float]:
    """Return gain, bias, and the dynamics of the activation."""
    gain = model.actuator_gainprm[actuator]
    value = float(gain[0])
    if model.actuator_gaintype[actuator] == _GAIN.mjGAIN_AFFINE:
        value = float(gain[np.argmax(np.abs(gain[:3]))])  # a damper has only the velocity's
    if model.actuator_gaintype[actuator] == _GAIN.mjGAIN_MUSCLE:  # peak force, or its scale where it follows from that
        acceleration = float(model.actuator_acc0[model.actuator_outadr[actuator]])
        value = float(gain[2]) if gain[2] >= 0 else float(gain[3]) / max(acceleration, 1e-9)
    dynamics, active = model.actuator_dyntype[actuator], model.actuator_actnum[actuator] > 0
    integrator = dynamics == mujoco.mjtDyn.mjDYN_INTEGRATOR
    lag = float(model.actuator_dynprm[actuator, 0]) if active and not integrator else 0.0
    bias = (wide(float(term), 0.01) for term in _bias(model, actuator))
    return [wide(value, 0.01), *bias, float(active), float(integrator), wide(lag, 0.01)]


def _ranges(model: mujoco.MjModel, control: int, actuator: int) -> list[float]:
    limited, force_limited = bool(model.actuator_ctrllimited[control]), bool(model.actuator_forcelimited[actuator])
    lower, upper = model.actuator_ctrlrange[control] if limited else (0.0, 0.0)
    weakest, strongest = model.actuator_forcerange[actuator] if force_limited else (0.0, 0.0)
    return [
        *(float(limited), bounded(lower, 1.0), bounded(upper, 1.0)),
        *(float(force_limited), wide(weakest, 0.1), wide(strongest, 0.1)),
    ]
