"""The report of a model: everything that `snowflake inspect` shows, as plain data that goes into JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mujoco

import agents
from agents import Morphology, UserError
from agents.files import FileError
from envs import LocomotionVectorEnv
from envs.physics import route_mujoco_warnings
from envs.robot import Robot, find_robot
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.graph.edges import equality_links
from snowflake.inspection import elements
from snowflake.inspection.drawing import write_drawing
from snowflake.inspection.findings import ERROR, SEVERITIES, Finding, find_problems
from snowflake.inspection.stability import TRIALS, check_stability

SEED = 0
"""Seed of the start states and of the random actions."""


def inspect(
    name: str, *, root_body: str | None = None, steps: int = 200, output: Path | None = None, rendering: bool = True
) -> dict[str, Any]:
    """Compile a body and report on it. Run it in a process of its own: a broken file may take the process down.

    Args:
        name: path of a model, or name of a ready-made body.
        root_body: top body of the robot, where the model has several.
        steps: control steps of random actions, 0 for none.
        output: folder for the drawing, NAME.png; `None` draws nothing.
        rendering: put a picture of the robot into the drawing, where OpenGL works.

    Returns:
        The report: `name`, `status` (`"graph"`, `"no actuators"` or `"refused"`), `sizes`, `tree`, `robot`,
        `nodes`, `edges`, `equality_edges`, `actuators`, `observation`, `control_map`, `equality_constraints`,
        `timing`, `stability`, `findings`, `drawing`; what needs a graph is empty without one.

    Raises:
        UserError: the body is unknown, or the file is no model.
    """
    route_mujoco_warnings()
    morphology, model = _load(name, root_body)
    label = Path(name).stem if morphology is None else morphology.name
    findings = find_problems(model, root_body, label)
    robot, env, graph = None, None, None
    try:
        robot = find_robot(model, root_body, label)
        assert morphology is not None  # without actuators there is no robot either
        task = None if morphology.task else "locomotion"
        env = LocomotionVectorEnv(morphology, TRIALS, task=task, root_body=root_body, num_threads=1)
        classes = morphology.node_class(model)
        graph = build_graph(env.model, env.layout, classes, morphology.name, robot=env.robot)
    except UserError as error:
        if not any(finding.severity == ERROR for finding in findings):
            findings.insert(0, Finding(ERROR, "refused", str(error)))
    report = _parts(label, model, robot)
    if graph is not None and env is not None:
        report |= _graph(model, graph, env.robot) | _interface(env, graph)
    report["stability"] = None
    if env is not None and steps:
        report["stability"], unstable = check_stability(env, steps, SEED)
        findings += unstable
    report["drawing"] = None
    if output is not None and env is not None and graph is not None:
        drawing = output / f"{label}.png"
        output.mkdir(parents=True, exist_ok=True)
        report["drawing"] = str(drawing)
        if note := write_drawing(drawing, env.model, report, robot, with_rendering=rendering):
            findings.append(note)
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    report["findings"] = [finding.to_dict() for finding in findings]
    report["status"] = "graph" if graph is not None else "refused" if model.nu else "no actuators"
    if env is not None:
        env.close()
    return report


def _load(name: str, root_body: str | None) -> tuple[Morphology | None, mujoco.MjModel]:
    """Return a body and its model; the model alone of a file without actuators, which is no body to train."""
    try:
        morphology = agents.load(name, root_body)
    except FileError as error:
        if error.kind != "no actuators":
            raise
        return None, mujoco.MjModel.from_xml_path(os.path.expanduser(name))
    return morphology, morphology.compile()


def _parts(label: str, model: mujoco.MjModel, robot: Robot | None) -> dict[str, Any]:
    """Return what needs the compiled model only."""
    found = None
    if robot is not None:
        found = {
            "root_body": elements.body_name(model, robot.root_body),
            "root_joints": [elements.joint(model, joint) for joint in robot.root_joints.tolist()],
            "fixed_base": not len(robot.root_joints) and model.body_jntnum[robot.root_body] == 0,
            "bodies": len(robot.bodies),
            "mass": float(model.body_subtreemass[robot.root_body]),
        }
        found["fixed_base"] = bool(found["fixed_base"])
    return {
        "name": label,
        "mujoco": mujoco.__version__,
        "sizes": elements.sizes(model),
        "robot": found,
        "tree": elements.tree(model, robot),
        "actuators": elements.actuators(model, robot),
        "equality_constraints": elements.equalities(model),
        "nodes": [],
        "edges": [],
        "equality_edges": [],
        "observation": [],
        "control_map": [],
        "timing": None,
    }


def _graph(model: mujoco.MjModel, graph: MorphologyGraph, robot: Robot) -> dict[str, Any]:
    """Return nodes and edges; every link once, the two nodes in ascending order.

    `equality_edges` are those that the setting policy.equality_edges adds.
    """
    nodes = []
    for node, (kind, joint) in enumerate(zip(graph.node_class.tolist(), graph.joint_id.tolist(), strict=True)):
        row = {"node": node, "class": graph.vocabulary[kind], "joint": None, "body": None}
        if joint >= 0:
            row["joint"] = elements.joint_name(model, joint)
            row["body"] = elements.body_name(model, int(model.jnt_bodyid[joint]))
        nodes.append(row)
    edges = sorted({(min(a, b), max(a, b)) for a, b in graph.edge_index.T.tolist()})
    more = sorted(equality_links(model, robot) - set(edges)) if graph.feature_set == "general" else []
    return {
        "nodes": nodes,
        "edges": [list(edge) for edge in edges],
        "equality_edges": [list(edge) for edge in more],
        "feature_set": graph.feature_set,
    }


def _interface(env: LocomotionVectorEnv, graph: MorphologyGraph) -> dict[str, Any]:
    """Return the observation by owner, the control map, and the timing."""
    layout = env.layout
    groups: dict[tuple[int, int], dict[str, Any]] = {}
    for column in range(layout.size):
        key = (int(layout.owner_kind[column]), int(layout.owner_id[column]))
        owner = layout.names[column].partition("(")[2].rstrip(")") or layout.names[column]
        kind = _OWNERS[key[0]] if key[0] < len(_OWNERS) else str(key[0])
        row = groups.setdefault(key, {"owner": owner, "kind": kind, "columns": [], "features": [], "units": []})
        row["columns"].append(column)
        row["features"].append(layout.features[column])
        row["units"].append(layout.units[column])
    return {
        "observation": list(groups.values()),
        "observation_size": layout.size,
        "control_map": control_map(env),
        "timing": {
            "timestep": float(env.model.opt.timestep),
            "frame_skip": round(env.dt / env.model.opt.timestep),
            "dt": float(env.dt),
            "control_rate": 1.0 / float(env.dt),
        },
    }


_OWNERS = ("world", "joint", "body", "root", "actuator")


def control_map(env: LocomotionVectorEnv) -> list[dict[str, Any]]:
    """Return for every action the actuator that it reaches, and the controls that -1, 0 and 1 become.

    `declared` says that the range is not the model's, see `envs.actions.ControlMap`.
    """
    ends = env.control_map
    rows = []
    robot = env.robot
    for action, (control, actuator) in enumerate(zip(robot.controls.tolist(), robot.actuators.tolist(), strict=True)):
        rows.append(
            {
                "action": action,
                "control": control,
                "actuator": elements.actuator_name(env.model, actuator),
                "low": float(ends.low[action]),
                "nominal": float(ends.nominal[action]),
                "high": float(ends.high[action]),
                "declared": bool(ends.declared[action]),
                "drives": elements.attachment_names(env.model, robot.attachments[action]),
            }
        )
    return rows
