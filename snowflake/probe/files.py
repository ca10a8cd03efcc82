"""The files of a probe: what was measured as JSON and CSV, and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from snowflake.config.probe import ProbeConfig
from snowflake.evaluation.figures import render
from snowflake.evaluation.provenance import provenance
from snowflake.files import dump_json, write_atomic
from snowflake.probe.figures import activation_figure, largest_figure, score_figure
from snowflake.probe.row import ProbeRow
from snowflake.probe.summary import VariantSummary, summarize, to_json
from snowflake.probe.text import markdown, to_csv


def write_all(
    folder: Path, probe: ProbeConfig, rows: Sequence[ProbeRow], complete: bool, command: str
) -> dict[str, VariantSummary]:
    """Write all files of the rows into ``folder``.

    Args:
        folder: It exists.
        probe: The settings.
        rows: At least one.
        complete: Whether none is missing.
        command: What the user typed, for the record.

    Returns:
        What the rows say, by variant.
    """
    facts = {"provenance": provenance(command, 1, "cpu")}
    found = summarize(probe, rows)
    write_atomic(folder / "stability.json", dump_json(to_json(probe, rows, complete, facts)))
    write_atomic(folder / "stability.csv", to_csv(rows))
    write_atomic(folder / "stability.md", markdown(found))
    write_atomic(folder / "fig_final_vs_lr.png", render(score_figure(probe, found)))
    write_atomic(folder / "fig_max_lr.png", render(largest_figure(found)))
    write_atomic(folder / "fig_rms_stable_vs_diverged.png", render(activation_figure(rows)))
    return found
