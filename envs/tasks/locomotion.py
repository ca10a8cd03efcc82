"""The task of any robot: move forward, or follow commanded velocities, cheaply and without falling."""

from __future__ import annotations

import math

import mujoco
import numpy as np

from agents import Morphology
from agents.errors import UserError
from envs.observation.root import RootMotion, RootState
from envs.physics import BatchedPhysics
from envs.robot import Robot
from envs.tasks import register_task
from envs.tasks.base import Outcome, Task
from envs.tasks.command import Commands
from envs.tasks.geometry import add_floor, find_ground
from envs.tasks.options import TaskOptions
from envs.tasks.reset import StartPose, find_keyframe
from envs.tasks.scale import floor_height, is_pulled_down, measure

CONTROL_PERIOD = 0.02
"""A control step lasts this long [s] or, where the time step does not divide it, a little longer."""
CTRL_COST, CONTACT_COST, HEALTHY_REWARD, NOISE = 0.5, 0.01, 1.0, 0.05
"""Defaults of the weights and of the reset noise; see `LocomotionTask`."""
FASTEST = 3.0
"""Walking speeds beyond which advance earns no more: a simulation about to diverge throws its robot far faster."""


def frame_skip(timestep: float) -> int:
    """Return the smallest number of physics steps that lasts 20 ms: control at 25 to 50 Hz for steps up to 40 ms.

    Args:
        timestep: duration of a physics step [s].
    """
    return max(1, math.ceil(CONTROL_PERIOD / timestep - 1e-6))


@register_task("locomotion")
class LocomotionTask(Task):
    """Reward = w v + h - c mean(a^2) - k sum(min(|F| / weight, 1)^2) a control step.

    - v: mean velocity of the robot's centre of mass along the world's x over the control step [m/s], cut at `FASTEST`
      times `Scale.speed`. w is 1 / `Scale.speed`, so that walking earns 1 whatever the size. A robot that cannot travel
      along x (a fixed base, a root in limits) is rewarded for the speed of its centre of mass, in any direction: what a
      base that stays in place can still do is move.
    - with `command`, instead of w v: w exp(-|e|^2 / s^2) + u exp(-(e_turn / s_turn)^2), for the errors e of the planar
      velocity in the heading frame and e_turn of the turn rate; s and s_turn are half the largest command, w = 1,
      u = 0.5. See `Commands`.
    - h = 1 while the robot has not fallen; 0 for one that cannot fall.
    - a: the action as given, not clipped; c = 0.5.
    - F: the contact force on every body of the robot; k = 0.01.

    A fall: the root body's centre of mass leaves `healthy_z_range`; `envs.tasks.scale.measure` says which range is the
    default for robots that stand, fly or hang. What neither stands nor is kept in the air (a fixed base, a planar
    swimmer, a body without weight), or lies already, never falls, unless a range is given.

    Starts are those of `StartPose`, with noise of 0.05. A model in which gravity would pull the robot down for ever,
    with nothing in it that does not move and that the robot can touch, as a file with the robot alone, is given a level
    floor at the robot's lowest point; at height 0 if something holds the robot up in the air.
    """

    @classmethod
    def prepare(
        cls, morphology: Morphology, model: mujoco.MjModel, robot: Robot, options: TaskOptions
    ) -> mujoco.MjModel:
        pose = StartPose(model, robot, find_keyframe(model, options.reset, morphology.name))
        if not is_pulled_down(model, robot, pose.data) or len(find_ground(model, pose.geometry)):
            return model
        contype, conaffinity = (
            int(np.bitwise_or.reduce(mask[pose.geometry.geoms], initial=0))
            for mask in (model.geom_conaffinity, model.geom_contype)
        )
        if not contype | conaffinity:  # nothing of it can touch anything
            return model
        height = floor_height(model, robot, pose)
        return morphology.compile(lambda spec: add_floor(spec, height, contype, conaffinity))

    def __init__(
        self, morphology: Morphology, model: mujoco.MjModel, num_envs: int, robot: Robot, options: TaskOptions
    ) -> None:
        self._name = morphology.name
        self.frame_skip = options.frame_skip or frame_skip(model.opt.timestep)
        self.keyframe = find_keyframe(model, options.reset, morphology.name)
        self._dt = model.opt.timestep * self.frame_skip
        self._pose = StartPose(model, robot, self.keyframe)
        self.scale = measure(model, robot, self._pose)
        self._root, self._bodies = robot.root_body, robot.bodies
        self._motion = RootMotion(model, robot.root_body)
        self._offset = model.body_ipos[self._root].copy()
        self._noise = _default(options.reset_noise_scale, NOISE)
        self._ctrl_cost = _default(options.ctrl_cost_weight, CTRL_COST)
        self._contact_cost = _default(options.contact_cost_weight, CONTACT_COST)
        self._set_health(options)
        self._forward = _default(options.forward_reward_weight, 1.0 if options.command else 1 / self.scale.speed)
        self._commands = None
        if options.command:
            self._commands = Commands(model, robot, self._pose, num_envs, self._dt, self.scale.speed, options)
            self.command = self._commands.values
            if not self._commands.possible.any():
                raise UserError(
                    f"task.command: body {self._name!r} has a root that cannot travel or turn: leave task.command out"
                )
        self._com = np.zeros((num_envs, 3))

    def _set_health(self, options: TaskOptions) -> None:
        scale, span = self.scale, options.healthy_z_range
        watched = scale.can_fall or span is not None
        self._low, self._high = scale.healthy_z_range if span is None else span
        if span is not None and not self._low < scale.root_height < self._high:
            raise UserError(
                f"task.healthy_z_range = {list(span)} does not hold the start height of body {self._name!r}, "
                f"{scale.root_height:.3g} m: choose a range around it"
            )
        self._watched = watched
        self._terminates = watched and options.terminate_when_unhealthy is not False
        self._healthy = _default(options.healthy_reward, HEALTHY_REWARD if watched else 0.0)
        self._fall = f"fall: the root's height left ({self._low:.3g}, {self._high:.3g}) m"

    def draw_start(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return self._pose.draw(rng, self._noise)

    def accepts_start(self, xpos: np.ndarray) -> bool:
        return True

    def begin(self, env: int, physics: BatchedPhysics, rng: np.random.Generator) -> None:
        self._com[env] = physics.subtree_com[env, self._root]
        if self._commands is not None:
            root = self._motion.state(physics.qpos[env : env + 1], physics.qvel[env : env + 1])
            self._commands.begin(env, root.rotation, rng)

    def step(self, physics: BatchedPhysics, actions: np.ndarray) -> Outcome:
        com = physics.subtree_com[:, self._root].copy()  # the next step overwrites it
        velocity = (com - self._com) / self._dt
        self._com = com
        root = self._motion.state(physics.qpos, physics.qvel)
        healthy = self._is_healthy(root)
        forces = np.linalg.norm(physics.cfrc_ext[:, self._bodies, 3:], axis=2) / self.scale.weight
        terms = self._progress(velocity, root.rotation)
        terms["reward_ctrl"] = -self._ctrl_cost * np.square(actions).mean(axis=1)
        terms["reward_contact"] = -self._contact_cost * np.square(np.minimum(forces, 1.0)).sum(axis=1)
        terms["reward_survive"] = self._healthy * healthy
        failures = {self._fall: ~healthy} if self._terminates else {}
        return Outcome(reward_terms=terms, failures=failures, x_position=com[:, 0], x_velocity=velocity[:, 0].copy())

    def _is_healthy(self, root: RootState) -> np.ndarray:
        """Whether the root's centre of mass is where it should be. (N,) bool"""
        if not self._watched:
            return np.ones(len(root.position), dtype=bool)
        height = root.position[:, 2] + root.rotation[:, 2] @ self._offset
        return (height > self._low) & (height < self._high)

    def _progress(self, velocity: np.ndarray, rotation: np.ndarray) -> dict[str, np.ndarray]:
        if self._commands is not None:
            planar, turn = self._commands.follow(velocity, rotation)
            return {"reward_forward": self._forward * planar, "reward_turn": turn}
        advance = velocity[:, 0] if self.scale.can_travel else np.linalg.norm(velocity, axis=1)
        fastest = FASTEST * self.scale.speed
        return {"reward_forward": self._forward * np.clip(advance, -fastest, fastest)}

    def get_state(self) -> dict[str, np.ndarray]:
        commands = self._commands.get_state() if self._commands is not None else {}
        return {"com": self._com.copy(), **commands}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self._com = state["com"].copy()
        if self._commands is not None:
            self._commands.set_state(state)


def _default(value: float | None, default: float) -> float:
    return default if value is None else value
