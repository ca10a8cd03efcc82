"""What a user may set of a task. Every setting but the switches is `None` by default: the task's own value."""

from __future__ import annotations

import dataclasses
import math
import numbers
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.errors import UserError, nearest

EVERYWHERE = ("motor_fault", "motor_fault_gain", "motor_fault_steps")
"""Settings of the environment, which every task has."""

RESETS = ("auto", "qpos0", "keyframe", "keyframe:NAME")


@dataclass(frozen=True)
class TaskOptions:
    """Reward, ends of episodes and resets; null leaves a setting to the task.

    A task refuses what it does not know: the Centipede's takes none of these, those of Gymnasium's v5 bodies take the
    keywords that the v5 environments take. The motor faults are every task's.
    """

    forward_reward_weight: float | None = None
    """Reward per m/s of forward speed, every control step; with command, the most that following the velocity earns."""
    turn_reward_weight: float | None = None
    """The most that following the commanded turn rate earns in a control step (with command only)."""
    ctrl_cost_weight: float | None = None
    """Cost of a control step per mean square action (v5 bodies: per summed square of the controls)."""
    contact_cost_weight: float | None = None
    """Cost of a control step per summed square contact force, in robot weights (v5 bodies: in N and N m)."""
    healthy_reward: float | None = None
    """Reward of a control step without a fall."""
    healthy_z_range: tuple[float, ...] | None = None
    """Lowest and highest z of the root's centre of mass in m; outside is a fall."""
    terminate_when_unhealthy: bool | None = None
    """End the episode at a fall."""
    reset_noise_scale: float | None = None
    """Noise on start states, as a share of each joint's half range (v5 bodies: in m and rad)."""
    frame_skip: int | None = None
    """Physics steps in a control step."""
    reset: str = "auto"
    """Start pose: auto (the first keyframe if there is one, else qpos0), qpos0, keyframe, keyframe:NAME."""
    command: bool = False
    """Follow commanded planar velocities and turn rates instead of running forward."""
    command_speed: float | None = None
    """Largest commanded speed in m/s."""
    command_turn_rate: float | None = None
    """Largest commanded turn rate in rad/s."""
    command_interval: float | None = None
    """Seconds until a new command is drawn."""
    motor_fault: float = 0.0
    """Probability that one motor fails in an episode, which is not observed; which one and when is drawn."""
    motor_fault_gain: float = 0.0
    """What a motor that failed makes of its action: a factor, 0 for nothing, -1 for the opposite."""
    motor_fault_steps: tuple[float, ...] = (0.0, 200.0)
    """First and last control step of an episode at which the motor may fail."""

    def __post_init__(self) -> None:
        for name in ("forward_reward_weight", "turn_reward_weight", "healthy_reward"):
            self._check(name, -math.inf, math.inf)
        for name in ("ctrl_cost_weight", "contact_cost_weight", "reset_noise_scale"):
            self._check(name, 0.0, math.inf)
        self._check("frame_skip", 1, 100_000)
        self._check("motor_fault", 0.0, 1.0)
        self._check("motor_fault_gain", -1.0, 1.0)
        steps = self.motor_fault_steps
        if len(steps) != 2 or not all(0 <= s <= 1e9 and s == int(s) for s in steps) or steps[0] > steps[1]:
            raise UserError(
                f"task.motor_fault_steps = {list(steps)} is no range of steps: write the first and last, like [0, 200]"
            )
        if not self.motor_fault and (self.motor_fault_gain != 0.0 or tuple(steps) != (0.0, 200.0)):
            raise UserError("task.motor_fault_gain and task.motor_fault_steps need a task.motor_fault above 0")
        for name in ("command_speed", "command_turn_rate", "command_interval"):
            self._check(name, 1e-9, math.inf)
        span = self.healthy_z_range
        if span is not None and not (len(span) == 2 and span[0] < span[1]):
            raise UserError(
                f"task.healthy_z_range = {list(span)} is no range: write the lowest and highest height in m"
            )
        if self.reset not in RESETS[:3] and not (self.reset.startswith("keyframe:") and self.reset[9:]):
            raise UserError(f"task.reset = {self.reset!r} is not a choice: choose from {', '.join(RESETS)}")
        for name in ("turn_reward_weight", "command_speed", "command_turn_rate", "command_interval"):
            if getattr(self, name) is not None and not self.command:
                raise UserError(f"task.{name} is for commanded motion only: set task.command to true, or leave it out")

    @classmethod
    def of(cls, options: TaskOptions | Mapping[str, Any] | None) -> TaskOptions:
        """Return options as they are, those that a mapping of their names holds, or the defaults for `None`.

        Raises:
            UserError: an unknown name, a value of another type, or one out of range.
        """
        if options is None or isinstance(options, TaskOptions):
            return options or cls()
        if not isinstance(options, Mapping):
            raise UserError(f"task_options is {options!r}: give a dict like {{'command': True}}, or envs.TaskOptions")
        hints, values = typing.get_type_hints(cls), {}
        for name, value in options.items():
            if name not in hints:
                raise UserError(f"task_options has no {name!r}: {nearest(str(name), tuple(hints))}")
            values[name] = _fitting(name, value, hints[name])
        return cls(**values)

    def _check(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        if value is not None and not (low <= value <= high and math.isfinite(value)):
            raise UserError(f"task.{name} = {value!r} is out of range: must lie in [{low}, {high}]")

    def check_known(self, task: str, known: tuple[str, ...] = ()) -> None:
        """Refuse settings that a task does not have.

        Args:
            task: its name.
            known: the settings that it has.

        Raises:
            UserError: another one differs from its default.
        """
        for field in dataclasses.fields(self):
            if field.name not in (*known, *EVERYWHERE) and getattr(self, field.name) != field.default:
                instead = f"it has {', '.join(known)}" if known else "it is fixed"
                raise UserError(f"task.{field.name} is no setting of the task {task!r} ({instead}): leave it out")


def _fitting(name: str, value: Any, hint: Any) -> Any:
    """Return a value in the type of its field; a list of numbers becomes a tuple, as a config file's does."""
    kinds = (hint,) if typing.get_origin(hint) is tuple else typing.get_args(hint) or (hint,)
    if value is None and type(None) in kinds:
        return None
    flag = isinstance(value, bool | np.bool_)
    if bool in kinds or flag:
        if bool in kinds and flag:
            return bool(value)
    elif str in kinds:
        if isinstance(value, str):
            return value
    elif float in kinds or int in kinds:
        if isinstance(value, numbers.Integral):
            return float(value) if float in kinds else int(value)
        if float in kinds and isinstance(value, numbers.Real):
            return float(value)
    elif isinstance(value, list | tuple | np.ndarray) and all(isinstance(part, numbers.Real) for part in value):
        return tuple(float(part) for part in value)
    words = {bool: "true or false", str: "text", float: "a number", int: "a whole number"}
    wanted = next((words[kind] for kind in kinds if kind in words), "a list of numbers")
    raise UserError(f"task_options[{name!r}] = {value!r} is not {wanted}")
