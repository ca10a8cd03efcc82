"""Sample efficiency: how many environment steps a finetuned run and one from scratch took to reach a return."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import agents
from agents.errors import UserError
from snowflake.body_files import ADVICE
from snowflake.config import TrainConfig
from snowflake.evaluation.curves import Curve
from snowflake.files import dump_json, read_text, write_atomic
from snowflake.json_files import Entry, parse_entry, read_entry
from snowflake.run import FINETUNE_FILE, Run

FRACTIONS = (0.25, 0.5, 0.75, 0.9)
"""Returns to reach by default, as fractions of the best evaluation of the run from scratch."""
FILE = "sample_efficiency.json"
MEAN = "mean over bodies"


def steps_to_reach(curve: Curve, level: float) -> int | None:
    """Environment steps at the first evaluation whose mean return is ``level`` or more; None if there is none."""
    reached = np.flatnonzero(curve.values >= level)
    return int(curve.steps[reached[0]]) if len(reached) else None


def mean_returns(first: Curve, second: Curve) -> tuple[int, int, float, float] | None:
    """Area under each curve (trapezoids) over the steps that both cover, divided by their number.

    Returns:
        First and last common step, and the mean return of each; None if they share less than two steps.
    """
    low, high = (int(f(first.steps[i], second.steps[i])) for f, i in ((max, 0), (min, -1)))
    if low >= high:
        return None
    grid = np.unique(np.concatenate([first.steps, second.steps]).clip(low, high))
    means = [float(np.trapezoid(np.interp(grid, c.steps, c.values), grid)) / (high - low) for c in (first, second)]
    return low, high, means[0], means[1]


def read_evaluations(run: Run) -> dict[str, Curve]:
    """Mean return of each evaluation of a run, by body; with several bodies their mean comes first.

    Raises:
        UserError: the run was never evaluated, or its file is damaged.
    """
    file = run.path / "evaluations.jsonl"
    lines = [line for line in _read(file).splitlines(keepends=True) if line.endswith("\n")]  # a kill may cut the last
    rows: list[tuple[int, dict[str, float]]] = []
    for number, line in enumerate(lines, 1):
        entry = parse_entry(line, file.with_name(f"{file.name}:{number}"), "delete that line")
        bodies = {name: _mean_return(body) for name, body in entry["bodies"].entries().items()}
        step = entry["step"].count()
        if not bodies or (rows and step < rows[-1][0]):
            raise entry.error("it has no body" if not bodies else f"step {step} does not follow step {rows[-1][0]}")
        rows.append((step, {MEAN: float(np.mean(list(bodies.values()))), **bodies}))
    names = [morphology.name for morphology in run.morphologies]
    if not rows or any(name not in bodies for _, bodies in rows for name in names):
        raise UserError(f"{file} holds no evaluation of {', '.join(names)}: train with --eval-freq above 0")
    steps = np.array([step for step, _ in rows], np.int64)
    wanted = names if len(names) == 1 else [MEAN, *names]
    return {name: Curve(steps, np.array([bodies[name] for _, bodies in rows])) for name in wanted}


def _mean_return(body: Entry) -> float:
    returns = body["returns"]
    values = returns.numbers()
    if not len(values):
        raise returns.error(f"{returns.where!r} is empty")
    return float(values.mean())


def _read(file: Path) -> str:
    try:
        return read_text(file)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise UserError(f"{file} cannot be read: it is no text; delete it and train again") from None


def _source(run: Run) -> dict[str, Any]:
    """Where the actor of a finetuned run came from; empty for a run from scratch."""
    file = run.path / FINETUNE_FILE
    source = read_entry(file, ADVICE).get("source") if file.exists() else None
    if source is None or source.is_null:
        return {}
    source["step"].count()
    return source.object()


def open_reference(
    path: str | Path, morphologies: Sequence[agents.Morphology], config: TrainConfig, returns: Sequence[float] = ()
) -> Run:
    """Open the run from scratch that a finetuned run is to be compared with, and check that it can be.

    Args:
        path: its folder.
        morphologies: bodies of the finetuned run.
        config: of the finetuned run.
        returns: returns to reach, if given.

    Raises:
        UserError: a return that is not finite, other bodies, another task or length of episodes, no evaluation, or a
            best return of 0 or less, of which fractions mean nothing.
    """
    if wrong := [value for value in returns if not np.isfinite(value)]:
        raise UserError(f"--returns {wrong[0]}: give finite numbers")
    scratch = Run.open(path)
    bodies = [{m.name: agents.model_hash(m.compile()) for m in group} for group in (morphologies, scratch.morphologies)]
    if bodies[0] != bodies[1]:
        raise UserError(
            f"--compare {path} was trained on {', '.join(bodies[1])}, not on the same bodies ({', '.join(bodies[0])}): "
            "train one with --from-scratch"
        )
    theirs, ours = scratch.config, config
    if (theirs.task, theirs.env.max_episode_steps) != (ours.task, ours.env.max_episode_steps):
        raise UserError(f"--compare {path} has other task options or max_episode_steps: returns cannot be compared")
    curves = read_evaluations(scratch)
    for name, curve in curves.items():
        if not returns and curve.values.max() <= 0:
            raise UserError(
                f"--compare {path}: its best return on {name} is {curve.values.max():.1f}, of which fractions mean "
                "nothing: say which returns to reach with --returns"
            )
    return scratch


def compare(run: Run, scratch: Run, returns: Sequence[float] = ()) -> dict[str, Any]:
    """Compare the evaluations of a finetuned run with those of a run from scratch on the same bodies.

    Args:
        run: finetuned.
        scratch: from :func:`open_reference`.
        returns: returns to reach; `FRACTIONS` of the best evaluation of ``scratch`` if none.

    Returns:
        What ``sample_efficiency.json`` holds.
    """
    ours, theirs = read_evaluations(run), read_evaluations(scratch)
    source = _source(run)
    return {
        "format": 1,
        "finetuned": str(run.path),
        "from_scratch": str(scratch.path),
        "source": source,
        "deterministic": True,
        "bodies": {name: _compare_curves(ours[name], theirs[name], returns) for name in ours},
    }


def _compare_curves(ours: Curve, theirs: Curve, returns: Sequence[float]) -> dict[str, Any]:
    best = float(theirs.values.max())
    levels = [(value, None) for value in returns] or [(best * fraction, fraction) for fraction in FRACTIONS]
    rows = []
    for level, fraction in levels:
        a, b = steps_to_reach(ours, level), steps_to_reach(theirs, level)
        ratio = b / a if a and b is not None else None
        rows.append({"return": level, "fraction": fraction, "finetuned": a, "from_scratch": b, "ratio": ratio})
    area = None
    if (means := mean_returns(ours, theirs)) is not None:
        low, high, mine, other = means
        area = {"first_step": low, "last_step": high, "finetuned": mine, "from_scratch": other, "gain": mine - other}
    best_returns = {"finetuned": float(ours.values.max()), "from_scratch": best}
    first = {"finetuned": [int(ours.steps[0]), float(ours.values[0])]}
    first["from_scratch"] = [int(theirs.steps[0]), float(theirs.values[0])]
    return {"levels": rows, "mean_return": area, "best": best_returns, "first": first}


def write(result: dict[str, Any], folder: Path) -> Path:
    """Write the comparison beside the run; returns the file."""
    write_atomic(folder / FILE, dump_json(result))
    return folder / FILE


def text(result: dict[str, Any]) -> str:
    """The comparison as a table for the terminal."""
    lines = ["environment steps at the first evaluation (mean action) that reached a return"]
    for name, body in result["bodies"].items():
        lines += ["", f"{name:<24}{'finetuned':>14}{'from scratch':>14}{'ratio':>8}"]
        for row in body["levels"]:
            share = "" if row["fraction"] is None else f" ({row['fraction']:.0%} of best)"
            steps = [_steps(row["finetuned"]), _steps(row["from_scratch"])]
            ratio = "-" if row["ratio"] is None else f"{row['ratio']:.1f}x"
            lines.append(f"{row['return']:<10.1f}{share:<14}{steps[0]:>14}{steps[1]:>14}{ratio:>8}")
        best, area = body["best"], body["mean_return"]
        lines.append(f"{'best return':<24}{best['finetuned']:>14.1f}{best['from_scratch']:>14.1f}")
        if area is not None:
            lines.append(f"{'mean return':<24}{area['finetuned']:>14.1f}{area['from_scratch']:>14.1f}")
            lines.append(f"  (over steps {area['first_step']:,} to {area['last_step']:,}; gain {area['gain']:+.1f})")
    if result["source"]:
        lines += ["", f"The {result['source']['step']:,} steps that trained the source are not counted."]
    return "\n".join(lines)


def _steps(steps: int | None) -> str:
    return "not reached" if steps is None else "at the start" if steps == 0 else f"{steps:,}"
