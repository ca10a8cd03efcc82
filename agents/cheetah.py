"""Planar runners of N parts: a level torso between a hind and a fore leg that share N - 1 links; the hind leg has the
odd one.

`cheetah-7` has the structure of Gymnasium's half_cheetah. The links of a leg zigzag, and springs in the joints carry
the body.
"""

from __future__ import annotations

import mujoco

from agents import planar, scene

HIP_HEIGHT, TORSO_LENGTH, BEND = 0.60, 1.0, 25.0  # m, m, degrees
GEAR, STIFFNESS = 100.0, 200.0  # N m, N m/rad


def make_spec(parts: int) -> mujoco.MjSpec:
    """Build the model of a number of parts, torso included."""
    spec = scene.make_spec(f"cheetah-{parts}", planar.TIMESTEP, planar.ARMATURE, 2 * planar.DAMPING, planar.DENSITY)
    torso = spec.worldbody.add_body(name="torso", pos=[0, 0, HIP_HEIGHT])
    planar.add_root(torso)
    half = TORSO_LENGTH / 2
    scene.add_capsule(torso, "torso", planar.TORSO_RADIUS, [-half, 0, 0], [half, 0, 0])
    scene.add_capsule(torso, "head", planar.TORSO_RADIUS, [half, 0, 0], [half + 0.15, 0, 0.15])
    scene.add_camera(torso, distance=4.0)
    hind = planar.add_leg(torso, "hind_", [-half, 0, 0], HIP_HEIGHT, parts // 2, BEND, STIFFNESS)
    fore = planar.add_leg(torso, "fore_", [half, 0, 0], HIP_HEIGHT, (parts - 1) // 2, -BEND, STIFFNESS)
    planar.add_motors(spec, [*hind, *fore], GEAR)
    return spec


planar.register_sized("cheetah", 3, 33, (3, 5, 6, 7, 9), make_spec, "parts", "parts with the torso")
