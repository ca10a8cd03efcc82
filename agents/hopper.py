"""Planar hoppers of N parts: an upright torso on one leg of N - 1 links, the last of which is a foot (from N = 3 on).

`hopper-4` has the structure of Gymnasium's hopper. All stand equally high, so that only the number of joints differs.
"""

from __future__ import annotations

import mujoco

from agents import planar, scene

HIP_HEIGHT, TORSO_LENGTH = 1.05, 0.40  # m
GEAR = 100.0  # N m


def make_spec(parts: int) -> mujoco.MjSpec:
    """Build the model of a number of parts, torso included."""
    spec = scene.make_spec(f"hopper-{parts}", planar.TIMESTEP, planar.ARMATURE, planar.DAMPING, planar.DENSITY)
    torso = spec.worldbody.add_body(name="torso", pos=[0, 0, HIP_HEIGHT])
    planar.add_root(torso)
    scene.add_capsule(torso, "torso", planar.TORSO_RADIUS, [0, 0, 0], [0, 0, TORSO_LENGTH])
    scene.add_camera(torso, distance=4.0)
    planar.add_motors(spec, planar.add_leg(torso, "", [0, 0, 0], HIP_HEIGHT, parts - 1), GEAR)
    return spec


planar.register_sized("hopper", 2, 33, (3, 4, 5), make_spec, "parts", "parts with the torso")
