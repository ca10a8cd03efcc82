"""Plain run folders in the form of a study's rows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from agents.errors import UserError
from snowflake.config import TrainConfig
from snowflake.config.loader import load
from snowflake.evaluation.curves import read_curves
from snowflake.report.rows import FORMAT, Row, row_of

NO_VARIANT = ("agents", "seed", "device", "torch_threads", "method", "env.num_threads", "ppo.diagnostics_every")
"""Settings that make no variant of their own: they name it already, each seed has another, or they train no other way.
So do those of the section ``evaluation``."""


def rows_of_runs(folders: list[Path]) -> list[Row]:
    """Read run folders; a run's variant is its method, and the settings in which runs of it on the same bodies differ.

    Args:
        folders: Run folders.

    Raises:
        UserError: A folder is incomplete or damaged.
    """
    configs = [load(folder / "config.yaml") for folder in folders]
    flat = [_flat(config) for config in configs]
    rows = []
    for folder, config, own in zip(folders, configs, flat, strict=True):
        same = [(c.method, c.agents) == (config.method, config.agents) for c in configs]
        peers = [other for other, is_peer in zip(flat, same, strict=True) if is_peer]
        differs = [key for key in own if any(other[key] != own[key] for other in peers)]
        name = ", ".join([config.method, *(f"{key.split('.')[-1]} {_text(own[key])}" for key in differs)])
        rows.append(row_of(_values(folder, config, name), folder))
    return rows


def _flat(config: TrainConfig) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in dataclasses.asdict(config).items():
        flat |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return {k: v for k, v in flat.items() if k not in NO_VARIANT and not k.startswith("evaluation.")}


def _text(value: Any) -> str:
    return "+".join(map(str, value)) or "none" if isinstance(value, tuple | list) else str(value)


def _values(folder: Path, config: TrainConfig, variant: str) -> dict[str, Any]:
    """The JSON form of a row."""
    curves = read_curves(folder, None)
    evaluation, transfer = _read(folder / "evaluation.json"), _read(folder / "transfer.json")
    counts = {
        name: int(curves[f"snowflake/{name}_parameters"].values[-1])
        for name in ("trainable", "frozen")
        if f"snowflake/{name}_parameters" in curves
    }
    command = (folder / "command.txt").read_text().strip() if (folder / "command.txt").is_file() else ""
    measured = [m for m in (evaluation, transfer) if m is not None]
    commands = [command, *(m["provenance"]["command"] for m in measured)]
    last = max((int(c.steps[-1]) for c in curves.values()), default=0)
    own = next((m for m in measured if set(config.agents) <= _trained(m)), None)  # a transfer plays the own bodies too
    return {
        "format": FORMAT,
        "study": None,
        "variant": variant,
        "agents": list(config.agents),
        "seed": config.seed,
        "total_timesteps": last,
        "parameters": {"trainable": counts["trainable"], "total": sum(counts.values())} if len(counts) == 2 else {},
        "nodes": {name: _nodes(folder, name) for name in config.agents},
        "curves": {tag: {"steps": c.steps.tolist(), "values": c.values.tolist()} for tag, c in curves.items()},
        "final": None if own is None else _measurement(own, zero_shot=False),
        "transfer": None if transfer is None else _measurement(transfer, zero_shot=True),
        "commands": [c for c in commands if c],
        "versions": _read(folder / "versions.json") or {},
        "hardware": own["provenance"]["hardware"] if own else {},
    }


def _measurement(result: dict[str, Any], *, zero_shot: bool) -> dict[str, Any]:
    bodies = [
        {
            "morphology": body["morphology"],
            "policies": {
                way: {
                    "returns": w["episodes"]["returns"],
                    "distance": w["episodes"]["distance"],
                    "falls": w["falls"],
                }
                for way, w in body["policies"].items()
            },
        }
        for body in result["bodies"]
        if body["zero_shot"] == zero_shot
    ]
    return {"checkpoint": result["checkpoint"], "step": result["trained_steps"], "bodies": bodies}


def _trained(result: dict[str, Any]) -> set[str]:
    return {body["morphology"] for body in result["bodies"] if not body["zero_shot"]}


def _nodes(folder: Path, body: str) -> int:
    path = folder / "bodies" / f"{body}.graph.json"
    try:
        graph = json.loads(path.read_text(encoding="utf-8"))
        graph = json.loads(graph) if isinstance(graph, str) else graph  # early runs hold the JSON as a JSON string
        return len(graph["node_type"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"run folder {folder} is damaged: {path.name} cannot be read ({error}); leave it out"
        ) from error


def _read(path: Path) -> dict[str, Any] | None:
    """The JSON object of a file; None where there is no file."""
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("it does not hold an object")
        return values
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; write it again") from error
