"""Final table, scores, comparisons, transfer matrix and curves, against numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from snowflake.report import analysis
from snowflake.report.build import build
from snowflake.report.curves import ALL_BODIES, EVALUATION, TRAINING, diagnostic_panels, return_panels
from snowflake.report.figures import COLORS, Look, matrix_figure, panel_figure
from snowflake.report.rows import Measured, labels
from snowflake.report.tables import comparison_table, final_table, matrix_table


def test_final_table(row: Any) -> None:
    rows = labels([row("good", {"a": mean}, seed) for seed, mean in enumerate((10.0, 40.0, 100.0))])
    [line] = analysis.final_table(rows)
    assert (line.variant, line.body, line.seeds, line.steps, line.nodes) == ("good", "a", (0, 1, 2), (1000, 1000), 4)
    mean_action = line.returns["mean_action"]
    assert mean_action.mean == 50.0
    assert mean_action.sd == pytest.approx(np.std([10, 40, 100], ddof=1))
    assert mean_action.median == 40.0
    assert mean_action.iqm.value == pytest.approx((10 + 4 * 40 + 100) / 6)
    # One resample in 27 draws the worst seed three times: more than 2.5 %, so the interval reaches it.
    assert (mean_action.iqm.low, mean_action.iqm.high) == pytest.approx((10.0, 100.0))
    assert line.returns["stochastic"].mean == 25.0
    assert line.returns["zero_action"].mean == 5.0
    assert line.distance.mean == 5.0
    assert (line.falls, line.episodes, line.trainable, line.total) == (3, 6, 500, 700)
    [cells] = final_table([line]).rows
    assert cells[:7] == ("good", "a", "3", "1,000", "50.0 ± 45.8", "45.0 [10.0, 100]", "40.0")
    assert cells[-5:] == ("5.0", "0.0", "5.0 ± 4.6", "3/6", "500 of 700")


def test_one_seed_shows_neither_deviation_nor_interval(row: Any) -> None:
    [line] = analysis.final_table([row("good", {"a": 10.0}, 0)])
    assert math.isnan(line.returns["mean_action"].sd)
    [cells] = final_table([line]).rows
    assert cells[4:7] == ("10.0", "10.0 [one seed: none]", "10.0")


def test_scores_run_from_random_play_to_the_best_variant(row: Any) -> None:
    rows = [row("good", {"a": 100.0}, 0, random=20.0), row("good", {"b": 7.0}, 0, random=-3.0)]
    rows += [row("poor", {"a": 60.0}, 0, random=20.0), row("poor", {"b": 2.0}, 0, random=-3.0)]
    assert analysis.scores(rows) == {"a": (20.0, 100.0), "b": (-3.0, 7.0)}
    found = analysis.aggregate_scores(rows)
    assert found["good"].value == 1.0
    assert found["poor"].value == pytest.approx((0.5 + 0.5) / 2)
    assert analysis.scores([row("bad", {"a": 1.0}, 0, random=20.0)]) == {}


def test_comparisons_put_the_better_one_first(row: Any) -> None:
    rows = [row("x", {"a": mean}, seed) for seed, mean in enumerate((1.0, 2.0))]
    rows += [row("y", {"a": mean}, seed) for seed, mean in enumerate((2.0, 3.0))]
    rows += [row("alone", {"b": 9.0}, 0)]
    [pair] = analysis.comparisons(rows)
    assert (pair.first, pair.second, pair.bodies) == ("y", "x", ("a",))
    assert pair.probability.value == 0.875
    assert comparison_table([pair]).rows[0][2].startswith("0.88 [")


def test_transfer_matrix(row: Any) -> None:
    rows = [row("good", {"a": 100.0}, 0, transfer={"c-10": 30.0, "c-8": 50.0})]
    rows += [row("good", {"a": 120.0}, 1, transfer={"c-10": 50.0, "c-8": 50.0}), row("flat", {"a": 10.0}, 0)]
    matrix = analysis.transfer_matrix(rows, "stochastic")
    assert matrix is not None
    assert matrix.sources == (("flat", ("a",)), ("good", ("a",)))
    assert matrix.targets == ("a", "c-8", "c-10")
    assert set(matrix.cells) == {(0, 0), (1, 0), (1, 1), (1, 2)}
    own, new = matrix.cells[1, 0], matrix.cells[1, 2]
    assert (own.mean, own.seeds, own.trained) == (55.0, 2, True)
    assert (new.mean, new.trained) == (20.0, False)
    assert new.sd == pytest.approx(np.std([15, 25], ddof=1))
    assert matrix_table(matrix).rows == (
        ("flat (a)", "5.0*", "–", "–"),
        ("good (a)", "55.0 ± 7.1*", "25.0 ± 0.0", "20.0 ± 7.1"),
        ("zero action", "5.0", "5.0", "5.0"),
        ("random play", "0.0", "0.0", "0.0"),
    )
    assert analysis.transfer_matrix(rows[2:], "stochastic") is None


def test_mapped_cells_are_marked(row: Any) -> None:
    flat = dataclasses.replace(row("flat", {"a": 10.0}, 0, transfer={"b": 4.0}), mapped=True)
    matrix = analysis.transfer_matrix([flat, row("good", {"a": 20.0}, 0, transfer={"b": 6.0})], "mean_action")
    assert matrix is not None
    assert [row[1:] for row in matrix_table(matrix).rows[:2]] == [("10.0*", "4.0 (mapped)"), ("20.0*", "6.0")]
    texts = [text.get_text() for text in matrix_figure(matrix).axes[0].texts]
    assert texts == ["10\ntrained", "4\nmapped", "20\ntrained", "6"]
    title = "Transfer to other bodies"
    for rows, told in (([flat], True), ([dataclasses.replace(flat, mapped=False)], False)):
        (section,) = (s for s in build(rows, "t", "c").sections if s.title == title)
        assert ('"mapped": a flat policy' in section.text) is told


def test_different_numbers_of_episodes_are_told(row: Any) -> None:
    few, many = row("good", {"a": 10.0}, 0), row("good", {"a": 20.0}, 1)
    assert build([few, many], "t", "c").sections[0].notes == ()
    assert many.final is not None
    twice = {w: Measured(np.tile(m.returns, 2), np.tile(m.distance, 2), m.falls) for w, m in many.final["a"].items()}
    many = dataclasses.replace(many, final={"a": twice})
    report = build([few, many], "t", "c")
    (note,) = report.sections[0].notes
    assert note.startswith("Numbers of episodes differ: 2 (good seed 0 on a); 4 (good seed 1 on a).")
    assert note in report.numbers["notes"]


def test_one_evaluation_is_no_curve(row: Any) -> None:
    [panel] = return_panels([row("good", {"a": 1.0}, 0, curves={"eval/mean_reward": ([500], [1.0])})], EVALUATION)
    assert panel.bands == ()
    assert panel.notes == ("good: one step only (500) is covered by all of its curves, so no curve is drawn",)


def test_return_curve_lies_on_the_steps_that_all_seeds_cover(row: Any) -> None:
    first = {"eval/a/mean_reward": ([0, 100], [0.0, 10.0])}
    second = {"eval/mean_reward": ([50, 150, 250], [20.0, 40.0, 60.0])}  # the run's, which for one body is the body's
    rows = [row("good", {"a": 1.0}, 0, curves=first), row("good", {"a": 1.0}, 1, curves=second)]
    [panel] = return_panels(rows, EVALUATION)
    [band] = panel.bands
    assert (panel.place, band.seeds) == ("a", 2)
    np.testing.assert_allclose(band.steps, [50, 75, 100])
    np.testing.assert_allclose(band.value, [12.5, 16.25, 20.0])
    assert band.low is not None
    np.testing.assert_allclose(band.low, [5.0, 7.5, 10.0])
    assert return_panels(rows, TRAINING) == []


def test_curve_of_all_bodies_is_of_scores(row: Any) -> None:
    rows = [row("good", {"a": 100.0, "b": 10.0}, seed) for seed in range(2)]
    rows += [row("poor", {"a": 50.0}, 0), row("poor", {"b": 5.0}, 0), row("narrow", {"a": 1.0}, 0)]
    panels = {panel.place: panel for panel in return_panels(labels(rows), EVALUATION)}
    assert set(panels) == {"a", "b", ALL_BODIES}
    good, poor = panels[ALL_BODIES].bands
    assert (good.variant, good.seeds, poor.variant) == ("good", 2, "poor")
    np.testing.assert_allclose(good.value, [0.0, 0.5, 1.0])
    np.testing.assert_allclose(poor.value, [0.0, 0.25, 0.5])
    assert good.low is not None
    assert poor.low is None
    assert panels[ALL_BODIES].notes == ("narrow was not trained on all of these bodies",)


def test_missing_curves_are_told(row: Any) -> None:
    rows = [row("good", {"a": 1.0}, 0), row("good", {"a": 1.0}, 1, curves={})]
    [panel] = return_panels(rows, EVALUATION)
    assert panel.bands == ()
    assert panel.notes == ("good: 1 of 2 curves are missing",)


def test_diagnostics_by_tag_and_training_set(row: Any) -> None:
    curves = {"snowflake/grad_norm/update": ([1, 2], [3.0, 4.0]), "train/approx_kl": ([1, 2], [0.1, 0.2])}
    rows = [row("good", {"a": 1.0, "b": 1.0}, 0, curves=curves), row("flat", {"a": 1.0}, 0, curves={})]
    panels = diagnostic_panels(rows)
    assert [(p.kind, p.place) for p in panels] == [
        ("train/approx_kl", "a, b"),
        ("snowflake/grad_norm/update", "a, b"),
    ]
    assert panels[1].bands[0].value.tolist() == [3.0, 4.0]


def test_figure_draws_the_band_only_where_there_is_one(row: Any) -> None:
    rows = [row("good", {"a": 100.0 + seed}, seed) for seed in range(3)] + [row("poor", {"a": 50.0}, 0)]
    [panel] = return_panels(rows, EVALUATION)
    look = Look(("good", "other", "poor"))
    axes = panel_figure(panel, look).axes[0]
    assert [line.get_color() for line in axes.lines] == [COLORS[0], COLORS[2]]
    assert len(axes.collections) == 1
    assert [line.get_label() for line in axes.lines] == ["good (3 seeds)", "poor (1 seed, no interval)"]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [0.0, 25.0, 50.0])


def test_variants_beyond_the_palette_differ_in_line() -> None:
    names = [f"v{k}" for k in range(2 * len(COLORS))]
    look = Look(names)
    assert len({(look.color(v), look.line(v)) for v in names}) == len(names)
