"""The rows that a report is made of: one trained policy each, as a study wrote it or read from its run folder."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.errors import UserError

FORMAT = 1
"""Format of the rows that this version reads."""

WAYS = ("mean_action", "stochastic", "zero_action", "random")
"""Ways to act of a measurement; the first two are the policy."""

Curves = dict[str, tuple[np.ndarray, np.ndarray]]
"""Steps and values by TensorBoard tag."""


@dataclass(frozen=True)
class Measured:
    """Episodes of one way to act on one body.

    Attributes:
        returns: (episodes,) return of each.
        distance: (episodes,) forward distance [m].
        falls: Episodes that ended before the time limit.
    """

    returns: np.ndarray
    distance: np.ndarray
    falls: int


Bodies = dict[str, dict[str, Measured]]
"""Episodes by body and way to act."""


@dataclass(frozen=True)
class Row:
    """One trained policy.

    Attributes:
        path: File or run folder that it came from.
        study: Name of the study; None for a plain run.
        variant: What its seeds have in common.
        agents: Bodies that it was trained on.
        seed: Seed of the training.
        curves: Steps (int64) and values (float64) by TensorBoard tag.
        nodes: Graph nodes by body.
        parameters: ``total`` and ``trainable`` parameters of the actor, where known.
        steps: Environment steps behind the measured checkpoint; of the whole training where nothing was measured.
        checkpoint: Which checkpoint was measured.
        final: Episodes on its own bodies; None where it was not evaluated.
        transfer: Episodes on other bodies; None where there was no transfer.
        commands: Command lines that made it.
        versions: Versions of what decides numbers.
        hardware: Processor and so on.
    """

    path: Path
    study: str | None
    variant: str
    agents: tuple[str, ...]
    seed: int
    curves: Curves
    nodes: dict[str, int]
    parameters: dict[str, int]
    steps: int
    checkpoint: str
    final: Bodies | None
    transfer: Bodies | None
    commands: tuple[str, ...]
    versions: dict[str, str]
    hardware: dict[str, Any]


class _Broken(ValueError):
    """What is wrong inside a row; becomes a `UserError` with the row's path."""


def read_row(path: Path) -> Row:
    """Read a study's row.

    Raises:
        UserError: It cannot be read, has another format, or lacks something.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; delete it and run the sweep again") from error
    return row_of(values, path)


def row_of(values: Any, path: Path) -> Row:
    """Check the JSON form of a row and turn it into a :class:`Row`.

    Args:
        values: The JSON object.
        path: Where it came from, for messages.

    Raises:
        UserError: It is no row, has another format, or lacks something.
    """
    if not isinstance(values, dict) or "format" not in values:
        raise UserError(f"{path} is no row of a study (no 'format'): move it out of the folder, or name another folder")
    if values["format"] != FORMAT:
        raise UserError(f"{path} has row format {values['format']!r}, this version reads {FORMAT}: run the sweep again")
    try:
        return _row(values, path)
    except (_Broken, KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        advice = "evaluate the run again" if path.is_dir() else "delete it and run the sweep again"
        raise UserError(f"{path} is damaged: {what}; {advice}") from error


def _row(values: dict[str, Any], path: Path) -> Row:
    agents = tuple(values["agents"])
    if not agents or not all(isinstance(a, str) for a in agents) or isinstance(values["agents"], str):
        raise _Broken("'agents' must list the bodies of the training")
    final = values["final"]
    bodies = None if final is None else _bodies(final, "final")
    if bodies is not None and (missing := [a for a in agents if a not in bodies]):
        raise _Broken(f"'final' has no episodes on {missing[0]!r}")
    transfer = values["transfer"]
    return Row(
        path=path,
        study=None if values["study"] is None else str(values["study"]),
        variant=str(values["variant"]),
        agents=agents,
        seed=int(values["seed"]),
        curves={str(tag): _curve(tag, c) for tag, c in values["curves"].items()},
        nodes={str(k): int(v) for k, v in values["nodes"].items()},
        parameters={str(k): int(v) for k, v in values["parameters"].items()},
        steps=int(values["total_timesteps"] if final is None else final["step"]),
        checkpoint="" if final is None else str(final["checkpoint"]),
        final=bodies,
        transfer=None if transfer is None else _bodies(transfer, "transfer"),
        commands=tuple(map(str, values["commands"])),
        versions={str(k): str(v) for k, v in values["versions"].items()},
        hardware=dict(values["hardware"]),
    )


def _bodies(measurement: dict[str, Any], where: str) -> Bodies:
    found: Bodies = {}
    for body in measurement["bodies"]:
        ways = {}
        for way, episodes in body["policies"].items():
            returns, distance = (_numbers(episodes[k], f"{where}: {k} of {way}") for k in ("returns", "distance"))
            if not len(returns) or len(returns) != len(distance):
                raise _Broken(f"{where}: returns and distances of {way} on {body['morphology']!r} do not pair up")
            ways[way] = Measured(returns, distance, int(episodes["falls"]))
        if missing := [way for way in WAYS if way not in ways]:
            raise _Broken(f"{where}: no {missing[0]} episodes on {body['morphology']!r}")
        found[str(body["morphology"])] = ways
    return found


def _curve(tag: str, curve: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    steps, values = _numbers(curve["steps"], f"steps of {tag}"), _numbers(curve["values"], f"values of {tag}")
    if not len(steps) or len(steps) != len(values) or (np.diff(steps) <= 0).any():
        raise _Broken(f"curve {tag!r} needs as many values as steps, and increasing steps")
    return steps.astype(np.int64), values


def _numbers(values: Any, what: str) -> np.ndarray:
    if not isinstance(values, list) or not all(isinstance(v, int | float) and math.isfinite(v) for v in values):
        raise _Broken(f"{what} must be a list of finite numbers")
    return np.array(values, np.float64)


def labels(rows: list[Row]) -> list[Row]:
    """Give each row the name of its line in the figures, as its ``variant``.

    The variant; with several studies, ``study: variant``; and for a policy of several bodies ``variant (joint)``, if
    other rows of the variant trained on one of these bodies by itself, or ``variant (joint: a, b)``, if others trained
    on it in another company.

    Raises:
        UserError: Two rows have the same variant, bodies and seed.
    """
    if len({row.study for row in rows}) > 1:
        named = [r if r.study is None else dataclasses.replace(r, variant=f"{r.study}: {r.variant}") for r in rows]
    else:
        named = list(rows)
    sets: dict[str, set[tuple[str, ...]]] = {}
    for row in named:
        sets.setdefault(row.variant, set()).add(row.agents)
    mixed = {v for v, groups in sets.items() if max(Counter(b for g in groups for b in g).values()) > 1}
    result = [
        dataclasses.replace(row, variant=f"{row.variant} ({_joint(row.agents, sets[row.variant])})")
        if row.variant in mixed and len(row.agents) > 1
        else row
        for row in named
    ]
    seen: dict[tuple[str, tuple[str, ...], int], Path] = {}
    for row in result:
        first = seen.setdefault((row.variant, row.agents, row.seed), row.path)
        if first != row.path:
            raise UserError(
                f"{first} and {row.path} are the same variant ({row.variant}), bodies and seed ({row.seed}): "
                "name one of their folders only"
            )
    return sorted(result, key=lambda row: (row.variant, row.agents, row.seed))


def _joint(agents: tuple[str, ...], sets: set[tuple[str, ...]]) -> str:
    alone = sum(len(other) > 1 for other in sets) == 1
    return "joint" if alone else f"joint: {', '.join(agents)}"


def find_rows(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield ``("row", file)`` and ``("run", folder)`` for what lies below a folder, in the order of their paths.

    Of a study's folder (it holds ``results/``) only that is read: its run folders hold the same policies again. What an
    evaluation wrote outside a run folder is yielded as ``("other", file)``; an earlier report is passed over.
    """
    if (folder / "config.yaml").is_file() and (folder / "bodies").is_dir():
        yield "run", folder
        return
    if (folder / "results").is_dir():
        yield from find_rows(folder / "results")
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):  # a file that is being written
            continue
        if path.is_dir():
            yield from find_rows(path)
        elif path.suffix == ".json" and (kind := _kind(path)) is not None:
            yield kind, path


def _kind(path: Path) -> str | None:
    """``row``; ``other`` for what an evaluation wrote; None for a report's own numbers."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "row"  # read again as a row, and told there
    if not isinstance(values, dict) or "kind" not in values:
        return "row"
    return None if values["kind"] == "report" else "other"
