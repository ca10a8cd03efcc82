"""How an action in [-1, 1] becomes a control signal."""

from __future__ import annotations

import mujoco
import numpy as np

from envs.robot import Robot, all_controls

_MARGIN = 0.05  # a nominal control nearer to an end of its range than this share of it is replaced by the middle
_LARGEST = 1e6  # no declared range is wider

_DYN, _GAIN, _BIAS, _TRN = mujoco.mjtDyn, mujoco.mjtGain, mujoco.mjtBias, mujoco.mjtTrn
_PID, _DCMOTOR, _SO3 = (int(getattr(_GAIN, f"mjGAIN_{kind}", -1)) for kind in ("PID", "DCMOTOR", "SO3"))
# Inputs of a servo with several, in the order of its controls, by their bit in `actuator_ctrlspec`.
_INPUTS = ((1, "position"), (2, "velocity"), (4, "force"), (8, "voltage"), (32, "pressure"))
_EXPMAP = 1
_ON_JOINT = (int(_TRN.mjTRN_JOINT), int(_TRN.mjTRN_JOINTINPARENT))
_HINGE, _BALL, _FREE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("HINGE", "BALL", "FREE"))


class ControlMap:
    """Maps `Box(-1, 1)` onto every control's range by two straight pieces.

    -1 and 1 go to the ends of the range and 0 to the nominal control: the keyframe's, else 0, or the middle of the
    range where that lies outside or close to an end. For a motor of range [-1, 1] the map is the identity.

    A control without a range in the model gets a declared one, symmetric unless said otherwise:

    - muscle: [0, 1];
    - position: the lengths that the joint's range, times the gear, allows; else pi times the gear for what turns, half
      a turn of an orientation, and 1 otherwise (the gear of a ball joint is the norm of its vector);
    - integrated velocity of a limited activation: what crosses half its range in a second;
    - force: what reaches the largest force that the actuator, or its joint, admits;
    - any other, and a force without limits: 1, so that the gear or gain is the largest force.

    Attributes:
        low, high: ends of the range of every control of the robot. (A,)
        nominal: control of action 0. (A,)
        declared: whether the range is declared here, not by the model. (A,) bool

    Args:
        model: the compiled model.
        robot: whose controls the actions drive; all others stay at their nominal control, clipped into their range.
            Without it actions drive every control, by id.
        keyframe: whose controls are nominal, -1 for none; one that the model lacks counts as none.
    """

    def __init__(self, model: mujoco.MjModel, robot: Robot | None = None, keyframe: int = 0) -> None:
        self._controls = np.arange(model.nu) if robot is None else robot.controls
        owners = all_controls(model)[1] if robot is None else robot.actuators
        limited = model.actuator_ctrllimited.astype(bool)
        low, high = model.actuator_ctrlrange.T.copy()
        for control, actuator in zip(self._controls.tolist(), owners.tolist(), strict=True):
            if not limited[control]:
                low[control], high[control] = _declared_range(model, actuator, control)
        nominal = model.key_ctrl[keyframe].copy() if 0 <= keyframe < model.nkey else np.zeros(model.nu)
        self._rest = np.where(limited, np.clip(nominal, low, high), nominal)
        self.low, self.high, self.declared = low[self._controls], high[self._controls], ~limited[self._controls]
        margin = _MARGIN * (self.high - self.low)
        nominal = nominal[self._controls]
        inside = (nominal >= self.low + margin) & (nominal <= self.high - margin)
        self.nominal = np.where(inside, nominal, (self.low + self.high) / 2)
        self._above = self.high - self.nominal
        self._below = self.nominal - self.low

    def control(self, actions: np.ndarray) -> np.ndarray:
        """Return the control signals of actions, which are clipped to [-1, 1] first.

        Args:
            actions: (N, A).

        Returns:
            (N, nu) float64.
        """
        clipped = np.clip(actions, -1.0, 1.0)
        own = self.nominal + clipped * np.where(clipped > 0, self._above, self._below)
        if len(self._controls) == len(self._rest):
            return own
        control = np.repeat(self._rest[None], len(own), axis=0)
        control[:, self._controls] = own
        return control


def control_kind(model: mujoco.MjModel, actuator: int, slot: int = 0) -> str:
    """Return what a control sets: `"position"`, `"velocity"`, `"force"`, `"excitation"` (of a muscle),
    `"integrated velocity"`, `"orientation"`, `"quaternion"`, `"voltage"` or `"pressure"`.

    Args:
        model: the compiled model.
        actuator: actuator id.
        slot: which of its controls.
    """
    gain, bias, dyn = (
        int(kinds[actuator]) for kinds in (model.actuator_gaintype, model.actuator_biastype, model.actuator_dyntype)
    )
    if dyn == int(_DYN.mjDYN_MUSCLE) or gain == int(_GAIN.mjGAIN_MUSCLE):
        return "excitation"
    if gain == _SO3:
        return "orientation" if int(model.actuator_ctrlspec[actuator]) == _EXPMAP else "quaternion"
    if gain in (_PID, _DCMOTOR):
        spec = int(model.actuator_ctrlspec[actuator])
        inputs = [name for bit, name in _INPUTS if spec & bit] or ["voltage"]
        return inputs[min(slot, len(inputs) - 1)]
    if dyn == int(_DYN.mjDYN_INTEGRATOR):
        return "integrated velocity"
    if bias == int(_BIAS.mjBIAS_AFFINE):
        _, length, velocity = model.actuator_biasprm[actuator, :3]
        if length:
            return "position"
        # A cylinder's or motor's friction is an affine bias too: a velocity servo's gain and bias cancel.
        if velocity and np.isclose(velocity, -model.actuator_gainprm[actuator, 0]):
            return "velocity"
    return "force"


def _declared_range(model: mujoco.MjModel, actuator: int, control: int) -> tuple[float, float]:
    kind = control_kind(model, actuator, control - int(model.actuator_ctrladr[actuator]))
    if kind == "excitation":
        return 0.0, 1.0
    if kind == "position":
        return _lengths(model, actuator)
    scale = 1.0
    if kind == "orientation":
        scale = np.pi
    elif kind == "integrated velocity" and model.actuator_actlimited[actuator]:
        scale = np.ptp(model.actuator_actrange[actuator]) / 2
    elif kind == "force":
        scale = _largest_force(model, actuator)
    if not 0 < scale <= _LARGEST:
        scale = 1.0
    return -scale, scale


def _lengths(model: mujoco.MjModel, actuator: int) -> tuple[float, float]:
    """Return the range of lengths of an actuator, as far as its joint or tendon limits them."""
    target, kind = int(model.actuator_trnid[actuator, 0]), int(model.actuator_trntype[actuator])
    gear, span = _gear(model, actuator), (-1.0, 1.0)
    if kind in _ON_JOINT:
        joint = int(model.jnt_type[target])
        if joint in (_HINGE, _BALL):
            span = (-np.pi, np.pi)
        if model.jnt_limited[target] and joint == _BALL:  # its range is the largest angle, about any axis
            span = (-float(model.jnt_range[target, 1]), float(model.jnt_range[target, 1]))
        elif model.jnt_limited[target]:
            span = tuple(model.jnt_range[target].tolist())
    elif kind == int(_TRN.mjTRN_TENDON) and model.tendon_limited[target]:
        span = tuple(model.tendon_range[target].tolist())
    low, high = sorted((gear * span[0], gear * span[1]))
    return (low, high) if 0 < high - low <= _LARGEST else (-1.0, 1.0)


def _gear(model: mujoco.MjModel, actuator: int) -> float:
    """Return the factor between the motion of what an actuator acts on and its length.

    With its sign, but for a ball joint, whose gear is a vector: there the length is the turn along that vector, times
    its norm. MuJoCo gives an actuator on a free joint no length at all, so its servo is a plain force.
    """
    gear, target = model.actuator_gear[int(model.actuator_outadr[actuator])], int(model.actuator_trnid[actuator, 0])
    if int(model.actuator_trntype[actuator]) in _ON_JOINT:
        if model.jnt_type[target] == _BALL:
            return float(np.linalg.norm(gear[:3]))
        if model.jnt_type[target] == _FREE:
            return 1.0
    return float(gear[0])


def _largest_force(model: mujoco.MjModel, actuator: int) -> float:
    """Return the control at which the force reaches its limit, 1 if it has none."""
    if int(model.actuator_gaintype[actuator]) not in (int(_GAIN.mjGAIN_FIXED), int(_GAIN.mjGAIN_AFFINE)):
        return 1.0
    gain = abs(float(model.actuator_gainprm[actuator, 0]))
    if gain == 0:
        return 1.0
    if model.actuator_forcelimited[actuator]:
        return float(np.abs(model.actuator_forcerange[actuator]).max()) / gain
    joint = int(model.actuator_trnid[actuator, 0])
    if model.actuator_trntype[actuator] in _ON_JOINT and model.jnt_actfrclimited[joint]:
        gear = abs(_gear(model, actuator))
        return float(np.abs(model.jnt_actfrcrange[joint]).max()) / (gain * gear) if gear else 1.0
    return 1.0
