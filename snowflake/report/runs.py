"""Plain run folders in the form of a study's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.errors import UserError
from snowflake.body_files import ADVICE
from snowflake.config import TrainConfig, loader
from snowflake.evaluation.curves import read_curves
from snowflake.files import read_text
from snowflake.json_files import Entry, read_entry
from snowflake.report.rows import FORMAT, WAYS, Row, row_of

NO_VARIANT = ("agents", "seed", "device", "torch_threads", "method", "env.num_threads")
NO_VARIANT += ("ppo.diagnostics_every", "ppo.activations_every")
"""Settings that make no variant of their own: they name it already, each seed has another, or they train no other way.
So do those of the section ``evaluation``."""


def rows_of_runs(folders: list[Path]) -> list[Row]:
    """Read run folders; a run's variant is its method, and the settings in which runs of it on the same bodies differ.

    Args:
        folders: Run folders.

    Raises:
        UserError: A folder is incomplete or damaged.
    """
    configs = [loader.load(folder / "config.yaml") for folder in folders]
    flat = [_flat(config) for config in configs]
    rows = []
    for folder, config, own in zip(folders, configs, flat, strict=True):
        same = [(c.method, c.agents) == (config.method, config.agents) for c in configs]
        peers = [other for other, is_peer in zip(flat, same, strict=True) if is_peer]
        differs = [key for key in own if any(other[key] != own[key] for other in peers)]
        name = ", ".join([config.method, *(f"{key.split('.')[-1]} {_text(own[key])}" for key in differs)])
        rows.append(row_of(Entry(_values(folder, config, name), folder, "evaluate the run again")))
    return rows


def _flat(config: TrainConfig) -> dict[str, Any]:
    return {k: v for k, v in loader.flat(config).items() if k not in NO_VARIANT and not k.startswith("evaluation.")}


def _text(value: Any) -> str:
    return "+".join(map(str, value)) or "none" if isinstance(value, tuple | list) else str(value)


def _values(folder: Path, config: TrainConfig, variant: str) -> dict[str, Any]:
    """The JSON form of a row."""
    curves = read_curves(folder, None)
    evaluation, transfer = _result(folder, "evaluation"), _result(folder, "transfer")
    counts = {
        name: int(curves[f"snowflake/{name}_parameters"].values[-1])
        for name in ("trainable", "frozen")
        if f"snowflake/{name}_parameters" in curves
    }
    measured = [m for m in (evaluation, transfer) if m is not None]
    commands = [_command(folder), *(m.command for m in measured)]
    last = max((int(c.steps[-1]) for c in curves.values()), default=0)
    own = next(
        (m for m in measured if set(config.agents) <= set(m.bodies)), None
    )  # a transfer plays the own bodies too
    versions = folder / "versions.json"
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
        "final": None if own is None else own.measurement(config.agents),
        "transfer": None
        if transfer is None
        else {
            **transfer.measurement([b for b in transfer.bodies if b not in config.agents]),
            "mlp_mapped": config.policy.network == "mlp",
        },
        "commands": [c for c in commands if c],
        "versions": read_entry(versions, ADVICE).object() if versions.exists() else {},
        "hardware": own.hardware if own else {},
    }


@dataclass(frozen=True)
class _Result:
    """What `evaluation.json` or `transfer.json` holds, checked.

    Attributes:
        checkpoint: Which checkpoint.
        step: Environment steps behind it.
        bodies: Episodes by body and way to act.
        command: Command line that made it.
        hardware: Processor and so on.
    """

    checkpoint: str
    step: int
    bodies: dict[str, dict[str, Any]]
    command: str
    hardware: dict[str, Any]

    def measurement(self, names: Sequence[str]) -> dict[str, Any]:
        """Some bodies in the form of a row."""
        bodies = [{"morphology": name, "policies": self.bodies[name]} for name in names]
        return {"checkpoint": self.checkpoint, "step": self.step, "bodies": bodies}


def _result(folder: Path, kind: str) -> _Result | None:
    """Read the result of a kind; None where there is none."""
    file = folder / f"{kind}.json"
    if not file.exists():
        return None
    entry = read_entry(file, f"delete it, or write it again with snowflake {kind.replace('evaluation', 'evaluate')}")
    if (found := entry["kind"].text()) != kind:
        raise entry.error(f"'kind' must be {kind!r}, it is {found!r}")
    bodies = {}
    for body in entry["bodies"]:
        ways = {}
        for way, measured in body["policies"].entries().items():
            episodes = measured["episodes"]
            returns, distance = episodes["returns"].numbers(), episodes["distance"].numbers()
            if not len(returns) or len(returns) != len(distance):
                raise episodes.error(f"returns and distances of {episodes.where!r} do not pair up")
            falls = measured["falls"].count(at_most=len(returns))
            ways[way] = {"returns": returns.tolist(), "distance": distance.tolist(), "falls": falls}
        if missing := [way for way in WAYS if way not in ways]:
            raise body.error(f"{body.where!r} has no {missing[0]} episodes")
        bodies[body["morphology"].text()] = ways
    source = entry["provenance"]
    command, hardware = source["command"].text(), source.get("hardware")
    return _Result(
        entry["checkpoint"].text(),
        entry["trained_steps"].count(),
        bodies,
        command,
        {} if hardware is None else hardware.object(),
    )


def _command(folder: Path) -> str:
    file = folder / "command.txt"
    try:
        return read_text(file).strip() if file.exists() else ""
    except (OSError, ValueError):
        raise UserError(f"{file} cannot be read; {ADVICE}") from None


def _nodes(folder: Path, body: str) -> int:
    file = folder / "bodies" / f"{body}.graph.json"
    # Early runs hold the JSON as a JSON text.
    return sum(1 for _ in read_entry(file, "leave the run out", unpack=True)["node_type"])
