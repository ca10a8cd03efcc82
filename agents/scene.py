"""What the generated bodies share: defaults, floor, light, camera, torque motors. Registers no family."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np


def make_spec(name: str, timestep: float, armature: float, damping: float, density: float) -> mujoco.MjSpec:
    """Return an empty model with floor and light, whose robot's parts meet the floor and never each other.

    Args:
        name: of the model.
        timestep: of the physics, integrated by `implicitfast` [s].
        armature: default of joints [kg m^2].
        damping: default of joints [N m s/rad].
        density: default of geoms [kg/m^3].
    """
    spec = mujoco.MjSpec()
    spec.modelname = name
    spec.compiler.degree = True
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.timestep = timestep
    joint, geom, motor = spec.default.joint, spec.default.geom, spec.default.actuator
    joint.armature = armature
    set_damping(joint, damping)
    joint.limited = mujoco.mjtLimited.mjLIMITED_TRUE
    geom.condim = 3
    geom.density = density
    geom.friction = [1.0, 0.1, 0.1]
    geom.contype, geom.conaffinity = 1, 0
    geom.rgba = [0.8, 0.6, 0.4, 1.0]
    motor.ctrllimited = mujoco.mjtLimited.mjLIMITED_TRUE
    motor.ctrlrange = [-1.0, 1.0]
    add_scene(spec)
    return spec


def set_damping(joint: mujoco.MjsJoint, value: float) -> None:
    """Set the linear damping of a joint [N m s/rad or N s/m]."""
    # MuJoCo 4 made damping a polynomial of three coefficients; before, it was the linear one alone.
    joint.damping = value if np.ndim(joint.damping) == 0 else [value, 0.0, 0.0]


def set_stiffness(joint: mujoco.MjsJoint, value: float) -> None:
    """Set the linear stiffness of a joint [N m/rad]; its spring rests at the start pose."""
    joint.stiffness = value if np.ndim(joint.stiffness) == 0 else [value, 0.0, 0.0]


def add_scene(spec: mujoco.MjSpec) -> None:
    """Add floor and light. Only the floor's contact numbers touch the physics."""
    spec.visual.global_.offwidth, spec.visual.global_.offheight = 1920, 1080  # the largest picture that can be drawn
    spec.add_texture(name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
                     rgb1=[0.7, 0.8, 0.9], rgb2=[1.0, 1.0, 1.0], width=64, height=64)  # fmt: skip
    spec.add_texture(name="checker", type=mujoco.mjtTexture.mjTEXTURE_2D, builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
                     rgb1=[0.35, 0.4, 0.45], rgb2=[0.5, 0.55, 0.6], width=128, height=128)  # fmt: skip
    textures = [""] * int(mujoco.mjtTextureRole.mjNTEXROLE)
    textures[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = "checker"
    spec.add_material(name="floor", textures=textures, texrepeat=[40, 40])
    world = spec.worldbody
    world.add_light(type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=[0, 0, 4], dir=[0.2, 0.2, -1])
    world.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[40, 40, 40], conaffinity=1,
                   material="floor", rgba=[1, 1, 1, 1])  # fmt: skip


def add_camera(root: mujoco.MjsBody, distance: float, slope: float = 0.25) -> None:
    """Add a camera that follows the body from its side, at a distance [m] and above it."""
    root.add_camera(name="track", mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM, pos=[0, -distance, slope * distance],
                    xyaxes=[1, 0, 0, 0, slope, 1])  # fmt: skip


def add_free_joint(root: mujoco.MjsBody) -> None:
    """Add the free joint `root`, without armature or damping."""
    joint = root.add_joint(name="root", type=mujoco.mjtJoint.mjJNT_FREE, armature=0,
                           limited=mujoco.mjtLimited.mjLIMITED_FALSE)  # fmt: skip
    set_damping(joint, 0.0)


def add_capsule(body: mujoco.MjsBody, name: str, radius: float, start: Sequence[float], end: Sequence[float]) -> None:
    """Add a capsule between two points of the body's frame [m]."""
    body.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_CAPSULE, size=[radius, 0, 0], fromto=[*start, *end])


def add_motor(spec: mujoco.MjSpec, joint: str, gear: float) -> None:
    """Add a torque motor of a joint, with its name; `gear` is the torque at an action of 1 [N m]."""
    motor = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT, gear=[gear, 0, 0, 0, 0, 0])
    motor.set_to_motor()
