"""Centipedes: a chain of torso segments with two legs each, for any number of legs from 3 on.

The body of NerveNet (Wang et al. 2018) and Snowflake (Blake et al. 2021), whole or with some legs crippled: a crippled
leg keeps its joints and loses its two motors. Lengths in m, angles in degrees, densities in kg/m^3, gears in N·m.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import mujoco

from agents.errors import UserError
from agents.morphology import Morphology
from agents.registry import Family, register_family
from agents.scene import add_motor, add_scene, set_damping

FAMILY = "centipede"
MIN_LEGS = 3
# A second to compile; beyond, time and memory grow with the square of the length.
MAX_LEGS = 400
READY_MADE_LEGS = (3, 4, 5, 6, 7, 8, 10, 12, 14, 18, 20, 24)
READY_MADE_CRIPPLED = (4, 6, 8, 10, 12, 14)

_TIMESTEP = 0.01  # s
_START_HEIGHT = 0.75
_SEGMENT_SPACING = 0.50
_TORSO_RADIUS, _TORSO_DENSITY = 0.25, 100.0
_LEG_RADIUS, _LEG_DENSITY = 0.08, 25.0
_HIP_LENGTH, _FOOT_LENGTH = 0.28, 0.60
_HIP_RANGE, _ANKLE_RANGE = (-40.0, 40.0), (30.0, 100.0)
_YAW_RANGE, _PITCH_RANGE = (-20.0, 20.0), (-10.0, 30.0)
_LEG_GEAR, _SPINE_GEAR = 150.0, 100.0

_NAME = re.compile(r"centipede-(?P<legs>0|[1-9][0-9]*)(?P<crippled>-crippled(?P<which>(-(0|[1-9][0-9]*))*))?")


def make_morphology(legs: int, crippled_legs: Sequence[int] = ()) -> Morphology:
    """Return the Centipede of a number of legs.

    Args:
        legs: number of legs, 3 to 400. An odd number leaves the last segment with its left leg only and makes that
            segment's two spine joints passive.
        crippled_legs: legs without motors, 0 .. legs - 1; leg 2k is the left and 2k + 1 the right one of segment k.

    Raises:
        UserError: too few or too many legs, a crippled leg that does not exist, or no motor left.
    """
    if not isinstance(legs, int) or legs < MIN_LEGS:
        raise UserError(f"centipede-{legs}: a Centipede needs at least {MIN_LEGS} legs")
    if legs > MAX_LEGS:
        raise UserError(f"centipede-{legs}: a Centipede has at most {MAX_LEGS} legs")
    crippled = sorted(set(crippled_legs))
    if crippled and not 0 <= crippled[0] <= crippled[-1] < legs:
        raise UserError(
            f"centipede-{legs}: no leg {crippled[0] if crippled[0] < 0 else crippled[-1]} to cripple, "
            f"legs are 0 to {legs - 1}"
        )
    if len(crippled) == legs and legs == MIN_LEGS:
        raise UserError(f"centipede-{legs}: with all its legs crippled no motor is left, cripple fewer")
    name = f"centipede-{legs}"
    if crippled:
        name += "-crippled"
        if crippled != [0, 1]:
            name += "".join(f"-{leg}" for leg in crippled)
    source = {"family": FAMILY, "arguments": {"legs": legs, "crippled_legs": crippled}}
    return Morphology(name=name, source=source, task=FAMILY)


def make_spec(legs: int, crippled_legs: Iterable[int] = ()) -> mujoco.MjSpec:
    """Build the model. In every segment: geom, joints, left leg, right leg, next segment; this order fixes all ids."""
    spec = mujoco.MjSpec()
    spec.modelname = f"centipede-{legs}"
    spec.compiler.degree = True
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.option.timestep = _TIMESTEP
    _set_defaults(spec)
    add_scene(spec)
    parent = spec.worldbody
    for segment in range((legs + 1) // 2):
        parent = _add_torso(parent, segment)
        if segment == 0:
            _add_camera(parent, (legs + 1) // 2)
        for leg in range(2 * segment, min(2 * segment + 2, legs)):
            _add_leg(parent, leg)
    _add_motors(spec, legs, frozenset(crippled_legs))
    return spec


def node_class(model: mujoco.MjModel, legs: int, crippled_legs: Iterable[int] = ()) -> tuple[str, ...]:
    """Return the class of every joint, in joint order; see `Morphology.node_class`."""
    classes: list[str] = []
    for segment in range((legs + 1) // 2):
        classes += ["body", "bodyupdown"] if segment else ["root"]
        for leg in range(2 * segment, min(2 * segment + 2, legs)):
            classes += ["righthip" if leg % 2 else "lefthip", "ankle"]
    if len(classes) != model.njnt:
        raise ValueError(f"centipede-{legs} has {len(classes)} joints, the model given has {model.njnt}")
    return tuple(classes)


def _set_defaults(spec: mujoco.MjSpec) -> None:
    joint, geom, motor = spec.default.joint, spec.default.geom, spec.default.actuator
    joint.armature = 1.0
    set_damping(joint, 1.0)
    joint.limited = mujoco.mjtLimited.mjLIMITED_TRUE
    geom.condim = 3
    geom.density = _LEG_DENSITY
    geom.friction = [1.5, 0.1, 0.1]
    geom.margin = 0.01
    geom.contype, geom.conaffinity = 1, 0  # parts of the robot meet the floor, never each other
    geom.rgba = [0.8, 0.6, 0.4, 1.0]
    motor.ctrllimited = mujoco.mjtLimited.mjLIMITED_TRUE
    motor.ctrlrange = [-1.0, 1.0]


def _add_torso(parent: mujoco.MjsBody, segment: int) -> mujoco.MjsBody:
    position = [_SEGMENT_SPACING, 0, 0] if segment else [0, 0, _START_HEIGHT]
    body = parent.add_body(name=f"torso_{segment}", pos=position)
    body.add_geom(name=f"torso_{segment}", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[_TORSO_RADIUS, 0, 0],
                  density=_TORSO_DENSITY)  # fmt: skip
    if segment == 0:
        root = body.add_joint(name="root", type=mujoco.mjtJoint.mjJNT_FREE, armature=0, margin=0.01,
                              limited=mujoco.mjtLimited.mjLIMITED_FALSE)  # fmt: skip
        set_damping(root, 0.0)
        return body
    hinge = mujoco.mjtJoint.mjJNT_HINGE
    pivot = [-_SEGMENT_SPACING / 2, 0, 0]
    body.add_joint(name=f"body_{segment}", type=hinge, pos=pivot, axis=[0, 0, 1], range=_YAW_RANGE)
    body.add_joint(name=f"bodyupdown_{segment}", type=hinge, pos=pivot, axis=[0, 1, 0], range=_PITCH_RANGE)
    return body


def _add_camera(root: mujoco.MjsBody, segments: int) -> None:
    """Add a camera that follows the body from its left, from above and far enough to show it whole."""
    distance, slope = 1.2 + 0.6 * segments, 0.35
    root.add_camera(
        name="track",
        mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM,
        pos=[(segments - 1) / 2 * _SEGMENT_SPACING, -distance, slope * distance],
        xyaxes=[1, 0, 0, 0, slope, 1],
    )


def _add_leg(torso: mujoco.MjsBody, leg: int) -> None:
    side = 1.0 if leg % 2 else -1.0  # left legs point to -y, right ones to +y
    hinge, capsule = mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtGeom.mjGEOM_CAPSULE
    reach = [0, side * _HIP_LENGTH, 0]
    hip = torso.add_body(name=f"legbody_{leg}", pos=reach)
    hip.add_joint(name=_hip(leg), type=hinge, axis=[0, 0, 1], range=_HIP_RANGE)
    hip.add_geom(name=f"legbody_{leg}", type=capsule, size=[_LEG_RADIUS, 0, 0], fromto=[0, 0, 0, *reach])
    foot = hip.add_body(name=f"frontFoot_{leg}", pos=reach)
    foot.add_joint(name=f"ankle_{leg}", type=hinge, axis=[-side, 0, 0], range=_ANKLE_RANGE)
    foot.add_geom(name=f"frontFoot_{leg}", type=capsule, size=[_LEG_RADIUS, 0, 0],
                  fromto=[0, 0, 0, 0, side * _FOOT_LENGTH, 0])  # fmt: skip


def _hip(leg: int) -> str:
    return f"{'righthip' if leg % 2 else 'lefthip'}_{leg}"


def _add_motors(spec: mujoco.MjSpec, legs: int, crippled: frozenset[int]) -> None:
    """Add the torque motors in the order of the paper's files, which is not the order of the joints.

    The spine's motors follow the right leg of their segment, so a last segment without one has none.
    """
    for leg in range(legs):
        if leg not in crippled:
            add_motor(spec, _hip(leg), _LEG_GEAR)
            add_motor(spec, f"ankle_{leg}", _LEG_GEAR)
        if leg % 2 == 1 and leg > 1:
            add_motor(spec, f"body_{leg // 2}", _SPINE_GEAR)
            add_motor(spec, f"bodyupdown_{leg // 2}", _SPINE_GEAR)


def _parse(name: str) -> Morphology | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    crippled: list[int] = []
    if match["crippled"] is not None:
        crippled = [int(leg) for leg in match["which"].split("-")[1:]] or [0, 1]
    return make_morphology(int(match["legs"]), crippled)


register_family(
    Family(
        name=FAMILY,
        ready_made=(
            *(f"centipede-{legs}" for legs in READY_MADE_LEGS),
            *(f"centipede-{legs}-crippled" for legs in READY_MADE_CRIPPLED),
        ),
        parse=_parse,
        morphology=make_morphology,
        spec=make_spec,
        node_class=node_class,
        grammar=f"centipede-N, N legs, {MIN_LEGS} to {MAX_LEGS}; "
        "centipede-N-crippled[-I-J...], legs I, J, ... (0 and 1) without motors",
    )
)
