"""Commands to follow: a planar velocity and a turn rate per environment, drawn anew on a schedule."""

from __future__ import annotations

import mujoco
import numpy as np

from envs.robot import Robot
from envs.tasks.options import TaskOptions
from envs.tasks.reset import StartPose

INTERVAL = 5.0
"""Seconds until a new command is drawn."""
STAND = 0.1
"""Share of the commands that ask to stand still."""
TURN_WEIGHT = 0.5
_SHARE = np.array([1.0, 0.5, 1.0])  # of the largest speed, forward and sideways, and of the largest turn rate
_WIDTH = 0.5  # width of the reward over the largest command


class Commands:
    """What the robots of a batch are told to do, and how well they do it.

    A command is a velocity forward and to the left [m/s] and a turn rate about the vertical [rad/s]: U(-1, 1) times the
    largest speed, half the largest speed and the largest turn rate, or, one time in ten, all 0. What the root cannot do
    is never asked. By default the largest speed is that of a walk, `Scale.speed`, and the largest turn rate that of a
    circle of the robot's size at half that speed. Command k of an episode depends on the episode's seed and on k alone.

    The heading frame is level and turns with the root; its x axis is the world's in the start pose.

    Attributes:
        values: the commands. (N, 3) float64
        possible: which of the three the root can do. (3,) bool

    Args:
        model: the compiled model.
        robot: which part of it is the robot.
        pose: its start pose.
        num_envs: N.
        dt: duration of a control step [s].
        speed: default of the largest speed [m/s].
        options: `command_speed`, `command_turn_rate`, `command_interval`, `turn_reward_weight`.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        robot: Robot,
        pose: StartPose,
        num_envs: int,
        dt: float,
        speed: float,
        options: TaskOptions,
    ) -> None:
        fastest = options.command_speed or speed
        self._turn_rate = options.command_turn_rate or 0.5 * fastest / pose.size
        self._speed, self._dt = fastest, dt
        self.possible = _possible(model, robot, pose.data)
        self._most = _SHARE * [fastest, fastest, self._turn_rate] * self.possible
        self._turn_weight = TURN_WEIGHT if options.turn_reward_weight is None else options.turn_reward_weight
        self._interval = max(1, round((options.command_interval or INTERVAL) / dt))
        self._start = pose.data.xmat[robot.root_body].reshape(3, 3).copy()
        self.values = np.zeros((num_envs, 3))
        self._heading = np.zeros(num_envs)
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._seed = np.zeros(num_envs, dtype=np.int64)

    def begin(self, env: int, rotation: np.ndarray, rng: np.random.Generator) -> None:
        """Start an episode of one environment whose root is turned by `rotation` (1, 3, 3)."""
        self._seed[env] = rng.integers(2**62)
        self._elapsed[env] = 0
        self._heading[env] = self._headings(rotation)[0]
        self._draw(env)

    def _draw(self, env: int) -> None:
        rng = np.random.default_rng([int(self._seed[env]), int(self._elapsed[env])])
        stand, values = rng.uniform() < STAND, rng.uniform(-1, 1, 3)
        self.values[env] = 0.0 if stand else values * self._most

    def _headings(self, rotation: np.ndarray) -> np.ndarray:
        """Return the angle of the heading frame [rad]: where the axis that lay along x in the start pose points."""
        forward = rotation @ self._start[0]
        return np.arctan2(forward[:, 1], forward[:, 0])

    def follow(self, velocity: np.ndarray, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Judge a control step, then draw the commands whose time has come.

        Args:
            velocity: mean velocity of the centre of mass over the step, in the world [m/s]. (N, 3)
            rotation: rotation matrix of the root after it. (N, 3, 3)

        Returns:
            Reward of the planar velocity in [0, 1], and of the turn rate, with its weight. (N,) each
        """
        heading = self._headings(rotation)
        turned = np.arctan2(np.sin(heading - self._heading), np.cos(heading - self._heading))
        self._heading = heading
        sin, cos = np.sin(heading), np.cos(heading)
        forward = cos * velocity[:, 0] + sin * velocity[:, 1]
        left = cos * velocity[:, 1] - sin * velocity[:, 0]
        error = np.square(forward - self.values[:, 0]) + np.square(left - self.values[:, 1])
        planar = np.exp(-error / (_WIDTH * self._speed) ** 2)
        turn = np.exp(-np.square((turned / self._dt - self.values[:, 2]) / (_WIDTH * self._turn_rate)))
        self._elapsed += 1
        for env in np.flatnonzero(self._elapsed % self._interval == 0).tolist():
            self._draw(env)
        return planar, self._turn_weight * turn

    def get_state(self) -> dict[str, np.ndarray]:
        """Return copies of what is kept between steps."""
        return {
            "command": self.values.copy(),
            "heading": self._heading.copy(),
            "command_elapsed": self._elapsed.copy(),
            "command_seed": self._seed.copy(),
        }

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `get_state` returned; `values` stays the same array."""
        self.values[:] = state["command"]
        self._heading = state["heading"].copy()
        self._elapsed, self._seed = state["command_elapsed"].copy(), state["command_seed"].copy()


def _possible(model: mujoco.MjModel, robot: Robot, data: mujoco.MjData) -> np.ndarray:
    """Return whether the root's own joints can move it along x, along y, and turn it about z. (3,) bool"""
    mujoco.mj_comPos(model, data)
    position, rotation = np.zeros((3, model.nv)), np.zeros((3, model.nv))
    mujoco.mj_jac(model, data, position, rotation, data.xpos[robot.root_body], robot.root_body)
    dofs = np.isin(model.dof_jntid, robot.root_joints)
    reach = np.abs(np.array([position[0], position[1], rotation[2]])[:, dofs])
    return np.any(reach > 1e-3, axis=1)
