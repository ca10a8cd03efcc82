"""The shape of a robot and what it stands on, from the compiled geoms."""

from __future__ import annotations

import mujoco
import numpy as np

from envs.robot import Robot

_LEVEL = 0.999  # smallest z of the normal of a plane that counts as level
_UP = 0.5  # contacts whose normal has a smaller z push aside rather than up
_SHAPES = ("SPHERE", "CAPSULE", "ELLIPSOID", "CYLINDER", "BOX", "MESH", "PLANE")
_SPHERE, _CAPSULE, _ELLIPSOID, _CYLINDER, _BOX, _MESH, _PLANE = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{kind}")) for kind in _SHAPES
)


class Geometry:
    """The geoms of a robot that can touch something; all of them if none can.

    Attributes:
        geoms: their ids. (G,)

    Args:
        model: the compiled model.
        robot: which part of it is the robot.
    """

    def __init__(self, model: mujoco.MjModel, robot: Robot) -> None:
        self._model, self._robot = model, robot
        inside = np.isin(model.geom_bodyid, robot.bodies) & (model.geom_type != _PLANE)
        solid = inside & ((model.geom_contype != 0) | (model.geom_conaffinity != 0))
        self.geoms = np.flatnonzero(solid if solid.any() else inside)
        self._vertices = {
            geom: _vertices(model, geom) for geom in self.geoms.tolist() if model.geom_type[geom] == _MESH
        }

    def lowest(self, data: mujoco.MjData, geoms: np.ndarray | None = None) -> float:
        """Return the height of the robot's lowest point [m], of its lowest body frame where it has no geoms.

        Args:
            data: with positions computed.
            geoms: some of the geoms, all if not given.
        """
        geoms = self.geoms if geoms is None else geoms
        if not len(geoms):
            return float(data.xpos[self._robot.bodies, 2].min())
        model = self._model
        up = data.geom_xmat[geoms].reshape(-1, 3, 3)[:, 2]  # height of the geom's own axes
        size, kind = model.geom_size[geoms], model.geom_type[geoms]
        across = np.sqrt(np.clip(1 - up[:, 2] ** 2, 0, 1))
        box = model.geom_aabb[geoms]
        depth = -np.einsum("ij,ij->i", up, box[:, :3]) + np.einsum("ij,ij->i", np.abs(up), box[:, 3:])
        for shape, value in (
            (_SPHERE, size[:, 0]),
            (_CAPSULE, size[:, 0] + size[:, 1] * np.abs(up[:, 2])),
            (_ELLIPSOID, np.linalg.norm(size * up, axis=1)),
            (_CYLINDER, size[:, 0] * across + size[:, 1] * np.abs(up[:, 2])),
            (_BOX, np.einsum("ij,ij->i", np.abs(up), size)),
        ):
            depth = np.where(kind == shape, value, depth)
        for i in np.flatnonzero(kind == _MESH).tolist():
            depth[i] = -(self._vertices[int(geoms[i])] @ up[i]).min()
        return float((data.geom_xpos[geoms, 2] - depth).min())

    def root_geoms(self) -> np.ndarray:
        """Return the geoms that are rigidly part of the root body."""
        return self.geoms[self._robot.moving_body[self._model.geom_bodyid[self.geoms]] == self._robot.root_body]

    def size(self, data: mujoco.MjData) -> float:
        """Return half the diagonal of the robot's bounding box [m]; at least 1 mm."""
        points = [data.xpos[self._robot.bodies]]
        if len(self.geoms):
            frames = data.geom_xmat[self.geoms].reshape(-1, 3, 3)
            box = self._model.geom_aabb[self.geoms]
            centre = data.geom_xpos[self.geoms] + np.einsum("gij,gj->gi", frames, box[:, :3])
            half = np.einsum("gij,gj->gi", np.abs(frames), box[:, 3:])
            points += [centre - half, centre + half]
        corners = np.concatenate(points)
        return max(float(np.linalg.norm(corners.max(axis=0) - corners.min(axis=0))) / 2, 1e-3)

    def depth_in_terrain(self, data: mujoco.MjData) -> float:
        """Return how far the robot must rise to leave what does not move [m], judged by its contacts in `data`."""
        fixed = self._model.body_weldid[self._model.geom_bodyid] == 0
        depth = 0.0
        for contact in data.contact:
            first, second = contact.geom
            if first < 0 or second < 0:  # flexible bodies have no geoms
                continue
            pair = np.isin([first, second], self.geoms)
            upright = abs(contact.frame[2])
            if pair.any() and fixed[[first, second]][~pair].any() and upright > _UP:
                depth = max(depth, -contact.dist / upright)
        return depth


def find_ground(model: mujoco.MjModel, geometry: Geometry) -> np.ndarray:
    """Return the geoms that do not move and that the robot can touch."""
    touching = np.zeros(model.ngeom, dtype=bool)
    for geom in geometry.geoms:
        touching |= (model.geom_contype & model.geom_conaffinity[geom]) != 0
        touching |= (model.geom_conaffinity & model.geom_contype[geom]) != 0
    return np.flatnonzero(touching & (model.body_weldid[model.geom_bodyid] == 0))


def find_floor(model: mujoco.MjModel, data: mujoco.MjData, geometry: Geometry) -> float | None:
    """Return the height of the highest level plane that does not move and that the robot can touch [m], or `None`."""
    ground = find_ground(model, geometry)
    planes = ground[(model.geom_type[ground] == _PLANE) & (data.geom_xmat[ground, 8] > _LEVEL)]
    return float(data.geom_xpos[planes, 2].max()) if len(planes) else None


def add_floor(spec: mujoco.MjSpec, height: float, contype: int, conaffinity: int) -> None:
    """Add a level plane to the world.

    Args:
        spec: the editable model.
        height: z of the plane [m].
        contype: bit mask, see MuJoCo's contact filter.
        conaffinity: the other one.
    """
    spec.worldbody.add_geom(
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        pos=[0, 0, height],
        quat=[1, 0, 0, 0],
        size=[0, 0, 1],
        contype=contype,
        conaffinity=conaffinity,
        condim=3,
        friction=[1, 0.005, 0.0001],
        material="",
        rgba=[0.6, 0.65, 0.7, 1],
    )


def _vertices(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return the vertices of a mesh geom's convex hull, all of its vertices where it has no hull. (V, 3)"""
    mesh = model.geom_dataid[geom]
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    vertices = model.mesh_vert[first : first + count].astype(np.float64)
    graph = model.mesh_graphadr[mesh]
    if graph < 0:
        return vertices
    hull = int(model.mesh_graph[graph])  # number of vertices, of faces, where each one's edges begin, their ids, ...
    return vertices[model.mesh_graph[graph + 2 + hull : graph + 2 + 2 * hull]]
