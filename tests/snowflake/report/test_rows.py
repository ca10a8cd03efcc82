"""Rows are checked before anything is computed, found below folders, and named once."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agents import UserError
from snowflake.json_files import Entry
from snowflake.report.rows import find_rows, labels, read_row, row_of
from tests.snowflake.damage import NO_JSON, NO_OBJECT, told, variants


def test_row_is_read(tmp_path: Path, values: Any) -> None:
    file = tmp_path / "row.json"
    file.write_text(json.dumps(values("good", {"a": 100.0}, 3, transfer={"c": 50.0})))
    row = read_row(file)
    assert (row.variant, row.agents, row.seed, row.steps, row.checkpoint) == ("good", ("a",), 3, 1000, "last")
    assert row.final is not None
    assert row.final["a"]["stochastic"].returns.tolist() == [40.0, 60.0]
    assert row.final["a"]["random"].falls == 2
    assert row.transfer is not None
    assert list(row.transfer) == ["c"]
    assert row.curves["eval/a/mean_reward"][1].tolist() == [0.0, 50.0, 100.0]


NULL = object()


def change(*path: str | int, to: Any = None) -> Callable[[Any], None]:
    def apply(values: Any) -> None:
        for key in path[:-1]:
            values = values[key]
        if to is None:
            del values[path[-1]]
        else:
            values[path[-1]] = None if to is NULL else to

    return apply


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change("format"), "no row of a study"),
        (change("format", to=9), "row format 9, this version reads 1"),
        (change("seed"), "'seed' is missing"),
        (change("agents", to="a"), "'agents' must be a list, it is a text"),
        (change("agents", to=["a", "b"]), "no episodes on 'b'"),
        (change("final", "bodies", 0, "policies", "random"), "no random episodes on 'a'"),
        (change("final", "bodies", 0, "policies", "random", "returns", to=[1.0, None]), "list of finite numbers"),
        (change("final", "bodies", 0, "policies", "random", "returns", to=[1.0]), "do not pair up"),
        (change("curves", "eval/a/mean_reward", "steps", to=[0, 500, 500]), "increasing steps"),
        (change("final", to=3), "'final' must be an object, it is a number"),
        (change("final", to=[]), "'final' must be an object, it is a list"),
        (change("final", "bodies", to=NULL), r"'final\.bodies' must be a list, it is null"),
        (change("final", "bodies", 0, to=[]), r"'final\.bodies\[0\]' must be an object, it is a list"),
        (
            change("final", "bodies", 0, "policies", "random", "falls", to=-1),
            r"falls' must be between 0 and 2, it is -1",
        ),
        (change("final", "bodies", 0, "policies", "random", "falls", to=3), r"falls' must be between 0 and 2, it is 3"),
        (
            change("final", "bodies", 0, "policies", "random", "falls", to=1.5),
            "falls' must be a whole number, it is a n",
        ),
        (change("seed", to="0"), "'seed' must be a whole number, it is a text"),
        (change("curves", to=[]), "'curves' must be an object, it is a list"),
        (change("parameters", "total", to=True), r"'parameters\.total' must be a whole number, it is true or false"),
        (change("commands", to="snowflake"), "'commands' must be a list, it is a text"),
    ],
)
def test_broken_row_is_named_in_one_line(tmp_path: Path, values: Any, edit: Any, message: str) -> None:
    given = values("good", {"a": 100.0}, 0)
    edit(given)
    file = tmp_path / "row.json"
    file.write_text(json.dumps(given))
    with pytest.raises(UserError, match=message) as told:
        read_row(file)
    assert str(file) in str(told.value)
    assert "\n" not in str(told.value)
    assert "indices" not in str(told.value)


def test_a_row_without_an_evaluation_is_read(tmp_path: Path, values: Any) -> None:
    """`final: null`: the row has curves and the steps of its training."""
    file = tmp_path / "row.json"
    file.write_text(json.dumps({**values("good", {"a": 100.0}, 0), "final": None}))
    row = read_row(file)
    assert (row.final, row.steps, row.checkpoint) == (None, 1000, "")


def test_every_damage_of_a_row_is_one_line(tmp_path: Path, values: Any) -> None:
    file = tmp_path / "row.json"
    whole = values("good", {"a": 100.0}, 3, transfer={"c": 50.0})
    whole["transfer"]["mlp_mapped"] = True
    for text in (*NO_JSON, *NO_OBJECT):
        file.write_bytes(text)
        assert told(lambda: read_row(file), file)
    count = 0
    for damaged in variants(whole):
        count += told(partial(row_of, Entry(damaged, file, "delete it")), file) is not None
    assert count > 300  # some are no damage: another variant's name, keys that a report does not read


def test_half_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "row.json").write_text('{"format": 1, ')
    with pytest.raises(UserError, match=r"row\.json is damaged: it is no JSON"):
        read_row(tmp_path / "row.json")


def test_rows_are_found_in_studies_and_runs(study: Path) -> None:
    (study / "results" / ".tmp-x.json").write_text("{")
    (study / "table.json").write_text("{}")  # beside results/, so no row
    run = study.parent / "runs" / "one"
    (run / "bodies").mkdir(parents=True)
    (run / "bodies" / "a.json").write_text("{}")
    (run / "config.yaml").write_text("")
    other = study.parent / "runs" / "elsewhere"
    other.mkdir()
    (other / "evaluation.json").write_text('{"kind": "evaluation"}')
    found = list(find_rows(study.parent))
    assert [kind for kind, _ in found] == ["other", "run", *["row"] * 12]
    assert found[:2] == [("other", other / "evaluation.json"), ("run", run)]
    assert list(find_rows(study / "results")) == found[2:]


def test_labels_tell_studies_and_joint_training_apart(row: Any) -> None:
    alone, joint = row("good", {"a": 1.0}, 0), row("good", {"a": 1.0, "b": 1.0}, 0)
    assert [r.variant for r in labels([alone, row("good", {"b": 1.0}, 0)])] == ["good", "good"]
    assert [r.variant for r in labels([alone, joint])] == ["good", "good (joint)"]
    third = row("good", {"b": 1.0, "c": 1.0}, 0)
    assert [r.variant for r in labels([joint, third])] == ["good (joint: a, b)", "good (joint: b, c)"]
    elsewhere = row("good", {"a": 1.0}, 0, study="other")
    assert [r.variant for r in labels([alone, elsewhere])] == ["demo: good", "other: good"]


def test_the_same_policy_twice_is_refused(tmp_path: Path, values: Any) -> None:
    for name in ("x.json", "y.json"):
        (tmp_path / name).write_text(json.dumps(values("good", {"a": 1.0}, 0)))
    with pytest.raises(UserError, match=r"x\.json and .*y\.json are the same variant \(good\), bodies and seed \(0\)"):
        labels([read_row(tmp_path / "x.json"), read_row(tmp_path / "y.json")])
