"""The Centipede's task: run forward along x. From NerveNet (Wang et al. 2018) and Snowflake (Blake et al. 2021)."""

from __future__ import annotations

import mujoco
import numpy as np

from agents import Morphology
from agents.errors import UserError
from envs.observation import CONTACT_CLIP
from envs.physics import BatchedPhysics
from envs.robot import Robot
from envs.tasks import register_task
from envs.tasks.base import Outcome, Task
from envs.tasks.options import TaskOptions

FRAME_SKIP = 5
"""Physics steps in a control step."""
MIN_HEIGHT, MAX_HEIGHT = 0.35, 1.15
"""Every torso's height must stay between these [m]."""
MAX_SIDESTEP = 0.45
"""Neighbouring torsos must stay closer than this in y [m]."""
START_NOISE = 0.1
"""Half width of the uniform noise on the start positions [m, rad, 1]; scale of that on the velocities [m/s, rad/s]."""
SURVIVE_REWARD = 1.0
CONTROL_COST, CONTACT_COST = 2.0, 0.002
"""Weights of the squared actions and the squared clipped contact forces, both divided by the number of legs."""

_FALL_HEIGHT = f"fall: a torso's height left ({MIN_HEIGHT}, {MAX_HEIGHT}) m"
_FALL_SIDE = f"fall: neighbouring torsos came {MAX_SIDESTEP} m apart sideways"


@register_task("centipede")
class CentipedeTask(Task):
    """Reward = v + 1 - (2/n) sum(a^2) - (0.002/n) sum(clip(cfrc_ext, -1, 1)^2) for n legs.

    v is the displacement of the front torso's frame origin along x over the control step, by its 0.05 s. `a` is the
    action as sampled, not clipped. Start: every position, x and the quaternion included, at the model's zero plus
    U(-0.1, 0.1), except for the pitch hinges of the spine and the y component of the root's quaternion, which get
    U(-w, w), w = 0.1 / (number of torsos - 1), so that a long body starts level; velocities 0.1 N(0, 1); drawn again
    until no rule of termination holds. All of it is fixed: the task has no options.
    """

    def __init__(
        self, morphology: Morphology, model: mujoco.MjModel, num_envs: int, robot: Robot, options: TaskOptions
    ) -> None:
        options.check_known("centipede")
        classes = morphology.node_class(model) or tuple[str, ...]()
        spine = [joint for joint, name in enumerate(classes) if name in ("root", "body")]
        pitch = [joint for joint, name in enumerate(classes) if name == "bodyupdown"]
        if len(spine) < 2 or classes[:1] != ("root",) or len(pitch) != len(spine) - 1:
            raise UserError(f"body {morphology.name!r}: the task 'centipede' needs a chain of two torsos or more")
        self._torsos = model.jnt_bodyid[spine].astype(np.intp)
        self._legs = sum(name in ("lefthip", "righthip") for name in classes)
        self.frame_skip = FRAME_SKIP
        self._dt = model.opt.timestep * self.frame_skip
        self._qpos0 = model.qpos0.copy()
        self._nv = model.nv
        quat_y = model.jnt_qposadr[spine[0]] + 5
        self._level = np.array([*model.jnt_qposadr[pitch], quat_y], dtype=np.intp)
        self._x = np.zeros(num_envs)

    def draw_start(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        qpos = self._qpos0 + rng.uniform(-START_NOISE, START_NOISE, len(self._qpos0))
        width = START_NOISE / (len(self._torsos) - 1)
        qpos[self._level] = rng.uniform(-width, width, len(self._level))
        return qpos, START_NOISE * rng.standard_normal(self._nv)

    def accepts_start(self, xpos: np.ndarray) -> bool:
        return not any(mask.any() for mask in self._falls(xpos[None]).values())

    def begin(self, env: int, physics: BatchedPhysics, rng: np.random.Generator) -> None:
        self._x[env] = physics.xpos[env, self._torsos[-1], 0]

    def step(self, physics: BatchedPhysics, actions: np.ndarray) -> Outcome:
        x = physics.xpos[:, self._torsos[-1], 0].copy()  # the next step overwrites xpos
        velocity = (x - self._x) / self._dt
        self._x = x
        contacts = np.clip(physics.cfrc_ext.reshape(len(x), -1), -CONTACT_CLIP, CONTACT_CLIP)
        terms = {
            "reward_forward": velocity,
            "reward_ctrl": -CONTROL_COST / self._legs * np.square(actions).sum(axis=1),
            "reward_contact": -CONTACT_COST / self._legs * np.square(contacts).sum(axis=1),
            "reward_survive": np.full(len(x), SURVIVE_REWARD),
        }
        return Outcome(reward_terms=terms, failures=self._falls(physics.xpos), x_position=x, x_velocity=velocity)

    def _falls(self, xpos: np.ndarray) -> dict[str, np.ndarray]:
        """Return the rules of termination on xpos (N, nbody, 3): reason -> (N,) bool."""
        torsos = xpos[:, self._torsos]
        height, y = torsos[:, :, 2], torsos[:, :, 1]
        return {
            _FALL_HEIGHT: np.logical_not(((height > MIN_HEIGHT) & (height < MAX_HEIGHT)).all(axis=1)),
            _FALL_SIDE: np.logical_not((np.abs(np.diff(y, axis=1)) < MAX_SIDESTEP).all(axis=1)),
        }

    def get_state(self) -> dict[str, np.ndarray]:
        return {"x": self._x.copy()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self._x = state["x"].copy()
