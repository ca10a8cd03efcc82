"""Measurements as tables, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snowflake.bench.scaling import exponent
from snowflake.bench.step import PARTS

MEANING = {
    "physics": "physics (MuJoCo, in threads)",
    "environment": "observation, reward, resets",
    "inference": "rollout inference",
    "collection": "rollout bookkeeping",
    "advantage": "advantages",
    "preparation": "update: what is constant, once",
    "forward": "update: forward",
    "backward": "update: backward",
    "optimiser": "update: optimiser",
    "minibatches": "update: minibatches, statistics, waiting",
    "statistics": "statistics of observations",
    "logging": "logging",
    "other": "other",
}
"""What a part is, in words."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are flushed right."""
    ruler = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ruler, *rows))


def ranged(value: Mapping[str, float], digits: int = 0, scale: float = 1.0) -> str:
    """Return ``median (min–max)``."""
    median, low, high = (f"{value[name] * scale:,.{digits}f}" for name in ("median", "min", "max"))
    return f"{median} ({low}–{high})"


def parts_table(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return milliseconds and shares of the parts of a step, and the floors: one column a report."""
    head = ["one training step, ms", *(" + ".join(r["agents"]) + f", {r['method']}" for r in reports)]
    rows = []
    for name in PARTS:
        row = [MEANING[name]]
        for report in reports:
            total = sum(part["median"] for part in report["parts"].values())
            seconds = report["parts"][name]["median"]
            row.append(f"{seconds * 1e3:,.1f} ({seconds / total:.1%})")
        rows.append(row)
    rows += [
        ["**whole step, unobserved**", *(f"**{ranged(r['seconds'], 0, 1e3)}**" for r in reports)],
        ["environment steps per second", *(ranged(r["steps_per_second"]) for r in reports)],
        ["floor: MuJoCo alone", *(ranged(r["floors"]["physics"], 0, 1e3) for r in reports)],
        ["floor: the update's GEMMs alone", *(ranged(r["floors"]["gemms"], 0, 1e3) for r in reports)],
        ["GEMMs in an update", *(f"{r['gemm_count']:,} ({r['gemm_gflop']:.1f} Gflop)" for r in reports)],
        ["update / its GEMMs", *(ranged(r["ratios"]["update_to_gemms"], 2) for r in reports)],
        ["physics / MuJoCo alone", *(ranged(r["ratios"]["physics_to_floor"], 2) for r in reports)],
        ["rollout without physics", *(ranged(r["ratios"]["rollout_share"], 1, 100) + " %" for r in reports)],
        ["whole step / both floors", *(ranged(r["ratios"]["whole_to_floors"], 2) for r in reports)],
        ["first step (with compilation), s", *(f"{r['first_step_seconds']:.1f}" for r in reports)],
        ["peak memory, MiB", *(f"{r['memory']['peak'] / 2**20:,.0f}" for r in reports)],
        ["of that in tensors, MiB", *(f"{r['memory']['tensors'] / 2**20:,.0f}" for r in reports)],
    ]
    return table(head, rows)


def baseline_table(bodies: Mapping[str, Any]) -> str:
    """Return steps per second of ours and of the baseline at every number of environments: one row a body."""
    counts = list(next(iter(bodies.values()))["baseline"])
    variants = list(next(iter(bodies.values()))["reports"])
    head = ["environment steps per second", *(f"baseline, {count} environments" for count in counts)]
    for variant in variants:
        head += [variant, "times the best baseline"]
    rows = []
    for body, row in bodies.items():
        cells = [body, *(ranged(row["baseline"][count]) for count in counts)]
        for variant in variants:
            report = row["reports"][variant]
            cells += [ranged(report["steps_per_second"]), ranged(report["times_baseline"], 2)]
        rows.append(cells)
    return table(head, rows)


def scaling_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return cost and memory by body, and under it the exponent of cost against nodes, one line a method."""
    head = ["body", "method", "nodes", "update of one epoch, ms", "one rollout call, ms", "peak memory, MiB"]
    cells = [
        [
            row["body"],
            row["method"],
            str(row["nodes"]),
            ranged(row["update"], 0, 1e3),
            ranged(row["act"], 2, 1e3),
            f"{row['memory']['peak'] / 2**20:,.0f}",
        ]
        for row in rows
    ]
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        nodes = [row["nodes"] for row in own]
        fits = {key: exponent(nodes, [row[key]["median"] for row in own]) for key in ("update", "act")}
        lines.append(f"Exponent, {method}: {fits['update']:.2f} (update), {fits['act']:.2f} (rollout call).")
    return "\n".join([table(head, cells), "", *lines])


def advice_text(advice: Mapping[str, Any]) -> str:
    """Return what `snowflake bench` prints."""
    lines = [parts_table([advice["report"]]), ""]
    names = sorted({name for row in advice["tried"] for name in row["settings"] if _differs(name, advice)})
    rows = []
    for row in sorted(advice["tried"], key=lambda row: _speed(row["steps_per_second"]), reverse=True):
        value = row["steps_per_second"]
        speed = value if isinstance(value, str) else f"{value:,.0f}"
        rows.append([speed, *(str(row["settings"][name]) for name in names)])
    lines += [table(["environment steps per second", *names], rows), ""]
    if advice["skipped"]:
        lines += [f"{len(advice['skipped'])} more settings were not tried for lack of time: --seconds gives more.", ""]
    lines += [f"fastest here, {advice['steps_per_second']:,.0f} environment steps per second:", ""]
    return "\n".join([*lines, f"    {advice['command']}"])


def _differs(name: str, advice: Mapping[str, Any]) -> bool:
    return len({str(row["settings"][name]) for row in advice["tried"]}) > 1


def _speed(value: float | str) -> float:
    return 0.0 if isinstance(value, str) else value
