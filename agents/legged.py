"""Walking robots with three joints a leg: `quadruped` and `hexapod`, with torque motors or (`-position`) servos.

A box with legs along its sides. Each leg has an abduction hinge about x, a hip and a knee about y, and starts bent at
the knee, the foot on the floor below the hip. With torque motors, springs in the joints carry the weight; servos hold
the pose themselves, and their control is the joint's angle to the start pose. Lengths in m, angles in degrees.
"""

from __future__ import annotations

import math

import mujoco

from agents import scene
from agents.errors import UserError
from agents.morphology import Morphology
from agents.registry import Family, register_family

FAMILY = "legged"
NAMES = {"quadruped": 4, "hexapod": 6}
ACTUATORS = ("torque", "position")
TRUNK_DENSITY, LEG_DENSITY = 900.0, 900.0  # kg/m^3
HALF_WIDTH, HALF_HEIGHT, LEG_SPACING = 0.12, 0.05, 0.36
ABDUCTOR, THIGH, SHANK, RADIUS, FOOT_RADIUS = 0.07, 0.22, 0.22, 0.03, 0.035
KNEE_BEND = 40.0
"""Angle of thigh and shank to the vertical in the start pose."""
RANGES = {"abduction": (-40.0, 40.0), "hip": (-70.0, 70.0), "knee": (-60.0, 60.0)}
GEAR, STIFFNESS, SERVO_STIFFNESS = 40.0, 80.0, 150.0  # N m, N m/rad, N m/rad


def make_morphology(legs: int, actuators: str = "torque") -> Morphology:
    """Return the robot of 4 or 6 legs.

    Raises:
        UserError: another number of legs, or other actuators than `ACTUATORS`.
    """
    names = {count: name for name, count in NAMES.items()}
    if legs not in names or actuators not in ACTUATORS:
        raise UserError(f"family 'legged': {legs} legs with {actuators} actuators: choose from {', '.join(_ready())}")
    source = {"family": FAMILY, "arguments": {"legs": legs, "actuators": actuators}}
    return Morphology(name=_name(names[legs], actuators), source=source, task="locomotion")


def make_spec(legs: int, actuators: str) -> mujoco.MjSpec:
    """Build the model."""
    spec = scene.make_spec(f"legged-{legs}", timestep=0.004, armature=0.02, damping=1.0, density=LEG_DENSITY)
    rows = legs // 2
    half_length = LEG_SPACING * (rows - 1) / 2 + 0.07
    height = (THIGH + SHANK) * math.cos(math.radians(KNEE_BEND)) + FOOT_RADIUS
    trunk = spec.worldbody.add_body(name="trunk", pos=[0, 0, height])
    scene.add_free_joint(trunk)
    trunk.add_geom(name="trunk", type=mujoco.mjtGeom.mjGEOM_BOX, size=[half_length, HALF_WIDTH, HALF_HEIGHT],
                   density=TRUNK_DENSITY)  # fmt: skip
    scene.add_camera(trunk, distance=2.0, slope=0.4)
    joints: list[str] = []
    for row in range(rows):  # from the front to the back
        for side, sign in (("left", 1.0), ("right", -1.0)):
            at = [LEG_SPACING * ((rows - 1) / 2 - row), sign * HALF_WIDTH, 0]
            stiffness = STIFFNESS if actuators == "torque" else 0.0
            joints += _add_leg(trunk, f"{side}_{row}", at, sign, stiffness)
    for joint in joints:
        if actuators == "torque":
            scene.add_motor(spec, joint, GEAR)
        else:
            _add_servo(spec, joint)
    return spec


def _add_leg(trunk: mujoco.MjsBody, leg: str, at: list[float], sign: float, stiffness: float) -> list[str]:
    bend = math.radians(KNEE_BEND)
    knee_at = [-THIGH * math.sin(bend), 0, -THIGH * math.cos(bend)]
    foot_at = [SHANK * math.sin(bend), 0, -SHANK * math.cos(bend)]
    hip_at = [0, sign * ABDUCTOR, 0]
    abductor = trunk.add_body(name=f"abductor_{leg}", pos=at)
    scene.add_capsule(abductor, abductor.name, RADIUS, [0, 0, 0], hip_at)
    thigh = abductor.add_body(name=f"thigh_{leg}", pos=hip_at)
    scene.add_capsule(thigh, thigh.name, RADIUS, [0, 0, 0], knee_at)
    shank = thigh.add_body(name=f"shank_{leg}", pos=knee_at)
    scene.add_capsule(shank, shank.name, RADIUS, [0, 0, 0], foot_at)
    shank.add_geom(name=f"foot_{leg}", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[FOOT_RADIUS, 0, 0], pos=foot_at)
    names = []
    for body, part, axis in ((abductor, "abduction", [sign, 0, 0]), (thigh, "hip", [0, -1, 0]),
                             (shank, "knee", [0, -1, 0])):  # fmt: skip
        names.append(f"{part}_{leg}")
        hinge = body.add_joint(name=names[-1], type=mujoco.mjtJoint.mjJNT_HINGE, axis=axis, range=RANGES[part])
        scene.set_stiffness(hinge, stiffness)
    return names


def _add_servo(spec: mujoco.MjSpec, joint: str) -> None:
    span = [math.radians(angle) for angle in RANGES[joint.split("_")[0]]]
    servo = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT, ctrlrange=span,
                              forcelimited=mujoco.mjtLimited.mjLIMITED_TRUE, forcerange=[-GEAR, GEAR])  # fmt: skip
    servo.set_to_position(kp=SERVO_STIFFNESS, kv=2.0)


def _name(base: str, actuators: str) -> str:
    return base if actuators == "torque" else f"{base}-{actuators}"


def _ready() -> tuple[str, ...]:
    return tuple(_name(base, actuators) for base in NAMES for actuators in ACTUATORS)


def _parse(name: str) -> Morphology | None:
    base, _, actuators = name.partition("-")
    return make_morphology(NAMES[base], actuators or "torque") if name in _ready() else None


register_family(
    Family(
        name=FAMILY,
        ready_made=_ready(),
        parse=_parse,
        morphology=make_morphology,
        spec=make_spec,
        grammar="quadruped and hexapod, three torque motors a leg; with -position, servos",
    )
)
