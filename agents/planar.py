"""What the planar bodies share: a torso that slides in x and z and turns about y, and legs of any number of links.

Lengths in m, angles in degrees, density in kg/m^3. Registers no family.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import mujoco

from agents.errors import UserError
from agents.morphology import Morphology
from agents.registry import Family, register_family
from agents.scene import add_capsule, add_motor, set_damping, set_stiffness

DENSITY = 1000.0
TORSO_RADIUS, LINK_RADIUS, FOOT_RADIUS = 0.05, 0.05, 0.06
ANKLE_HEIGHT = 0.10
HEEL, TOE = -0.13, 0.26
ARMATURE, DAMPING, TIMESTEP = 0.1, 1.0, 0.005
LINK_RANGE, FOOT_RANGE = (-60.0, 60.0), (-45.0, 45.0)


def add_root(torso: mujoco.MjsBody) -> None:
    """Add the joints `rootx`, `rootz` and `rooty`, which nothing limits or drives."""
    slide, hinge = mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE
    for name, kind, axis in (("rootx", slide, [1, 0, 0]), ("rootz", slide, [0, 0, 1]), ("rooty", hinge, [0, 1, 0])):
        joint = torso.add_joint(name=name, type=kind, axis=axis, armature=0, limited=mujoco.mjtLimited.mjLIMITED_FALSE)
        set_damping(joint, 0.0)


def add_leg(
    torso: mujoco.MjsBody,
    name: str,
    hip: Sequence[float],
    height: float,
    links: int,
    bend: float = 0.0,
    stiffness: float = 0.0,
) -> list[str]:
    """Add a leg that stands on the floor: links of one length and, from two links on, a level foot as the last.

    Args:
        torso: what it hangs from.
        name: of the leg, before the names of its parts.
        hip: where, in the torso's frame.
        height: of the hip above the floor.
        links: number of links, each with one hinge about y; 1 or more.
        bend: angle of the links to the vertical; its sign alternates from link to link.
        stiffness: of the hinges [N m/rad].

    Returns:
        The names of its joints, from the hip down.
    """
    upright = links - 1 if links > 1 else links
    drop = height - (ANKLE_HEIGHT if links > 1 else LINK_RADIUS)
    body, at, joints = torso, list(hip), []
    for link in range(upright):
        lean = math.radians(bend) * (-1) ** link
        length = drop / upright / math.cos(lean)
        end = [length * math.sin(lean), 0, -length * math.cos(lean)]
        body = _add_link(body, f"{name}link_{link + 1}", at, LINK_RANGE, stiffness)
        add_capsule(body, body.name, LINK_RADIUS, [0, 0, 0], end)
        joints.append(body.name)
        at = end
    if links > 1:
        foot = _add_link(body, f"{name}foot", at, FOOT_RANGE, stiffness)
        sole = FOOT_RADIUS - ANKLE_HEIGHT
        add_capsule(foot, foot.name, FOOT_RADIUS, [HEEL, 0, sole], [TOE, 0, sole])
        joints.append(foot.name)
    return joints


def _add_link(
    parent: mujoco.MjsBody, name: str, at: Sequence[float], span: tuple[float, float], stiffness: float
) -> mujoco.MjsBody:
    body = parent.add_body(name=name, pos=at)
    joint = body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, -1, 0], range=span)
    set_stiffness(joint, stiffness)
    return body


def add_motors(spec: mujoco.MjSpec, joints: Sequence[str], gear: float) -> None:
    """Add a torque motor to each of these joints."""
    for joint in joints:
        add_motor(spec, joint, gear)


def register_sized(
    name: str,
    smallest: int,
    largest: int,
    ready_made: Sequence[int],
    spec: Callable[[int], mujoco.MjSpec],
    argument: str,
    what: str,
) -> None:
    """Register the family of bodies called `<name>-<N>` on the general task.

    Args:
        name: of the family.
        smallest: least N.
        largest: greatest N.
        ready_made: the N worth listing.
        spec: builds the model of an N, given by the keyword `argument`.
        argument: name of N in `Morphology.source`.
        what: N counts these, in the plural.
    """
    pattern = re.compile(rf"{name}-(0|[1-9][0-9]*)")

    def make_morphology(**arguments: int) -> Morphology:
        if set(arguments) != {argument}:
            raise TypeError(f"wants {argument}, has {', '.join(arguments)}")
        count = arguments[argument]
        if type(count) is not int or not smallest <= count <= largest:
            raise UserError(f"{name}-{count}: N {what} must lie between {smallest} and {largest}")
        source = {"family": name, "arguments": {argument: count}}
        return Morphology(name=f"{name}-{count}", source=source, task="locomotion")

    def parse(text: str) -> Morphology | None:
        match = pattern.fullmatch(text)
        return make_morphology(**{argument: int(match[1])}) if match else None

    names = tuple(f"{name}-{count}" for count in ready_made)
    grammar = f"{name}-N, N {what}, {smallest} to {largest}"
    register_family(
        Family(name=name, ready_made=names, parse=parse, morphology=make_morphology, spec=spec, grammar=grammar)
    )
