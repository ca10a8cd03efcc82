"""Longer and shorter limbs: scales the lengths of an editable model about its joints. Registers no family.

Lengths along a limb are multiplied and its thickness stays: distances between joints, geoms, sites and child bodies;
the length of capsules and cylinders, the longest half-size of boxes and ellipsoids. Spheres keep their size, and meshes
scale in all directions. Mass and inertia follow from the geoms; those that a file states follow the same stretch.
"""

from __future__ import annotations

import mujoco
import numpy as np

_GEOM = mujoco.mjtGeom


def scale_limbs(
    spec: mujoco.MjSpec, model: mujoco.MjModel, bodies: dict[int, mujoco.MjsBody], factors: dict[int, float]
) -> None:
    """Scale bodies about the joint that holds them; what hangs from them moves along.

    Args:
        spec: the editable model.
        model: compiled from it.
        bodies: the editable model's bodies by their ids in `model`.
        factors: body id -> factor of its lengths.
    """
    for number, factor in factors.items():
        if factor == 1.0:
            continue
        body, shift = bodies[number], (1.0 - factor) * _anchor(model, number)
        for item in (*body.joints, *body.sites, *body.cameras, *body.lights, *body.frames):
            item.pos = factor * np.array(item.pos) + (shift if item.frame is None else 0.0)
        for geom in body.geoms:
            _scale_geom(spec, geom, factor, shift if geom.frame is None else np.zeros(3))
        for below in np.flatnonzero(model.body_parentid == number).tolist():
            child = bodies[below]
            anchor = rotation(spec, child) @ _anchor(model, below)
            own = shift if child.frame is None else 0.0
            child.pos = factor * np.array(child.pos) + own + (factor - 1.0) * anchor
        if body.explicitinertial:
            body.ipos = factor * np.array(body.ipos) + shift
            _stretch_inertia(body, factor)


def scale_mass(body: mujoco.MjsBody, factor: float) -> None:
    """Multiply mass and inertia of a body, the densities of its geoms or what the file states."""
    for geom in body.geoms:
        if np.isnan(geom.mass):
            geom.density *= factor
        else:
            geom.mass *= factor
    if body.explicitinertial:
        body.mass *= factor
        body.inertia = factor * np.array(body.inertia)
        body.fullinertia = factor * np.array(body.fullinertia)


def _anchor(model: mujoco.MjModel, body: int) -> np.ndarray:
    """Return where the first joint of a body is in its frame, the origin for a body without joints. (3,)"""
    return model.jnt_pos[model.body_jntadr[body]].copy() if model.body_jntnum[body] else np.zeros(3)


def rotation(spec: mujoco.MjSpec, body: mujoco.MjsBody) -> np.ndarray:
    """Return the rotation of a body as it is written, to its frame or parent. (3, 3)"""
    quat = np.array(body.quat, dtype=np.float64)
    if body.alt.type != mujoco.mjtOrientation.mjORIENTATION_QUAT:
        settings = body.compiler
        quat = np.array(
            spec.resolve_orientation(degree=settings.degree, sequence=settings.eulerseq, orientation=body.alt)
        )
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, quat / np.linalg.norm(quat))
    return matrix.reshape(3, 3)


def _scale_geom(spec: mujoco.MjSpec, geom: mujoco.MjsGeom, factor: float, shift: np.ndarray) -> None:
    """Scale place and shape of a geom, and the mass that a file states for it."""
    ends, size, share = np.array(geom.fromto), np.array(geom.size), factor
    if np.isnan(ends[0]):
        geom.pos = factor * np.array(geom.pos) + shift
    if geom.type in (_GEOM.mjGEOM_MESH, _GEOM.mjGEOM_SDF) and geom.meshname:
        geom.meshname = _scaled_mesh(spec, geom.meshname, factor)
        share = factor**3
    elif not np.isnan(ends[0]):
        geom.fromto = factor * ends + np.tile(shift, 2)
    elif geom.type in (_GEOM.mjGEOM_CAPSULE, _GEOM.mjGEOM_CYLINDER):
        size[1] *= factor
    elif geom.type in (_GEOM.mjGEOM_BOX, _GEOM.mjGEOM_ELLIPSOID):
        size[int(np.argmax(size))] *= factor
    else:
        share = 1.0
    geom.size = size
    if not np.isnan(geom.mass):
        geom.mass *= share


def _scaled_mesh(spec: mujoco.MjSpec, name: str, factor: float) -> str:
    """Return the name of a mesh of that scale, added if need be."""
    scaled = f"{name}*{factor!r}"
    if spec.mesh(scaled) is None:
        old = spec.mesh(name)
        new = spec.add_mesh(name=scaled)
        for key in ("content_type", "file", "inertia", "material", "maxhullvert", "needsdf", "octree_maxdepth",
                    "refpos", "refquat", "smoothnormal", "userface", "userfacenormal", "userfacetexcoord",
                    "usernormal", "usertexcoord", "uservert"):  # fmt: skip
            setattr(new, key, getattr(old, key))
        new.scale = factor * np.array(old.scale)
    return scaled


def _stretch_inertia(body: mujoco.MjsBody, factor: float) -> None:
    """Stretch a stated inertial along its longest principal axis, with the density kept.

    Mass and second moments across are multiplied by the factor, the second moment along by its cube. With the second
    moments s, the inertia about axis i is the sum of the other two.
    """
    full = np.array(body.fullinertia)
    if np.isnan(full[0]):
        inertia, axes = np.array(body.inertia), np.eye(3)
    else:  # xx, yy, zz, xy, xz, yz
        xx, yy, zz, xy, xz, yz = full
        inertia, axes = np.linalg.eigh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
    second = inertia.sum() / 2 - inertia
    scale = np.full(3, factor)
    scale[int(np.argmax(second))] = factor**3
    second = second * scale
    stretched = second.sum() - second
    body.mass *= factor
    if np.isnan(full[0]):
        body.inertia = stretched
    else:
        matrix = axes @ np.diag(stretched) @ axes.T
        body.fullinertia = [*np.diag(matrix), matrix[0, 1], matrix[0, 2], matrix[1, 2]]
