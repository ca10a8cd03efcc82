"""A morphology graph as a picture: a tidy tree, root on the left, beside a rendering of the robot."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from agents.errors import UserError
from envs.robot import Robot
from snowflake.files import replacing
from snowflake.inspection.findings import NOTE, Finding, count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {
    "root": "#222222",
    "hinge_actuated": "#0b5fa5",
    "hinge_passive": "#a9cbe6",
    "slide_actuated": "#2a8c4a",
    "slide_passive": "#b0dcbd",
    "ball_actuated": "#b3541e",
    "ball_passive": "#ecc3a4",
    "other": "#8c8c8c",
}
"""Colour of a node by its class: dark if it has an actuator."""

EQUALITY = "#c2185b"
"""Colour of the links that equality constraints add."""

_MORE_COLORS = ("#b8860b", "#7a4fa3", "#c0392b", "#16888f", "#8a6d5b", "#566573")  # classes that a generator supplies
_ROW, _COLUMN = 0.27, 1.35  # inches between leaves, and between depths with names
_NARROW = 0.3  # inches between depths without names
_MAX_NAMED = 130  # nodes
_WIDEST = 24.0  # inches of named nodes
_LETTER = 0.068  # inches
_LEAF_LETTERS = 24
_PICTURE = (900, 900)


def tidy_tree(num_nodes: int, edges: list[list[int]]) -> tuple[np.ndarray, list[list[int]]]:
    """Lay a graph out as a tree from node 0: leaves in rows of their own, parents in the middle of their children.

    Args:
        num_nodes: V.
        edges: links, each once.

    Returns:
        Depth and row of every node, (V, 2) float64, and the links that are no part of the tree (they close loops).
        Nodes that node 0 does not reach start trees of their own below.
    """
    neighbours: list[list[int]] = [[] for _ in range(num_nodes)]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    position = np.full((num_nodes, 2), -1.0)
    children: list[list[int]] = [[] for _ in range(num_nodes)]
    tree: set[tuple[int, int]] = set()
    row = 0
    for start in range(num_nodes):
        if position[start, 0] >= 0:
            continue
        position[start, 0] = 0
        order, queue = [], deque([start])
        while queue:
            node = queue.popleft()
            order.append(node)
            for other in sorted(neighbours[node]):
                if position[other, 0] < 0:
                    position[other, 0] = position[node, 0] + 1
                    children[node].append(other)
                    tree.add((min(node, other), max(node, other)))
                    queue.append(other)
        row = _place_rows(start, children, position, row, order)
    loops = [edge for edge in edges if (min(edge), max(edge)) not in tree and edge[0] != edge[1]]
    return position, loops


def _place_rows(start: int, children: list[list[int]], position: np.ndarray, row: int, order: list[int]) -> int:
    stack = [start]
    while stack:  # depth first, so that a subtree's leaves lie together
        node = stack.pop()
        if children[node]:
            stack.extend(reversed(children[node]))
        else:
            position[node, 1] = row
            row += 1
    for node in reversed(order):
        if children[node]:
            position[node, 1] = position[children[node], 1].mean()
    return row


def write_drawing(
    path: Path, model: mujoco.MjModel, report: dict[str, Any], robot: Robot | None, *, with_rendering: bool = True
) -> Finding | None:
    """Draw the graph of a report into a PNG, with a picture of the robot where OpenGL works.

    Args:
        path: the PNG.
        model: the compiled model.
        report: with `nodes`, `edges`, `equality_edges` (drawn dashed: they are there if switched on), `actuators`.
        robot: what to look at.
        with_rendering: whether to try to draw the robot.

    Returns:
        A finding that says why there is no picture of the robot, `None` if there is one or none was wanted.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture, note = None, None
    if with_rendering:
        try:
            picture = robot_picture(model, robot)
        except UserError as error:
            note = Finding(NOTE, "no-rendering", f"the drawing has no picture of the robot: {error}")
    position, loops = tidy_tree(len(report["nodes"]), report["edges"])
    named = len(report["nodes"]) <= _MAX_NAMED
    depth, rows = position.max(axis=0)
    column = min(_COLUMN, _WIDEST / (depth + 1)) if named else _NARROW
    width = max(4.0, (depth + 1) * column + 0.4)
    height = float(np.clip((rows + 1) * (_ROW if named else 0.16) + 1.2, 4.2, 40))
    side = min(height, 6.0) if picture is not None else 0.0
    figure = Figure(figsize=(width + side, height), layout="constrained")
    FigureCanvasAgg(figure)
    if picture is None:
        axes = figure.subplots()
    else:
        axes, right = figure.subplots(1, 2, width_ratios=(width, side))
        right.imshow(picture)
        right.axis("off")
    _draw_graph(axes, report, position, loops, round(column / _LETTER) if named else 0)
    # A chain of hundreds of joints would make a picture that nothing opens.
    dpi = min(130.0, 12_000 / (width + side))
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=dpi)
    return note


def robot_picture(model: mujoco.MjModel, robot: Robot | None) -> np.ndarray:
    """Return a picture of the robot in its reset pose, (900, 900, 3) uint8.

    Raises:
        UserError: nothing can be drawn here.
    """
    from snowflake.rendering import SceneRenderer

    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    with SceneRenderer(model, *_PICTURE, bodies=None if robot is None else robot.bodies) as renderer:
        return renderer.draw(data)


def _draw_graph(axes: Axes, report: dict[str, Any], position: np.ndarray, loops: list[list[int]], letters: int) -> None:
    """Draw nodes and links; names of at most so many letters, 0 for none."""
    nodes, looping = report["nodes"], {tuple(edge) for edge in loops}
    for edge in report["edges"]:
        (x0, y0), (x1, y1) = position[edge[0]], position[edge[1]]
        if tuple(edge) in looping:
            arc = {"arrowstyle": "-", "linestyle": "--", "color": "#c0392b", "connectionstyle": "arc3,rad=0.25"}
            axes.annotate("", (x0, y0), (x1, y1), arrowprops=arc, zorder=1)
        else:
            axes.plot([x0, x1], [y0, y1], color="#b5b5b5", linewidth=1.2, zorder=1)
    for first, second in report["equality_edges"]:
        arc = {"arrowstyle": "-", "linestyle": "--", "color": EQUALITY, "connectionstyle": "arc3,rad=-0.2"}
        (x0, y0), (x1, y1) = position[first], position[second]
        axes.annotate("", (x0, y0), (x1, y1), arrowprops=arc, zorder=1)
    if report["equality_edges"]:
        label = f"equality constraint ({len(report['equality_edges'])})"
        axes.plot([], [], linestyle="--", color=EQUALITY, label=label)
    classes = [node["class"] for node in nodes]
    more = [kind for kind in dict.fromkeys(classes) if kind not in COLORS]
    colors = COLORS | {kind: _MORE_COLORS[i % len(_MORE_COLORS)] for i, kind in enumerate(more)}
    for kind in dict.fromkeys(classes):
        these = np.array([c == kind for c in classes])
        size = 46 if letters else 12
        axes.scatter(*position[these].T, s=size, color=colors[kind], label=f"{kind} ({these.sum()})", zorder=2)
    if letters:
        parents = {min(edge) for edge in report["edges"]} | {0}
        for index, node in enumerate(nodes):
            text = node["joint"] or (report["robot"] or {}).get("root_body") or "root"
            inner = index in parents and len(nodes) > 1
            room = letters if inner else max(letters, _LEAF_LETTERS)
            text = text if len(text) <= room else text[: room - 1] + "…"
            place: dict[str, Any] = {"ha": "center", "va": "bottom"} if inner else {"ha": "left", "va": "center"}
            offset = (0, 5.5) if inner else (6, 0)
            axes.annotate(text, position[index], offset, textcoords="offset points", fontsize=6.5, zorder=3, **place)
    depth, rows = position.max(axis=0)
    axes.set_xlim(-0.5, depth + (1.0 if letters else 0.5))
    axes.set_ylim(rows + 0.8, -0.8)
    axes.set_title(f"{report['name']}: {count(len(nodes), 'node')}, {count(len(report['edges']), 'link')}", fontsize=10)
    axes.axis("off")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.09), ncols=3, fontsize=7, frameon=False)
