"""From rows to brackets, words, files: on runs that were made up."""

from __future__ import annotations

import csv
import io
import json

import pytest

from agents.errors import UserError
from snowflake.files import dump_json
from snowflake.probe.files import write_all
from snowflake.probe.health import health_name, layer_kind, peaks
from snowflake.probe.row import read_row, thinned
from snowflake.probe.rules import Verdict
from snowflake.probe.stability import measure
from snowflake.probe.summary import summarize, to_json, warnings
from snowflake.probe.text import advice, common_rate, table
from tests.snowflake.probe.made_up import NAN, probe, row, step_runner

LIMITS = {("none", -1): 0.03, ("none", 3): 0.02, ("qk", -1): 0.3, ("qk", 2): 0.1}


def test_a_probe_of_known_limits() -> None:
    settings = probe(refine=2)
    rows, complete = measure(settings, step_runner(LIMITS))
    assert complete
    found = summarize(settings, rows)
    # Grid 0.01 0.04 0.16 0.64; the worst seed decides: 0.02 for none, 0.1 for qk.
    assert (found["none"].bracket.stable, found["none"].bracket.unstable) == (0.02, 0.02828)
    assert (found["qk"].bracket.stable, found["qk"].bracket.unstable) == (0.08, 0.1131)
    assert found["none"].by_seed == {0: 0.02828, 1: 0.02828, 2: 0.02828, 3: 0.02, 4: 0.02828}
    assert found["none"].first_failure == "1 of 5 R2"
    assert found["none"].shares[0.02828].value == 0.8
    assert found["qk"].versus["none"].verdict == "higher"
    assert found["qk"].versus["none"].higher == 5
    assert found["none"].versus["qk"].verdict == "lower"
    assert len(rows) == 2 * 5 * (4 + 2)
    # Sensitivity of none: losses .1 .7 .7 .7 of an initial 1.5; best .1.
    assert found["none"].sensitivity == pytest.approx(0.45)
    assert common_rate(settings, found) == 0.01
    lines = table(settings, found)
    assert lines[1].split()[:3] == ["none", "0.02", "0.02828"]
    assert "higher" in lines[2]
    assert "5/0/0" in lines[2]
    assert advice(settings, found) == []


def test_rounds_that_end_early_end_the_probe() -> None:
    def half(cells):
        return step_runner({})(cells)[: len(cells) // 2]

    rows, complete = measure(probe(), half)
    assert not complete
    assert len(rows) == 2 * 5 * 4 // 2


def test_the_order_of_the_runs_does_not_matter() -> None:
    rows, _ = measure(probe(), step_runner(LIMITS))
    turned, _ = measure(probe(), lambda cells: step_runner(LIMITS)(cells)[::-1])
    assert rows == turned
    assert to_json(probe(), rows, True, {}) == to_json(probe(), turned, True, {})


def test_an_open_bracket_is_told_which_way_to_extend() -> None:
    settings = probe(variants=("none", "qk", "qkv"))
    no_progress = Verdict("no_progress", detail="made up")

    def run(cells):
        rows = step_runner({("none", -1): 0.001, ("qk", -1): 1e9})(cells)
        return [row(r.variant, r.rate, r.seed, no_progress) if r.variant == "qkv" else r for r in rows]

    found = summarize(settings, measure(settings, run)[0])
    above, below, slow = advice(settings, found)
    assert above == "stable at every rate: qk; raise --lr-max above 0.64"
    assert below == "none is not stable at the lowest rate (5 of 5 R2): lower --lr-min below 0.01"
    assert slow == "qkv is not stable at the lowest rate (5 of 5 no_progress): raise --updates or --lr-min"


def test_warnings_decide_nothing() -> None:
    lowest = row("qk", 0.01, 0)
    assert warnings(lowest, lowest) == []
    grown = {"update": [10.0, 20.0], "L0/fc2/y_rms": [2.5, 3.0], "L0/entropy": [0.9, 0.04], "L1/cap_frac": [0.1, 0.6]}
    assert warnings(row("qk", 0.04, 0, health=grown), lowest) == [
        "attention entropy 0.04",
        "60% of the logits capped",
        "outputs of a layer over 2 x those at the lowest rate",
    ]
    far = {"update": [10.0], "L0/fc2/y_rms": [11.0]}
    assert warnings(row("qk", 0.04, 0, health=far), lowest) == ["outputs of a layer over 10 x those at the lowest rate"]
    # However large, a stable run stays stable in what is said of the rate.
    rows = [
        row("qk", rate, seed, health={"update": [10.0], "L0/fc2/y_rms": [1e9]})
        for rate in (0.01, 0.04)
        for seed in (0, 1)
    ]
    assert summarize(probe(variants=("qk",)), rows)["qk"].bracket.stable == 0.04


def test_names_and_peaks_of_measurements() -> None:
    assert health_name("act/L0/qkv/y_rms") == health_name("act/actor/L0/qkv/y_rms") == "L0/qkv/y_rms"
    assert health_name("attn/actor/L12/entropy") == "L12/entropy"
    for tag in ("act/critic/L0/qkv/y_rms", "act/L0/qkv/x_rms", "attn/L0/root_mass", "train/loss"):
        assert health_name(tag) is None
    assert (layer_kind("L0/fc2/y_rms"), layer_kind("L0/entropy")) == ("fc2", None)
    series = {"update": [1.0, 2.0], "L0/fc1/y_rms": [3.0, NAN], "L1/fc1/y_rms": [1.0, 5.0], "L0/entropy": [0.4, 0.6]}
    series |= {"L1/entropy": [0.3, NAN], "L0/logit_absmax": [7.0, 8.0]}
    assert peaks(series) == {"y_rms/fc1": 5.0, "entropy": 0.3, "logit_absmax": 8.0}


def test_files(tmp_path) -> None:
    settings = probe()
    rows, complete = measure(settings, step_runner(LIMITS))
    rows[0] = row("none", 0.01, 0, Verdict("diverged", "R1", 3, "loss not finite"), score=NAN)
    write_all(tmp_path, settings, rows, complete, "snowflake probe stability")
    figures = {"fig_final_vs_lr.png", "fig_max_lr.png", "fig_rms_stable_vs_diverged.png"}
    assert {path.name for path in tmp_path.iterdir()} == {"stability.json", "stability.csv", "stability.md", *figures}
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in figures)
    page = (tmp_path / "stability.md").read_text().splitlines()
    assert len(page) == 4
    assert len({line.count("|") for line in page}) == 1
    assert page[3].endswith("| 0.04, 0.06 | 6.7 |")
    result = json.loads((tmp_path / "stability.json").read_text())
    assert result["grid"] == [0.01, 0.04, 0.16, 0.64]
    none = result["variants"]["none"]
    assert (none["max_stable_lr"], none["first_unstable_lr"]) == (None, 0.01)
    first = none["runs"][0]
    assert (first["status"], first["reason"], first["update"], first["score"]) == ("diverged", "R1", 3, None)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "stability.csv").read_text())))
    assert len(lines) == len(rows)
    assert (lines[0]["score"], lines[0]["reason"], lines[1]["score"]) == ("", "R1", "0.1")


def test_a_row_reads_back_and_a_damaged_one_is_told(tmp_path) -> None:
    file = tmp_path / "row.json"
    for one in (row("qk", 0.01, 3), row("none", 0.04, 0, Verdict("diverged", "R3", 7, "KL 2"))):
        file.write_text(dump_json(one.to_json()))
        assert read_row(file) == one
    value = row("qk", 0.01, 3, score=NAN).to_json()
    file.write_text(dump_json(value))
    assert read_row(file).score != read_row(file).score
    for damage in ({"status": "fine"}, {"rate": "x"}, {"rate": True}, {"curve": 3}, {"seed": -1}):
        file.write_text(dump_json(value | damage))
        with pytest.raises(UserError, match=r"row\.json is damaged: .*; delete it, and run the probe again"):
            read_row(file)


def test_a_thinned_curve_keeps_its_end() -> None:
    assert thinned([5.0, 6.0, 7.0]) == {"update": [1, 2, 3], "value": [5.0, 6.0, 7.0]}
    found = thinned(list(range(1000)), 10)
    assert found["update"][-1] == 1000
    assert found["value"][-1] == 999.0
    assert len(found["update"]) == 10
