"""What a unit of force of each actuator does in the pose `qpos0`: to the nodes that it is attached to, and to the root.

Muscles and tendons act on several joints at once, an antagonist with the opposite signs: the attachments alone would
make the two the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from snowflake.graph.rest import RestPose

_JOINT = mujoco.mjtJoint
_NOTHING = 1e-9  # a moment arm that is rounding error only: not of any real size, or next to the largest one


@dataclass(frozen=True, eq=False)
class ControlMoments:
    """Moments of all controls.

    Attributes:
        output: row of `mjModel.actuator_gear` and the like that belongs to a control. (A,) int64
        share: of each attached node, control after control: its moment over the sum of absolute moments of the
            control's nodes; equal positive parts where no node feels any (adhesion without contact). (P,)
        total: that sum, in units of force; torques are divided by the robot's size. (A,)
        on_root: direction of the force and the torque (over the size) on the whole robot, in the top body's frame, of
            length 1 together or 0. (A, 6)
    """

    output: np.ndarray
    share: np.ndarray
    total: np.ndarray
    on_root: np.ndarray


def control_moments(model: mujoco.MjModel, rest: RestPose, attached: list[list[int]]) -> ControlMoments:
    """Return the moments of a robot's controls.

    A hinge or slide counts with its sign, a ball joint and the root with the length of what acts on them.

    Args:
        model: the compiled body.
        rest: the robot in the reference pose.
        attached: nodes of every control.
    """
    robot = rest.robot
    dense = _dense_moments(model, rest.data)
    output, share, total, on_root = [], [], [], []
    for control, actuator, nodes in zip(robot.controls, robot.actuators, attached, strict=True):
        slot = int(control - model.actuator_ctrladr[actuator])
        row = int(model.actuator_outadr[actuator] + min(slot, model.actuator_outnum[actuator] - 1))
        moment = dense[row]
        moment = np.where(np.abs(moment) > max(1e-6 * np.abs(moment).max(initial=0.0), _NOTHING), moment, 0.0)
        pushed = _on_root(model, rest, moment)
        felt = np.array([_on_joint(model, rest, node, moment) if node else np.linalg.norm(pushed) for node in nodes])
        length, everything = float(np.linalg.norm(pushed)), float(np.abs(felt).sum())
        output.append(row)
        share.append(felt / everything if everything > 0 else np.full(len(nodes), 1 / len(nodes)))
        total.append(everything)
        on_root.append(pushed / length if length > 0 else pushed)
    return ControlMoments(np.array(output), np.concatenate(share), np.array(total), np.array(on_root))


def _dense_moments(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Return the derivative of every actuator output's length by the degrees of freedom. (outputs, nv)."""
    dense = np.zeros((len(data.moment_rownnz), model.nv))
    for row, (start, count) in enumerate(zip(data.moment_rowadr, data.moment_rownnz, strict=True)):
        dense[row, data.moment_colind[start : start + count]] = data.actuator_moment[start : start + count]
    return dense


def _on_joint(model: mujoco.MjModel, rest: RestPose, node: int, moment: np.ndarray) -> float:
    joint = int(rest.robot.node_joints[node - 1])
    dof, kind = int(model.jnt_dofadr[joint]), model.jnt_type[joint]
    if kind == _JOINT.mjJNT_BALL:
        return float(np.linalg.norm(moment[dof : dof + 3])) / rest.size
    return float(moment[dof]) / (1.0 if kind == _JOINT.mjJNT_SLIDE else rest.size)


def _on_root(model: mujoco.MjModel, rest: RestPose, moment: np.ndarray) -> np.ndarray:
    """Return force, and torque over the size, on the merged joints of the root, in the top body's frame. (6,)."""
    pushed, frame = np.zeros(6), rest.frame(rest.robot.root_body)
    for joint in rest.robot.root_joints:
        dof, kind = int(model.jnt_dofadr[joint]), model.jnt_type[joint]
        if kind == _JOINT.mjJNT_FREE:  # MuJoCo has its force in the world's frame, its torque in the body's
            pushed[:3] += frame @ moment[dof : dof + 3]
            pushed[3:] += moment[dof + 3 : dof + 6] / rest.size
        elif kind == _JOINT.mjJNT_BALL:
            pushed[3:] += moment[dof : dof + 3] / rest.size
        elif kind == _JOINT.mjJNT_SLIDE:
            pushed[:3] += moment[dof] * (frame @ rest.data.xaxis[joint])
        else:
            pushed[3:] += moment[dof] * (frame @ rest.data.xaxis[joint]) / rest.size
    return pushed
