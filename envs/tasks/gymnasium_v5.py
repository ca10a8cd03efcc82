"""The tasks of Gymnasium's MuJoCo bodies as its v5 environments define them, in batched form.

Rewards, terminations, frame skips and start states are those of Gymnasium 1.4 (Ant-v5, HalfCheetah-v5, Hopper-v5,
Humanoid-v5, Swimmer-v5, Walker2d-v5); observations are not. An action of 1 stands for the upper end of the control
range here, 0.4 for Humanoid, and the control cost is that of the control which the action asks for, as in v5.
"""

from __future__ import annotations

from typing import ClassVar

import mujoco
import numpy as np

from agents import Morphology
from agents.errors import UserError
from envs.physics import BatchedPhysics
from envs.robot import Robot
from envs.tasks import register_task
from envs.tasks.base import Outcome, Task
from envs.tasks.options import TaskOptions

_INF = float("inf")


class GymnasiumTask(Task):
    """Reward = w v + healthy reward - control cost [- contact cost], v along x over the control step [m/s].

    Options replace the class attributes of the same names. An unhealthy state ends the episode and earns no healthy
    reward; a body without `healthy_z_range` has neither.

    Attributes:
        body: what the model must be, a name of the family `gymnasium`.
        healthy_z_range: of the root's z [m], both ends excluded but for Ant.
        healthy_angle_range: of the root's pitch [rad], both ends excluded; `None` for no rule.
        contact_cost_weight: `None` for a task without the term.
        normal_velocity: whether the noise of start velocities is normal rather than uniform.
        height: index of the root's z in qpos.
    """

    body: ClassVar[str]
    task_frame_skip: ClassVar[int] = 5
    forward_reward_weight: ClassVar[float] = 1.0
    ctrl_cost_weight: ClassVar[float]
    contact_cost_weight: ClassVar[float | None] = None
    healthy_reward: ClassVar[float] = 1.0
    healthy_z_range: ClassVar[tuple[float, float] | None] = None
    healthy_angle_range: ClassVar[tuple[float, float] | None] = None
    reset_noise_scale: ClassVar[float]
    normal_velocity: ClassVar[bool] = False
    height: ClassVar[int] = 1

    def __init__(
        self, morphology: Morphology, model: mujoco.MjModel, num_envs: int, robot: Robot, options: TaskOptions
    ) -> None:
        task = f"{self.body}-v5"
        if morphology.unvaried.source != {"family": "gymnasium", "arguments": {"body": self.body}}:
            raise UserError(f"task {task!r} is for the body {self.body!r}, not {morphology.name!r}: use 'locomotion'")
        known = ["forward_reward_weight", "ctrl_cost_weight", "reset_noise_scale", "frame_skip"]
        known += ["contact_cost_weight"] if self.contact_cost_weight is not None else []
        if self.healthy_z_range is not None:
            known += ["healthy_reward", "healthy_z_range", "terminate_when_unhealthy"]
        options.check_known(task, tuple(known))
        self._weight, self._ctrl_cost, self._contact_cost, self._healthy, self._range, self._noise = (
            getattr(self, name) if getattr(options, name) is None else getattr(options, name)
            for name in (
                "forward_reward_weight",
                "ctrl_cost_weight",
                "contact_cost_weight",
                "healthy_reward",
                "healthy_z_range",
                "reset_noise_scale",
            )
        )
        self._terminates = options.terminate_when_unhealthy is not False
        self.frame_skip = options.frame_skip or self.task_frame_skip
        self._dt = model.opt.timestep * self.frame_skip
        self._qpos0, self._nv = model.qpos0.copy(), model.nv
        self._control = model.actuator_ctrlrange[:, 1].copy()  # these are symmetric
        self._x = np.zeros(num_envs)

    def draw_start(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        qpos = self._qpos0 + rng.uniform(-self._noise, self._noise, len(self._qpos0))
        if self.normal_velocity:
            return qpos, self._noise * rng.standard_normal(self._nv)
        return qpos, rng.uniform(-self._noise, self._noise, self._nv)

    def accepts_start(self, xpos: np.ndarray) -> bool:
        return True

    def begin(self, env: int, physics: BatchedPhysics, rng: np.random.Generator) -> None:
        self._x[env] = self._position(physics)[env]

    def step(self, physics: BatchedPhysics, actions: np.ndarray) -> Outcome:
        x = self._position(physics).copy()  # the next step overwrites it
        velocity = (x - self._x) / self._dt
        self._x = x
        terms = {
            "reward_forward": self._weight * velocity,
            "reward_ctrl": -self._ctrl_cost * np.square(actions * self._control).sum(axis=1),
        }
        if self._contact_cost is not None:
            terms["reward_contact"] = -self._contacts(physics.cfrc_ext)
        failures: dict[str, np.ndarray] = {}
        if self._range is not None:
            rules = self._rules(physics)
            healthy = np.logical_and.reduce(list(rules.values()))
            terms["reward_survive"] = self._healthy * healthy
            if self._terminates:
                failures = {reason: ~holds for reason, holds in rules.items()}
        return Outcome(reward_terms=terms, failures=failures, x_position=x, x_velocity=velocity)

    def _position(self, physics: BatchedPhysics) -> np.ndarray:
        """Return x of the point whose advance is rewarded [m]. (N,)"""
        return physics.qpos[:, 0]

    def _contacts(self, forces: np.ndarray) -> np.ndarray:
        """Return the contact cost of the forces (N, nbody, 6). (N,)"""
        raise NotImplementedError

    def _rules(self, physics: BatchedPhysics) -> dict[str, np.ndarray]:
        """Return reason of a termination -> whether the rule still holds, (N,) bool."""
        low, high = self._range
        z = physics.qpos[:, self.height]
        rules = {f"fall: the root's z left ({low:g}, {high:g}) m": (low < z) & (z < high)}
        if self.healthy_angle_range is not None:
            low, high = self.healthy_angle_range
            angle = physics.qpos[:, self.height + 1]
            rules[f"fall: the root's pitch left ({low:g}, {high:g}) rad"] = (low < angle) & (angle < high)
        return rules

    def get_state(self) -> dict[str, np.ndarray]:
        return {"x": self._x.copy()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self._x = state["x"].copy()


@register_task("ant-v5")
class AntTask(GymnasiumTask):
    """Ant-v5. The point is the torso's frame, whose x MuJoCo leaves one substep late; forces count within [-1, 1]."""

    body = "ant"
    ctrl_cost_weight = 0.5
    contact_cost_weight = 5e-4
    healthy_z_range = (0.2, 1.0)
    reset_noise_scale = 0.1
    normal_velocity = True
    height = 2

    def _position(self, physics: BatchedPhysics) -> np.ndarray:
        return physics.xpos[:, 1, 0]

    def _contacts(self, forces: np.ndarray) -> np.ndarray:
        return self._contact_cost * np.square(np.clip(forces, -1, 1)).sum(axis=(1, 2))

    def _rules(self, physics: BatchedPhysics) -> dict[str, np.ndarray]:
        low, high = self._range
        z = physics.qpos[:, self.height]
        return {f"fall: the root's z left [{low:g}, {high:g}] m": (low <= z) & (z <= high)}


@register_task("half_cheetah-v5")
class HalfCheetahTask(GymnasiumTask):
    """HalfCheetah-v5: never ends."""

    body = "half_cheetah"
    ctrl_cost_weight = 0.1
    reset_noise_scale = 0.1
    normal_velocity = True


@register_task("hopper-v5")
class HopperTask(GymnasiumTask):
    """Hopper-v5. Coordinates and velocities beyond 100 end the episode too."""

    body = "hopper"
    task_frame_skip = 4
    ctrl_cost_weight = 1e-3
    healthy_z_range = (0.7, _INF)
    healthy_angle_range = (-0.2, 0.2)
    reset_noise_scale = 5e-3
    healthy_state_range: ClassVar[tuple[float, float]] = (-100.0, 100.0)

    def _rules(self, physics: BatchedPhysics) -> dict[str, np.ndarray]:
        low, high = self.healthy_state_range
        state = np.concatenate([physics.qpos[:, 2:], physics.qvel], axis=1)
        inside = np.all((low < state) & (state < high), axis=1)
        return {**super()._rules(physics), f"fall: a coordinate or velocity left ({low:g}, {high:g})": inside}


@register_task("humanoid-v5")
class HumanoidTask(GymnasiumTask):
    """Humanoid-v5. The point is the centre of mass of the model; the contact cost is at most 10."""

    body = "humanoid"
    forward_reward_weight = 1.25
    ctrl_cost_weight = 0.1
    contact_cost_weight = 5e-7
    healthy_reward = 5.0
    healthy_z_range = (1.0, 2.0)
    reset_noise_scale = 1e-2
    height = 2
    most_contact_cost: ClassVar[float] = 10.0

    def _position(self, physics: BatchedPhysics) -> np.ndarray:
        return physics.subtree_com[:, 0, 0]

    def _contacts(self, forces: np.ndarray) -> np.ndarray:
        return np.minimum(self._contact_cost * np.square(forces).sum(axis=(1, 2)), self.most_contact_cost)


@register_task("swimmer-v5")
class SwimmerTask(GymnasiumTask):
    """Swimmer-v5: never ends."""

    body = "swimmer"
    task_frame_skip = 4
    ctrl_cost_weight = 1e-4
    reset_noise_scale = 0.1


@register_task("walker2d-v5")
class Walker2dTask(GymnasiumTask):
    """Walker2d-v5."""

    body = "walker2d"
    task_frame_skip = 4
    ctrl_cost_weight = 1e-3
    healthy_z_range = (0.8, 2.0)
    healthy_angle_range = (-1.0, 1.0)
    reset_noise_scale = 5e-3
