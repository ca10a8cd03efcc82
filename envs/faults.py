"""A motor that fails during an episode, which no observation tells: a task in which the past matters."""

from __future__ import annotations

import numpy as np

from agents.errors import UserError
from envs.tasks.options import TaskOptions


class MotorFaults:
    """What is wrong with the controls of N environments.

    With probability `task.motor_fault` one control, any of them, has a fault in an episode: from a control step on,
    drawn from `task.motor_fault_steps`, its action is multiplied by `task.motor_fault_gain` on its way to the
    actuator. With gain 0 the control stays at its nominal value, which for a motor is no force. The task sees, and
    charges, the action as it was given.

    Attributes:
        control: which control has the fault of the running episode, -1 for none. (N,) int64
        step: control step that it begins with, counted from 0. (N,) int64

    Args:
        num_envs: N.
        num_controls: controls of the robot, A.
        options: of the task.

    Raises:
        UserError: a fault is asked for, and the robot has no control.
    """

    def __init__(self, num_envs: int, num_controls: int, options: TaskOptions) -> None:
        self._probability, self._gain = options.motor_fault, options.motor_fault_gain
        self._steps = tuple(int(step) for step in options.motor_fault_steps)
        self._num_controls = num_controls
        if self._probability and not num_controls:
            raise UserError("task.motor_fault is for robots with motors, and this one has none: leave it out")
        self.control = np.full(num_envs, -1, dtype=np.int64)
        self.step = np.zeros(num_envs, dtype=np.int64)

    @property
    def possible(self) -> bool:
        """Whether there are faults at all; without, nothing is drawn."""
        return self._probability > 0.0

    def begin(self, env: int, rng: np.random.Generator) -> None:
        """Draw the fault of an episode that starts."""
        if self.possible:
            fails = rng.random() < self._probability
            control = int(rng.integers(self._num_controls))
            self.step[env] = rng.integers(self._steps[0], self._steps[1] + 1)
            self.control[env] = control if fails else -1

    def apply(self, actions: np.ndarray, elapsed: np.ndarray) -> np.ndarray:
        """Return what the actuators get of actions (N, A), after ``elapsed`` (N,) control steps of the episodes."""
        if not self.possible:
            return actions
        rows = np.flatnonzero((self.control >= 0) & (elapsed >= self.step))
        columns = self.control[rows]
        actions = actions.copy()
        actions[rows, columns] = np.clip(actions[rows, columns], -1.0, 1.0) * self._gain
        return actions

    def get_state(self) -> dict[str, np.ndarray]:
        """Return copies of the faults, by name; nothing where there are none."""
        return {"control": self.control.copy(), "step": self.step.copy()} if self.possible else {}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `get_state` returned."""
        if self.possible:
            self.control, self.step = state["control"].copy(), state["step"].copy()
