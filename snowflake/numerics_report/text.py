"""The table on the screen, and the two CSVs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from snowflake.evaluation.curves import Curve
from snowflake.numerics_report.read import FORMATS, OPERANDS, STATISTICS, SUMMARIES, Place, RunNumerics

HEAD = (
    "network", "layer", "operand", "amax", "log2 scale", "saturated", "flushed", "rel. error", "formats"
)  # fmt: skip
NOTE = (
    "amax, saturated and flushed: largest of all readings; log2 scale: first -> last; rel. error: mean; formats: last "
    "reading"
)


def table(run: RunNumerics) -> str:
    """What was read of one run: a line for each operand of each layer, then a line for each network."""
    lines: list[tuple[str, ...]] = [HEAD]
    for network in run.networks:
        for layer in run.layers(network):
            for operand in OPERANDS:
                found = run.operands.get(Place(network, layer, operand))
                if found and "log2_scale" in found:
                    lines.append((network, layer, OPERANDS[operand], *_cells(found)))
    text = [f"{run.name}"]
    if len(lines) > 1:
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
        text += ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        text.append(NOTE)
    else:
        text.append("no statistics by layer: --statistics-every of the training was 0, or more than its updates")
    text += [_network(network, run.summaries[network]) for network in run.networks if network in run.summaries]
    return "\n".join(text) + "\n"


def _cells(found: dict[str, Curve]) -> tuple[str, ...]:
    scale = found["log2_scale"].values
    shares = {name: _last(found, f"share_{name}") for name in FORMATS[:3]}
    return (
        f"{_values(found, 'amax').max():.3g}",
        f"{scale[0]:.1f} -> {scale[-1]:.1f}",
        f"{_values(found, 'sat_frac').max():.1e}",
        f"{_values(found, 'flush_frac').max():.1e}",
        f"{_values(found, 'mean_rel').mean():.4f}",
        _formats(shares),
    )


def _values(found: dict[str, Curve], name: str) -> np.ndarray:
    return found[name].values if name in found else np.array([np.nan])


def _last(found: dict[str, Curve], name: str) -> float:
    return float(found[name].values[-1]) if name in found else 0.0


def _formats(shares: dict[str, float]) -> str:
    """Shares that are not nothing, in percent."""
    return ", ".join(f"{name} {100 * share:.3g} %" for name, share in shares.items() if share > 0)


def _network(network: str, found: dict[str, Curve]) -> str:
    parts = []
    for kind, what, names in (("operands", "numbers", FORMATS[:3]), ("flops", "operations", FORMATS)):
        means = {n: float(_values(found, f"share/{kind}/{n}").mean()) for n in names if f"share/{kind}/{n}" in found}
        parts.append(f"{what} {_formats(means) or 'none'}")
    counts = {name: int(found[name].values.sum()) if name in found else 0 for name in ("nonfinite", "format_changes")}
    return (
        f"{network}, all of training: {'; '.join(parts)}; {counts['nonfinite']} groups not finite, "
        f"{counts['format_changes']} changes of format"
    )


def operands_csv(runs: Sequence[RunNumerics]) -> str:
    """A row for each reading of each operand of each layer; an empty cell for what was not logged."""
    rows = []
    for run in runs:
        for place in sorted(run.operands, key=lambda p: (p.network, p.layer, list(OPERANDS).index(p.operand))):
            found = run.operands[place]
            rows += [
                (run.name, *place[:2], OPERANDS[place.operand], step, *cells)
                for step, cells in _by_step(found, STATISTICS)
            ]
    return _csv(("run", "network", "layer", "operand", "step", *STATISTICS), rows)


def summaries_csv(runs: Sequence[RunNumerics]) -> str:
    """A row for each update of each network."""
    rows = []
    for run in runs:
        for network, found in run.summaries.items():
            rows += [(run.name, network, step, *cells) for step, cells in _by_step(found, SUMMARIES)]
    return _csv(("run", "network", "step", *(name.replace("/", "_") for name in SUMMARIES)), rows)


def _by_step(found: dict[str, Curve], names: Sequence[str]) -> list[tuple[int, list[object]]]:
    table: dict[int, dict[str, float]] = {}
    for name, curve in found.items():
        for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
            table.setdefault(step, {})[name] = value
    return [(step, [table[step].get(name, "") for name in names]) for step in sorted(table)]


def _csv(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()
