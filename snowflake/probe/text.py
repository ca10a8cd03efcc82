"""The probe in words: a table of the variants, its CSV, and which way to extend a grid that brackets nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from snowflake.config.probe import ProbeConfig
from snowflake.config.probe_variants import BASELINE, PAPER
from snowflake.probe.health import peaks
from snowflake.probe.row import ProbeRow
from snowflake.probe.search import grid
from snowflake.probe.summary import VariantSummary

CSV_COLUMNS = ("variant", "lr", "seed", "status", "reason", "update", "score", "initial", "trivial")
CSV_PEAKS = ("logit_absmax", "entropy", "y_rms/qkv", "y_rms/proj", "y_rms/fc1", "y_rms/fc2")


def table(probe: ProbeConfig, found: dict[str, VariantSummary]) -> list[str]:
    """One line a variant."""
    common = common_rate(probe, found)
    what = "error" if probe.objective == "bc" else "return"
    head = ("variant", "max stable lr", "unstable at", f"x {BASELINE}", "seeds +/=/-", "verdict")
    rows: list[tuple[str, ...]] = [(*head, f"{what} at lr {common:g}", "first failure")]
    for name, one in found.items():
        ends, versus = one.bracket, one.versus.get(BASELINE)
        score = one.scores.get(common)
        rows.append(
            (
                name,
                _rate(ends.stable),
                _rate(ends.unstable),
                "" if versus is None else _times(versus.ratio.value),
                "" if versus is None else f"{versus.higher}/{versus.equal}/{versus.lower}",
                "" if versus is None else versus.verdict,
                "" if score is None else f"{score.value:.3g}",
                one.first_failure,
            )
        )
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def markdown(found: dict[str, VariantSummary]) -> str:
    """The table with the paper's beside it, in Markdown."""
    lines = [
        "| variant | largest stable rate | first unstable | ratio to `none`, mean over seeds | seeds +/=/- "
        "| verdict | at the first unstable rate | paper: stable, diverged | paper: ratio to `none` |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        ends, versus, paper = one.bracket, one.versus.get(BASELINE), PAPER.get(name)
        cells = [f"`{name}`", _rate(ends.stable), _rate(ends.unstable), "", "", "", one.first_failure, "", ""]
        if versus is not None:
            ratio = versus.ratio
            if ratio.value == ratio.value:
                cells[3] = f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
            cells[4] = f"{versus.higher}/{versus.equal}/{versus.lower}"
            cells[5] = versus.verdict
        if paper is not None:
            cells[7], cells[8] = f"{paper[0]:g}, {paper[1]:g}", f"{paper[0] / PAPER[BASELINE][0]:.1f}"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def common_rate(probe: ProbeConfig, found: dict[str, VariantSummary]) -> float:
    """Largest rate of the grid at which every variant is stable, or the smallest of the grid."""
    rates = grid(probe.lr_min, probe.lr_max, probe.ratio)
    below = [rate for rate in rates if all(rate <= (one.bracket.stable or 0.0) for one in found.values())]
    return below[-1] if below else rates[0]


def advice(probe: ProbeConfig, found: dict[str, VariantSummary]) -> list[str]:
    """How to extend the grid for variants whose bracket is open; none if all are closed."""
    lines = []
    above = [name for name, one in found.items() if one.bracket.unstable is None]
    if above:
        lines.append(f"stable at every rate: {', '.join(above)}; raise --lr-max above {probe.lr_max:g}")
    for name, one in found.items():
        if one.bracket.stable is None:
            slow = one.first_failure.endswith("no_progress")
            way = "raise --updates or --lr-min" if slow else f"lower --lr-min below {probe.lr_min:g}"
            lines.append(f"{name} is not stable at the lowest rate ({one.first_failure}): {way}")
    return lines


def to_csv(rows: Sequence[ProbeRow]) -> str:
    """One line a run."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*CSV_COLUMNS, *CSV_PEAKS))
    for row in rows:
        tops = peaks(row.health)
        start = (
            row.variant,
            f"{row.rate:g}",
            row.seed,
            row.status,
            row.reason,
            "" if row.update is None else row.update,
        )
        numbers = [row.score, row.initial, row.trivial, *(tops.get(name, float("nan")) for name in CSV_PEAKS)]
        writer.writerow((*start, *("" if value != value else f"{value:.6g}" for value in numbers)))
    return out.getvalue()


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _times(value: float) -> str:
    return "" if value != value else f"{value:.2f}"
