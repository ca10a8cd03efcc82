"""Planar walkers of N parts: an upright torso on two legs that share N - 1 links; the right leg has the odd one.

`walker-7` has the structure of Gymnasium's walker2d. All legs are equally long, whatever their number of links, and
from two links on the last one is a foot.
"""

from __future__ import annotations

import mujoco

from agents import planar, scene

HIP_HEIGHT, TORSO_LENGTH = 1.05, 0.40  # m
GEAR = 100.0  # N m


def make_spec(parts: int) -> mujoco.MjSpec:
    """Build the model of a number of parts, torso included."""
    spec = scene.make_spec(f"walker-{parts}", planar.TIMESTEP, planar.ARMATURE, planar.DAMPING, planar.DENSITY)
    torso = spec.worldbody.add_body(name="torso", pos=[0, 0, HIP_HEIGHT])
    planar.add_root(torso)
    scene.add_capsule(torso, "torso", planar.TORSO_RADIUS, [0, 0, 0], [0, 0, TORSO_LENGTH])
    scene.add_camera(torso, distance=4.0)
    right = planar.add_leg(torso, "right_", [0, 0, 0], HIP_HEIGHT, parts // 2)
    left = planar.add_leg(torso, "left_", [0, 0, 0], HIP_HEIGHT, (parts - 1) // 2)
    planar.add_motors(spec, [*right, *left], GEAR)
    return spec


planar.register_sized("walker", 3, 33, (3, 4, 5, 6, 7, 9), make_spec, "parts", "parts with the torso")
