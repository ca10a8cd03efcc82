"""What is odd about a compiled model, in words of its file, with how bad it is and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import mujoco
import numpy as np

from agents.errors import UserError
from envs.robot import Robot, display_name, find_robot
from snowflake.inspection.elements import actuator_name, body_name, equalities, joint_name, joint_type

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
"""How bad: it cannot be trained; it may train worse than it should; good to know."""

_SLACK = 1e-6  # rad or m, beyond a limit
_DEPTH = 0.01  # m, of a contact at the reset pose
_ABSURD = 1e6  # rad, m, N or N m; of a limit
_SHOWN = 4


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing about a model.

    Attributes:
        severity: `ERROR`, `WARNING` or `NOTE`.
        code: stable key for scripts, e.g. `"reset-outside-limits"`.
        message: what was found, with the elements' names.
        advice: what to do, `""` if nothing.
        elements: names of all the elements concerned; the message names the first few.
    """

    severity: str
    code: str
    message: str
    advice: str = ""
    elements: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the fields as plain data."""
        return {**asdict(self), "elements": list(self.elements)}


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def count(number: int, one: str, many: str = "") -> str:
    """Return `"1 body"` or `"3 bodies"`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def find_problems(model: mujoco.MjModel, root_body: str | None = None, name: str = "") -> list[Finding]:
    """Look a model over, without simulating it.

    Args:
        model: any compiled model.
        root_body: top body of the robot, where the model has several; see `envs.robot.find_robot`.
        name: what to call the model in messages.

    Returns:
        The findings, the gravest first.
    """
    robot, refusal = None, ""
    try:
        robot = find_robot(model, root_body, name)
    except UserError as error:
        refusal = str(error)
    found = [*_refusal(model, refusal), *_poses(model), *_controls(model)]
    found += [*_ranges(model), *_keyframe_controls(model)]
    found += [*_scene(model, robot), *_parts(model, robot), *_constraints(model)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def _refusal(model: mujoco.MjModel, refusal: str) -> Iterator[Finding]:
    if not refusal:
        return
    if model.nu:
        yield Finding(ERROR, "refused", refusal)
        return
    advice = "add an <actuator> section; MuJoCo makes none from a URDF: save it as MJCF first (mujoco.mj_saveLastXML)"
    yield Finding(ERROR, "no-actuators", "there is no actuator, so there is nothing to control", advice)


# --- poses ------------------------------------------------------------------------------------------------------


def outside_limits(model: mujoco.MjModel, qpos: np.ndarray) -> list[tuple[int, float]]:
    """Return the limited joints whose position lies outside their range, and by how much [rad or m]."""
    found = []
    for joint in np.flatnonzero(model.jnt_limited).tolist():
        low, high = model.jnt_range[joint]
        kind, address = joint_type(model, joint), int(model.jnt_qposadr[joint])
        if kind in ("hinge", "slide"):
            value = qpos[address]
        elif kind == "ball":
            quaternion = qpos[address : address + 4]
            value = 2 * np.arctan2(np.linalg.norm(quaternion[1:]), abs(quaternion[0]))
            low = -np.inf
        else:
            continue
        excess = max(low - value, value - high)
        if excess > _SLACK:
            found.append((joint, float(excess)))
    return found


def _poses(model: mujoco.MjModel) -> Iterator[Finding]:
    if outside := outside_limits(model, model.qpos0):
        yield _limits(model, outside, WARNING, "reset-outside-limits", "the reset pose (qpos0)")
    by_key = {key: outside_limits(model, model.key_qpos[key]) for key in range(model.nkey)}
    keys = [key for key, outside in by_key.items() if outside]
    if keys:
        farthest: dict[int, float] = {}
        for joint, excess in (pair for key in keys for pair in by_key[key]):
            farthest[joint] = max(excess, farthest.get(joint, 0.0))
        yield _limits(model, sorted(farthest.items()), WARNING, "keyframe-outside-limits", _key_names(model, keys))
    if depth := _penetration(model):
        yield Finding(
            NOTE,
            "reset-penetrates",
            f"at the reset pose bodies are {depth:.3g} m inside each other or the ground",
            "raise the root, or exclude the contact: the first steps push them apart with force",
        )


def _limits(model: mujoco.MjModel, outside: list[tuple[int, float]], severity: str, code: str, pose: str) -> Finding:
    names = tuple(joint_name(model, joint) for joint, _ in outside)
    joint, excess = max(outside, key=lambda pair: pair[1])
    unit = "m" if joint_type(model, joint) == "slide" else "rad"
    message = f"outside their limits at {pose}: {count(len(names), 'joint')}, {listed(names)} "
    message += f"(most: {joint_name(model, joint)!r}, by {excess:.3g} {unit})"
    return Finding(severity, code, message, "the locomotion task clips its start states into the limits", names)


def _penetration(model: mujoco.MjModel) -> float:
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    depth = -min((float(distance) for distance in data.contact.dist), default=0.0)
    return depth if depth > _DEPTH else 0.0


# --- controls ---------------------------------------------------------------------------------------------------


def _control_names(model: mujoco.MjModel, controls: np.ndarray | Sequence[int]) -> tuple[str, ...]:
    names = []
    for control in controls:
        after = np.flatnonzero((model.actuator_ctrladr <= control) & (model.actuator_ctrlnum > 0))
        actuator = int(after[-1])
        part = int(control) - int(model.actuator_ctrladr[actuator])
        names.append(actuator_name(model, actuator) + (f"[{part}]" if model.actuator_ctrlnum[actuator] > 1 else ""))
    return tuple(names)


def _controls(model: mujoco.MjModel) -> Iterator[Finding]:
    limited = model.actuator_ctrllimited != 0
    low, high = model.actuator_ctrlrange.T
    if names := _control_names(model, np.flatnonzero(limited & ((low > 0) | (high < 0)))):
        yield Finding(
            NOTE,
            "zero-outside-control-range",
            f"0 lies outside the range of {count(len(names), 'control')}: {listed(names)}",
            "action 0 is the keyframe's control there, or the middle of the range",
            names,
        )
    if names := _control_names(model, np.flatnonzero(~limited)):
        yield Finding(
            WARNING,
            "unlimited-controls",
            f"{count(len(names), 'control')} without a range: {listed(names)}",
            "the ends of the action are declared for them (see the actions): better give the ctrlrange of the hardware",
            names,
        )
    if names := _control_names(model, np.flatnonzero(limited & (low >= high))):
        yield Finding(WARNING, "empty-control-range", f"the control range is empty: {listed(names)}",
                      "these controls stay constant", names)  # fmt: skip
    several = np.flatnonzero(model.actuator_ctrlnum > 1)
    if names := tuple(actuator_name(model, actuator) for actuator in several):
        yield Finding(NOTE, "several-controls", f"{count(len(names), 'actuator')} with several controls: "
                      f"{listed(names)}", "each control is an action of its own", names)  # fmt: skip


def _ranges(model: mujoco.MjModel) -> Iterator[Finding]:
    """Ranges that no robot has: a placeholder for "none", which leaves the controls without a useful unit."""
    controls = (model.actuator_ctrllimited != 0) & _absurd(model.actuator_ctrlrange)
    joints = (model.jnt_limited != 0) & _absurd(model.jnt_range)
    forces = (model.actuator_forcelimited != 0) & _absurd(model.actuator_forcerange)
    for what, names, effect in (
        ("control", _control_names(model, np.flatnonzero(controls)), "an action of 1 asks for that much"),
        (
            "joint",
            tuple(joint_name(model, joint) for joint in np.flatnonzero(joints).tolist()),
            "the limit never holds",
        ),
        ("force", tuple(actuator_name(model, a) for a in np.flatnonzero(forces)), "the limit never holds"),
    ):
        if names:
            message = f"{what} ranges beyond {_ABSURD:g}: {listed(names)}"
            yield Finding(WARNING, "absurd-range", message, f"{effect}: give the range of the hardware", names)


def _absurd(ranges: np.ndarray) -> np.ndarray:
    return ~np.isfinite(ranges).all(axis=1) | (np.abs(ranges).max(axis=1, initial=0.0) > _ABSURD)


def _keyframe_controls(model: mujoco.MjModel) -> Iterator[Finding]:
    low, high = model.actuator_ctrlrange.T
    outside = (model.key_ctrl < low - _SLACK) | (model.key_ctrl > high + _SLACK)
    outside &= model.actuator_ctrllimited != 0
    if names := _control_names(model, np.flatnonzero(outside.any(axis=0))):
        keys = np.flatnonzero(outside.any(axis=1)).tolist()
        message = f"outside their range at {_key_names(model, keys)}: {count(len(names), 'control')}, {listed(names)}"
        advice = "action 0 is the middle of the range there"
        yield Finding(NOTE, "keyframe-control-outside-range", message, advice, names)


def _key_names(model: mujoco.MjModel, keys: Sequence[int]) -> str:
    names = [display_name(model, mujoco.mjtObj.mjOBJ_KEY, key) for key in keys]
    return f"keyframe{'s' if len(keys) > 1 else ''} {listed(names)}"


# --- parts ------------------------------------------------------------------------------------------------------


def _scene(model: mujoco.MjModel, robot: Robot | None) -> Iterator[Finding]:
    if robot is None:
        return
    free = any(joint_type(model, joint) == "free" for joint in robot.root_joints)
    collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    ground = collides & (model.body_weldid[model.geom_bodyid] == 0)
    if free and not ground.any() and np.linalg.norm(model.opt.gravity) > 0:
        yield Finding(
            NOTE,
            "no-ground",
            "the robot has a free root and the file has no ground to stand on",
            "the locomotion task adds a level floor; or give the scene file that includes the robot",
        )
    own = np.flatnonzero(model.jnt_bodyid == robot.root_body).tolist()
    if not any(joint_type(model, joint) in ("free", "slide") for joint in own):
        base = f"the base {body_name(model, robot.root_body)!r} "
        where = f"turns on {listed([joint_name(model, joint) for joint in own])} in one place" if own else "is fixed"
        yield Finding(NOTE, "fixed-base", f"{base}{where + ('' if own else ' to the world')}",
                      "there is no height, no fall and no travel: give the task other weights")  # fmt: skip


def _parts(model: mujoco.MjModel, robot: Robot | None) -> Iterator[Finding]:
    if robot is None:
        return
    tops = np.unique(model.body_rootid[1:])
    moving = [top for top in tops if np.any(model.body_weldid[model.body_rootid == top])]
    mocap = [top for top in tops if model.body_mocapid[top] >= 0]
    others = [int(top) for top in moving if top != robot.root_body and top not in mocap]
    if names := tuple(body_name(model, top) for top in others):
        yield Finding(NOTE, "passive-trees", f"{count(len(names), 'tree')} that the robot's actuators do not move: "
                      f"{listed(names)}", "they are simulated, and no part of the graph", names)  # fmt: skip
    if names := tuple(body_name(model, top) for top in mocap):
        yield Finding(NOTE, "mocap-bodies", f"{count(len(names), 'mocap body', 'mocap bodies')}: {listed(names)}",
                      "they stay where the file puts them", names)  # fmt: skip
    driven = {joint for attached in robot.attachments for joint in attached}
    passive = [joint for joint in robot.node_joints.tolist() if joint not in driven]
    if names := tuple(joint_name(model, joint) for joint in passive):
        yield Finding(NOTE, "unactuated-joints", f"{count(len(names), 'joint')} without an actuator: {listed(names)}",
                      "they are nodes without an output", names)  # fmt: skip
    foreign = model.nu - len(robot.controls)
    if foreign:
        yield Finding(NOTE, "other-controls", f"{count(foreign, 'control')} of other trees stay at their nominal value")


def _constraints(model: mujoco.MjModel) -> Iterator[Finding]:
    rows = equalities(model)
    if rows:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(row["type"] for row in rows).items()))
        closes = any(row["type"] in ("connect", "weld") for row in rows)
        what = "they may close loops of bodies" if closes else "they couple joints or tendons"
        yield Finding(NOTE, "equality-constraints", f"{count(len(rows), 'equality constraint')} ({kinds}): {what}",
                      "edges for them can be switched on; the tree's edges are there in any case",
                      tuple(str(row["name"]) for row in rows))  # fmt: skip
