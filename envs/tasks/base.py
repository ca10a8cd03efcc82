"""What a task is: how episodes start, what earns reward, when they end. Array functions over the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import mujoco
import numpy as np

from agents import Morphology
from envs.physics import BatchedPhysics


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

    Args:
        morphology: the body.
        model: the body, compiled.
        num_envs: N.
    """

    frame_skip: ClassVar[int]

    @abstractmethod
    def __init__(self, morphology: Morphology, model: mujoco.MjModel, num_envs: int) -> None: ...

    @abstractmethod
    def draw_start(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw a start state: qpos (nq,), with quaternions of any length, and qvel (nv,)."""

    @abstractmethod
    def accepts_start(self, xpos: np.ndarray) -> bool:
        """Whether an episode may start with the bodies at xpos (nbody, 3) [m]; otherwise another start is drawn."""

    @abstractmethod
    def begin(self, env: int, physics: BatchedPhysics) -> None:
        """Take note that an episode of one environment has just started."""

    @abstractmethod
    def step(self, physics: BatchedPhysics, actions: np.ndarray) -> Outcome:
        """Judge a control step.

        Args:
            physics: the batch after the step.
            actions: the actions as they were given, not clipped. (N, nu) float64
        """

    @abstractmethod
    def get_state(self) -> dict[str, np.ndarray]:
        """Return copies of what the task keeps between steps, with N in front in every array."""

    @abstractmethod
    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `get_state` returned."""
