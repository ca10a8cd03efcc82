"""How an action in [-1, 1] becomes a control signal."""

from __future__ import annotations

import mujoco
import numpy as np

from agents.errors import UserError

_MARGIN = 0.05  # a nominal control nearer to an end of its range than this share of it is replaced by the middle


class ControlMap:
    """Maps `Box(-1, 1)` onto every actuator's control range by two straight pieces.

    -1 and 1 go to the ends of the range and 0 to the nominal control: that of the first keyframe, else 0, or the middle
    of the range where that lies outside or close to an end. For a motor of range [-1, 1] the map is the identity.

    Args:
        model: the compiled model.

    Raises:
        UserError: an actuator has no control range.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        unlimited = np.flatnonzero(model.actuator_ctrllimited == 0)
        if len(unlimited):
            name = model.actuator(unlimited[0]).name or f"actuator#{unlimited[0]}"
            raise UserError(f"actuator {name!r} has no control range: give it a ctrlrange in the model")
        low, high = model.actuator_ctrlrange.T
        nominal = model.key_ctrl[0].copy() if model.nkey else np.zeros(model.nu)
        margin = _MARGIN * (high - low)
        inside = (nominal >= low + margin) & (nominal <= high - margin)
        self._nominal = np.where(inside, nominal, (low + high) / 2)
        self._above = high - self._nominal
        self._below = self._nominal - low

    def control(self, actions: np.ndarray) -> np.ndarray:
        """Return the control signals of actions, which are clipped to [-1, 1] first.

        Args:
            actions: (N, nu).

        Returns:
            (N, nu) float64.
        """
        clipped = np.clip(actions, -1.0, 1.0)
        return self._nominal + clipped * np.where(clipped > 0, self._above, self._below)
