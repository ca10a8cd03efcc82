"""Figures hold what was measured, and the learning curve survives a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from snowflake.evaluation.curves import EVALUATION_RETURN, TRAINING_RETURN, Curve, read_curves
from snowflake.evaluation.figures import evaluation_figure, render, transfer_figure


def write_events(folder: Path, tag: str, points: list[tuple[int, float]], purge_step: int | None = None) -> None:
    """Write one event file as a SummaryWriter does."""
    writer = EventFileWriter(str(folder), filename_suffix="" if purge_step is None else ".resumed")
    if purge_step is not None:
        writer.add_event(Event(file_version="brain.Event:2", step=purge_step))
        writer.add_event(Event(session_log=SessionLog(status=SessionLog.START), step=purge_step))
    for step, value in points:
        writer.add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)])))
    writer.close()


def test_curves_of_a_resumed_run(tmp_path: Path) -> None:
    write_events(tmp_path / "tb", TRAINING_RETURN, [(100, 1.0), (200, 2.0), (300, -99.0), (400, -99.0)])
    write_events(tmp_path / "tb", TRAINING_RETURN, [(300, 3.0), (450, float("nan")), (500, 5.0)], purge_step=300)
    curves = read_curves(tmp_path)
    assert set(curves) == {TRAINING_RETURN}
    assert curves[TRAINING_RETURN].steps.tolist() == [100, 200, 300, 500]
    assert curves[TRAINING_RETURN].values.tolist() == [1.0, 2.0, 3.0, 5.0]


def test_no_event_files_no_curves(tmp_path: Path) -> None:
    assert read_curves(tmp_path) == {}


def test_evaluation_figure_draws_curves_and_episodes(result: Any) -> None:
    steps = np.array([0, 10_000, 20_000])
    curves = {
        TRAINING_RETURN: Curve(steps, np.array([-30.0, 100.0, 500.0])),
        EVALUATION_RETURN: Curve(steps, np.array([-20.0, 200.0, 900.0])),
    }
    made = result()
    figure = evaluation_figure(made, curves)
    left, right = figure.axes
    drawn = {line.get_label(): np.asarray(line.get_ydata()) for line in left.lines}
    np.testing.assert_array_equal(drawn["training episodes (stochastic)"], curves[TRAINING_RETURN].values)
    np.testing.assert_array_equal(drawn["evaluation (mean action)"], curves[EVALUATION_RETURN].values)
    zero = made.bodies[0].episodes["zero_action"].returns.mean()
    assert next(y for label, y in drawn.items() if label.startswith("zero action"))[0] == pytest.approx(zero)
    assert left.get_xlabel() == "environment steps"
    dots = [line for line in right.lines if line.get_marker() == "."]
    for line, episodes in zip(dots, made.bodies[0].episodes.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), episodes.returns)
    assert render(figure).startswith(b"\x89PNG")


def test_evaluation_figure_without_curves_shows_the_episodes(result: Any) -> None:
    figure = evaluation_figure(result(bodies=("centipede-6", "centipede-4")), {})
    assert len(figure.axes) == 1
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["centipede-6", "centipede-4\n(zero-shot)"]
    assert len(render(figure)) > 10_000


def test_transfer_figure_draws_a_bar_per_body_and_way(result: Any) -> None:
    made = result("transfer", ("centipede-6", "centipede-8", "centipede-12"))
    figure = transfer_figure(made)
    for axes, attribute in zip(figure.axes, ("returns", "distance"), strict=True):
        groups = [c for c in axes.containers if hasattr(c, "patches")]
        assert len(groups) == 4
        for group, way in zip(groups, made.bodies[0].episodes, strict=True):
            means = [getattr(b.episodes[way], attribute).mean() for b in made.bodies]
            np.testing.assert_allclose([bar.get_height() for bar in group.patches], means)
            segments = group.errorbar.lines[2][0].get_segments()
            values = getattr(made.bodies[0].episodes[way], attribute)
            error = values.std(ddof=1) / np.sqrt(len(values))
            assert segments[0][1, 1] - segments[0][0, 1] == pytest.approx(2 * error)
    assert len(render(figure)) > 10_000
