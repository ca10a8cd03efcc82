"""The report of a model as text, with rich."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from snowflake.inspection.findings import count

_STYLE = {"error": "bold red", "warning": "yellow", "note": "cyan"}
_PIPED_WIDTH = 120
_MAX_ROWS = 60
"""Rows of a table; the rest is counted, and is in the JSON."""


def print_report(report: dict[str, Any], console: Console | None = None) -> None:
    """Print a report of `snowflake.inspection.report.inspect`."""
    if console is None:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = _PIPED_WIDTH
    _head(report, console)
    console.print(_tree(report))
    if report["nodes"]:
        _section(
            console,
            f"graph: {count(len(report['nodes']), 'node')}, {count(len(report['edges']), 'link')}",
            _nodes(report),
        )
    if report["actuators"]:
        _section(console, "actuators", _actuators(report))
    if report["control_map"]:
        _section(console, "actions (controls at -1, 0 and 1)", _control_map(report))
    if report["observation"]:
        title = f"observation: {count(report['observation_size'], 'column')}, feature set {report['feature_set']!r}"
        _section(console, title, _observation(report))
    if report["equality_constraints"]:
        _section(console, "equality constraints", _equalities(report))
    _findings(report, console)


def _section(console: Console, title: str, table: Table) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    console.print(table)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _fill(table: Table, rows: list[list[str]]) -> Table:
    for row in rows[:_MAX_ROWS]:
        table.add_row(*(Text(cell) for cell in row))
    if len(rows) > _MAX_ROWS:
        table.add_row(Text(f"... {len(rows) - _MAX_ROWS} more, see --json", style="dim"))
    return table


def number(value: float) -> str:
    """Return a number in four digits, without trailing zeros."""
    return f"{value:.4g}"


def interval(pair: list[float] | None) -> str:
    """Return `"[low, high]"`, or `"unlimited"`."""
    return "unlimited" if pair is None else f"[{number(pair[0])}, {number(pair[1])}]"


def _head(report: dict[str, Any], console: Console) -> None:
    sizes, robot = report["sizes"], report["robot"]
    console.print(Text.assemble((report["name"], "bold"), f"  (MuJoCo {report['mujoco']})"))
    parts = [count(sizes["bodies"], "body", "bodies"), count(sizes["joints"], "joint")]
    parts.append(count(sizes["degrees_of_freedom"], "degree of freedom", "degrees of freedom"))
    parts += [count(sizes["actuators"], "actuator"), f"{number(sizes['mass'])} kg"]
    parts += [count(sizes[f"{key}s"], key) for key in ("activation", "tendon", "keyframe") if sizes[f"{key}s"]]
    console.print(Text(", ".join(parts)))
    if robot is not None:
        root = ", ".join(f"{j['name']} ({j['type']})" for j in robot["root_joints"])
        if not root:
            root = "fixed to the world" if robot["fixed_base"] else "on driven joints"
        size = f"{count(robot['bodies'], 'body', 'bodies')}, {number(robot['mass'])} kg"
        console.print(Text(f"root: {robot['root_body']!r}, {root}; {size}"))
    if report["timing"] is not None:
        timing = report["timing"]
        rate = f"{number(timing['control_rate'])} Hz: {timing['frame_skip']} x {number(timing['timestep'])} s"
        console.print(Text(f"control at {rate}"))
    console.print()


def _tree(report: dict[str, Any]) -> Tree:
    root = Tree(Text("bodies", style="bold"), guide_style="dim")
    branches = {0: root}
    shown = report["tree"][: 2 * _MAX_ROWS]
    for body in shown:
        joints = ", ".join(f"{j['name']} {j['type']}" + (f" {interval(j['range'])}" if j["range"] else "")
                           for j in body["joints"])  # fmt: skip
        text = Text(body["name"], style="" if body["part"] == "robot" else "dim")
        if body["part"] != "robot":
            text.append(f" <{body['part']}>", style="dim")
        if joints:
            text.append(f"  {joints}", style="blue" if body["part"] == "robot" else "dim")
        parent = branches.get(body["parent"], root)
        branches[body["id"]] = parent.add(text)
    if len(report["tree"]) > len(shown):
        root.add(Text(f"... {len(report['tree']) - len(shown)} more, see --json", style="dim"))
    return root


def _nodes(report: dict[str, Any]) -> Table:
    links: dict[int, list[int]] = {node["node"]: [] for node in report["nodes"]}
    for a, b in report["edges"]:
        links[a].append(b)
        links[b].append(a)
    rows = []
    for node in report["nodes"]:
        body = node["body"] or (report["robot"] or {}).get("root_body", "")
        to = ", ".join(map(str, sorted(links[node["node"]])))
        rows.append([str(node["node"]), node["class"], node["joint"] or "-", body, to])
    return _fill(_table("node", "class", "joint", "body", "linked to"), rows)


def _actuators(report: dict[str, Any]) -> Table:
    rows = []
    for actuator in report["actuators"]:
        drives = ", ".join(actuator["drives"] or ["another tree" if report["robot"] else "-"])
        gear = ", ".join(map(number, actuator["gear"]))
        force = "-" if actuator["force_range"] is None else interval(actuator["force_range"])
        kind = actuator["kind"]
        if actuator["dynamics"] not in ("none", kind):
            kind += f" ({actuator['dynamics']})"
        rows.append([actuator["name"], kind, actuator["transmission"], drives, gear, number(actuator["gain"]), force])
    return _fill(_table("name", "kind", "through", "drives", "gear", "gain", "force range"), rows)


def _control_map(report: dict[str, Any]) -> Table:
    rows = [
        [
            str(row["action"]),
            row["actuator"],
            *(number(row[key]) for key in ("low", "nominal", "high")),
            "declared" if row["declared"] else "model",
        ]
        for row in report["control_map"]
    ]
    return _fill(_table("action", "actuator", "-1", "0", "1", "range from"), rows)


def _observation(report: dict[str, Any]) -> Table:
    rows = []
    for group in report["observation"]:
        names = _runs(group["features"], group["units"])
        rows.append([_ranges(group["columns"]), group["kind"], group["owner"], ", ".join(names)])
    return _fill(_table("columns", "of", "", "features"), rows)


def _runs(features: list[str], units: list[str]) -> list[str]:
    """Return features with their units, `"x_0-2 [m]"` for x_0, x_1 and x_2 of one unit."""
    runs: list[list[Any]] = []
    for feature, unit in zip(features, units, strict=True):
        stem, _, index = feature.rpartition("_")
        whole = index.isdigit() and bool(stem)
        if whole and runs and runs[-1][0] == (stem, unit) and int(index) == runs[-1][2] + 1:
            runs[-1][2] = int(index)
        else:
            number_ = int(index) if whole else None
            runs.append([(stem if whole else feature, unit), number_, number_])
    names = []
    for (stem, unit), first, last in runs:
        name = stem if first is None else f"{stem}_{first}" if first == last else f"{stem}_{first}-{last}"
        names.append(name if unit == "1" else f"{name} [{unit}]")
    return names


def _ranges(columns: list[int]) -> str:
    """Return `"0-3, 7"` for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for column in columns:
        if runs and column == runs[-1][1] + 1:
            runs[-1][1] = column
        else:
            runs.append([column, column])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _equalities(report: dict[str, Any]) -> Table:
    rows = [[row["name"], row["type"], " - ".join(row["between"])] for row in report["equality_constraints"]]
    return _fill(_table("name", "type", "between"), rows)


def _findings(report: dict[str, Any], console: Console) -> None:
    console.print()
    findings, stable = report["findings"], report["stability"]
    if stable is not None and not stable["broken"]:
        console.print(Text(f"stable under random actions: {stable['trials']} trials of {stable['steps']} steps"))
    console.print(Text("findings" if findings else "no findings", style="bold"))
    table = Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        advice = Text(f"\n-> {finding['advice']}", style="dim") if finding["advice"] else Text()
        severity = Text(finding["severity"], style=_STYLE[finding["severity"]])
        table.add_row(severity, Text.assemble(finding["message"], advice))
    console.print(table)
