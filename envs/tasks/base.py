"""What a task is: how episodes start, what earns reward, when they end. Array functions over the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import mujoco
import numpy as np

from agents import Morphology
from envs.physics import BatchedPhysics
from envs.robot import Robot
from envs.tasks.options import TaskOptions


@dataclass(frozen=True)
class Outcome:
    """What a control step brought, for every environment of the batch.

    Attributes:
        reward_terms: addends of the reward by name, each (N,) float64.
        failures: reason of a termination, in words that begin with its kind ("fall: ..."), to the mask of the
            environments that it ends, (N,) bool; the first that holds is reported.
        x_position: position of the point whose advance is rewarded [m]. (N,) float64
        x_velocity: its mean velocity over the control step [m/s]. (N,) float64
    """

    reward_terms: dict[str, np.ndarray]
    failures: dict[str, np.ndarray]
    x_position: np.ndarray
    x_velocity: np.ndarray


class Task(ABC):
    """A task on a body, for a batch of N environments. It keeps what it must remember between two control steps.

    Attributes:
        frame_skip: physics steps in a control step.
        keyframe: keyframe that episodes start from, -1 for none. The environment resets to it (`mj_resetDataKeyframe`:
            activations, controls and mocap poses too) before it places the positions and velocities of `draw_start`,
            and the keyframe's controls are what action 0 stands for.
        command: what the robot is told to do, as it is observed: velocity forward and to the left [m/s] and turn rate
            [rad/s], in the heading frame. (N, 3) float64, or `None` for a task without commands.

    Args:
        morphology: the body.
        model: the body, compiled.
        num_envs: N.
        robot: which part of the model is the robot.
        options: what the user set.

    Raises:
        UserError: the body does not suit the task, or an option does not.
    """

    frame_skip: int
    keyframe: int = -1
    command: np.ndarray | None = None

    @classmethod
    def prepare(
        cls, morphology: Morphology, model: mujoco.MjModel, robot: Robot, options: TaskOptions
    ) -> mujoco.MjModel:
        """Return the model to simulate: the body's own, or one with what the task needs around it.

        Bodies, joints, tendons and actuators, and what robot says of them, stay as they are.

        Args:
            morphology: the body.
            model: the body, compiled.
            robot: which part of the model is the robot.
            options: what the user set.
        """
        return model

    @abstractmethod
    def __init__(
        self, morphology: Morphology, model: mujoco.MjModel, num_envs: int, robot: Robot, options: TaskOptions
    ) -> None: ...

    @abstractmethod
    def draw_start(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw a start state: qpos (nq,), with quaternions of any length, and qvel (nv,)."""

    @abstractmethod
    def accepts_start(self, xpos: np.ndarray) -> bool:
        """Whether an episode may start with the bodies at xpos (nbody, 3) [m]; otherwise another start is drawn."""

    @abstractmethod
    def begin(self, env: int, physics: BatchedPhysics, rng: np.random.Generator) -> None:
        """Take note that an episode of one environment has just started; `rng` is the environment's generator."""

    @abstractmethod
    def step(self, physics: BatchedPhysics, actions: np.ndarray) -> Outcome:
        """Judge a control step.

        Args:
            physics: the batch after the step.
            actions: the actions as they were given, not clipped. (N, A) float64
        """

    @abstractmethod
    def get_state(self) -> dict[str, np.ndarray]:
        """Return copies of what the task keeps between steps, with N in front in every array."""

    @abstractmethod
    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `get_state` returned."""
