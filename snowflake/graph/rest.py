"""A robot at rest: where its masses are in the reference pose `qpos0`."""

from __future__ import annotations

import mujoco
import numpy as np

from envs.robot import Robot


class RestPose:
    """A robot in the pose `qpos0`: positions, parts and size.

    Args:
        model: the compiled body.
        robot: its actuated tree.

    Attributes:
        data: positions and moment arms in that pose.
        size: radius of gyration, 1 for a robot without mass. [m]
        total_mass: of all that can move. [kg]
    """

    def __init__(self, model: mujoco.MjModel, robot: Robot) -> None:
        self.model, self.robot = model, robot
        self.data = mujoco.MjData(model)
        for compute in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_tendon, mujoco.mj_transmission):
            compute(model, self.data)
        self._mass = np.where(model.body_weldid > 0, model.body_mass, 0.0)
        self.total_mass = float(self._mass[robot.bodies].sum())
        self.size = 1.0
        mass, _, inertia = self._lump(robot.bodies)
        if mass > 0 and np.trace(inertia) > 0:
            self.size = float(np.sqrt(np.trace(inertia) / 2 / mass))

    def _lump(self, bodies: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        mass = self._mass[bodies]
        if mass.sum() <= 0:
            return 0.0, np.zeros(3), np.zeros((3, 3))
        centre = mass @ self.data.xipos[bodies] / mass.sum()
        inertia = np.zeros((3, 3))
        for body, m in zip(bodies, mass, strict=True):
            rotation = self.data.ximat[body].reshape(3, 3)
            if m > 0:
                inertia += rotation @ np.diag(self.model.body_inertia[body]) @ rotation.T
                inertia += inertia_of_point(m, self.data.xipos[body] - centre)
        return float(mass.sum()), centre, inertia

    def part(self, moving: int) -> tuple[float, np.ndarray, np.ndarray]:
        """Return mass [kg], centre [m] and inertia about it [kg m^2], in the world frame, of a moving body's part."""
        return self._lump(np.flatnonzero(self.robot.moving_body == moving))

    def frame(self, body: int) -> np.ndarray:
        """Return the matrix (3, 3) that takes directions of the world into the frame of a body."""
        return self.data.xmat[body].reshape(3, 3).T

    def fraction(self, mass: float) -> float:
        """Return a mass over the total mass."""
        return mass / self.total_mass if self.total_mass > 0 else 0.0


def inertia_of_point(mass: float, offset: np.ndarray) -> np.ndarray:
    """Return the inertia (3, 3) [kg m^2] of a point mass [kg] at an offset [m]."""
    return mass * (offset @ offset * np.eye(3) - np.outer(offset, offset))
