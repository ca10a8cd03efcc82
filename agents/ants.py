"""Ants of N legs: a ball with N legs of two joints, evenly around it.

`ant-4` is a relative of Gymnasium's `ant` (which keeps that name), and like it has a vertical hip and a level ankle in
each leg. Lengths in m, angles in degrees, density in kg/m^3.
"""

from __future__ import annotations

import math

import mujoco

from agents import scene
from agents.planar import register_sized

TORSO_RADIUS, LEG_RADIUS = 0.25, 0.08
HIP_AT, THIGH, SHIN = 0.28, 0.28, 0.57
SLOPE = 60.0
"""How far the shins point down in the start pose."""
DENSITY = 25.0
GEAR, STIFFNESS = 100.0, 30.0  # N m, N m/rad


def make_spec(legs: int) -> mujoco.MjSpec:
    """Build the model of a number of legs; leg k points to the angle (k + 1/2) / N of a turn from x."""
    spec = scene.make_spec(f"ant-{legs}", timestep=0.01, armature=1.0, damping=1.0, density=DENSITY)
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    drop = SHIN * math.sin(math.radians(SLOPE))
    torso = spec.worldbody.add_body(name="torso", pos=[0, 0, drop + LEG_RADIUS])
    scene.add_free_joint(torso)
    torso.add_geom(name="torso", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[TORSO_RADIUS, 0, 0])
    scene.add_camera(torso, distance=3.0, slope=0.5)
    for leg in range(legs):
        _add_leg(torso, leg, 2 * math.pi * (leg + 0.5) / legs)
    for leg in range(legs):
        scene.add_motor(spec, f"hip_{leg}", GEAR)
        scene.add_motor(spec, f"ankle_{leg}", GEAR)
    return spec


def _add_leg(torso: mujoco.MjsBody, leg: int, angle: float) -> None:
    hinge, across = mujoco.mjtJoint.mjJNT_HINGE, [-math.sin(angle), math.cos(angle), 0]

    def outwards(distance: float, down: float = 0.0) -> list[float]:
        return [distance * math.cos(angle), distance * math.sin(angle), -down]

    scene.add_capsule(torso, f"stub_{leg}", LEG_RADIUS, [0, 0, 0], outwards(HIP_AT))
    thigh = torso.add_body(name=f"thigh_{leg}", pos=outwards(HIP_AT))
    scene.set_stiffness(thigh.add_joint(name=f"hip_{leg}", type=hinge, axis=[0, 0, 1], range=[-40, 40]), STIFFNESS)
    scene.add_capsule(thigh, f"thigh_{leg}", LEG_RADIUS, [0, 0, 0], outwards(THIGH))
    shin = thigh.add_body(name=f"shin_{leg}", pos=outwards(THIGH))
    ankle = shin.add_joint(name=f"ankle_{leg}", type=hinge, axis=across, range=[-40, 30])
    scene.set_stiffness(ankle, STIFFNESS)
    slope = math.radians(SLOPE)
    scene.add_capsule(shin, f"shin_{leg}", LEG_RADIUS, [0, 0, 0],
                      outwards(SHIN * math.cos(slope), SHIN * math.sin(slope)))  # fmt: skip


register_sized("ant", 3, 64, (3, 4, 5, 6, 8), make_spec, "legs", "legs")
