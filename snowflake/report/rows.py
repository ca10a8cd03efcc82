"""The rows that a report is made of: one trained policy each, as a study wrote it or read from its run folder."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.errors import UserError
from snowflake.files import read_text
from snowflake.json_files import Entry, read_entry

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
        mapped: It is a flat policy, which was mapped to the other bodies by node class and column.
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
    mapped: bool
    commands: tuple[str, ...]
    versions: dict[str, str]
    hardware: dict[str, Any]


def read_row(path: Path) -> Row:
    """Read a study's row.

    Raises:
        UserError: It cannot be read, has another format, or lacks something.
    """
    return row_of(read_entry(path, "delete it and run the sweep again"))


def row_of(entry: Entry) -> Row:
    """Check the JSON form of a row and turn it into a :class:`Row`.

    Args:
        entry: The JSON object; its file is the row's path.

    Raises:
        UserError: It is no row, has another format, or lacks something.
    """
    path, version = entry.file, entry.get("format")
    if version is None:
        raise UserError(f"{path} is no row of a study (no 'format'): move it out of the folder, or name another folder")
    if version.value != FORMAT:
        raise UserError(f"{path} has row format {version.value!r}, this version reads {FORMAT}: run the sweep again")
    agents = tuple(body.text() for body in entry["agents"])
    if not agents:
        raise entry.error("'agents' must list the bodies of the training")
    final, transfer, study = entry["final"], entry["transfer"], entry["study"]
    bodies = None if final.is_null else _bodies(final)
    if bodies is not None and (missing := [a for a in agents if a not in bodies]):
        raise entry.error(f"'final' has no episodes on {missing[0]!r}")
    others = None if transfer.is_null else _bodies(transfer)
    mapped = None if others is None else transfer.get("mlp_mapped")
    return Row(
        path=path,
        study=None if study.is_null else study.text(),
        variant=entry["variant"].text(),
        agents=agents,
        seed=entry["seed"].count(),
        curves={tag: _curve(curve) for tag, curve in entry["curves"].entries().items()},
        nodes=_counts(entry["nodes"]),
        parameters=_counts(entry["parameters"]),
        steps=(entry["total_timesteps"] if final.is_null else final["step"]).count(),
        checkpoint="" if final.is_null else final["checkpoint"].text(),
        final=bodies,
        transfer=others,
        mapped=mapped is not None and mapped.flag(),
        commands=tuple(command.text() for command in entry["commands"]),
        versions={package: version.text() for package, version in entry["versions"].entries().items()},
        hardware=entry["hardware"].object(),
    )


def _bodies(measurement: Entry) -> Bodies:
    """Check the episodes of a measurement, all ways to act on every body.

    Raises:
        UserError: Something is missing or of another type.
    """
    found: Bodies = {}
    for body in measurement["bodies"]:
        name = body["morphology"].text()
        ways = {way: _measured(episodes) for way, episodes in body["policies"].entries().items()}
        if missing := [way for way in WAYS if way not in ways]:
            raise body.error(f"{measurement.where}: no {missing[0]} episodes on {name!r}")
        found[name] = ways
    return found


def _measured(episodes: Entry) -> Measured:
    returns, distance = episodes["returns"].numbers(), episodes["distance"].numbers()
    if not len(returns) or len(returns) != len(distance):
        raise episodes.error(f"returns and distances of {episodes.where!r} do not pair up")
    return Measured(returns, distance, episodes["falls"].count(at_most=len(returns)))


def _counts(values: Entry) -> dict[str, int]:
    return {name: value.count() for name, value in values.entries().items()}


def _curve(curve: Entry) -> tuple[np.ndarray, np.ndarray]:
    steps, values = curve["steps"].numbers(), curve["values"].numbers()
    if not len(steps) or len(steps) != len(values) or (np.diff(steps) <= 0).any():
        raise curve.error(f"curve {curve.where!r} needs as many values as steps, and increasing steps")
    return steps.astype(np.int64), values


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
        values = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return "row"  # read again as a row, and told there
    if not isinstance(values, dict) or "kind" not in values:
        return "row"
    return None if values["kind"] == "report" else "other"
