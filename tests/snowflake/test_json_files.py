"""A damaged JSON file of a run folder is one line, whatever the damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from agents.errors import UserError
from snowflake.body_files import read_body
from snowflake.evaluation.sample_efficiency import _source, read_evaluations
from snowflake.json_files import read_entry
from snowflake.run import Run
from tests.snowflake.damage import NO_JSON, NO_OBJECT, WRONG, told, variants


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A copy of a shipped policy."""
    shutil.copytree(Run.open("pretrained:centipede-6").path, tmp_path / "run")
    return Run.open(tmp_path / "run")


def test_values_are_read_with_their_types(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"a": {"b": [1, 2.5], "c": "text", "d": 3, "e": false, "f": null}}')
    a = read_entry(file, "delete it")["a"]
    np.testing.assert_array_equal(a["b"].numbers(), [1.0, 2.5])
    assert (a["c"].text(), a["d"].count(), a["e"].flag(), a["f"].is_null, a.get("g")) == ("text", 3, False, True, None)
    assert [entry.where for entry in a["b"]] == ["a.b[0]", "a.b[1]"]
    for read, message in (
        (a["c"].count, "'a.c' must be a whole number, it is a text"),
        (a["e"].count, "'a.e' must be a whole number, it is true or false"),
        (a["f"].text, "'a.f' must be a text, it is null"),
        (a["b"].object, "'a.b' must be an object, it is a list"),
        (lambda: a["d"].count(at_most=2), "'a.d' must be between 0 and 2, it is 3"),
        (lambda: a["b"]["c"], "'a.b' must be an object, it is a list"),
        (lambda: a["g"], "'a.g' is missing"),
    ):
        with pytest.raises(UserError) as error:
            read()
        assert str(error.value) == f"{file} is damaged: {message}; delete it"


def test_bodies(run: Run, tmp_path: Path) -> None:
    file = run.path / "bodies" / "centipede-6.json"
    whole = json.loads(file.read_text())
    known = (whole["name"], whole["model_hash"])
    for text in (*NO_JSON, *NO_OBJECT, b"{}"):
        file.write_bytes(text)
        assert told(lambda: read_body(file), file)
    for damaged in variants(whole):
        file.write_text(json.dumps(damaged))
        message = told(lambda: read_body(file), tmp_path / "run")
        same = isinstance(damaged, dict) and (damaged.get("name"), damaged.get("model_hash")) == known
        assert message or same, damaged  # the same model may come out of a source that lacks an argument's default
    file.write_text(json.dumps(whole))
    assert read_body(file).name == "centipede-6"


def test_versions_of_a_body_that_has_changed(run: Run) -> None:
    file = run.path / "bodies" / "centipede-6.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_hash": "0"}))
    versions = run.path / "versions.json"
    for text in (*NO_JSON, *NO_OBJECT, b'{"mujoco": 3}'):
        versions.write_bytes(text)
        assert told(lambda: read_body(file), versions)
    versions.unlink()
    assert "is missing" in (told(lambda: read_body(file), versions) or "")


def test_index(run: Run) -> None:
    file = run.path / "checkpoints" / "index.json"
    for text in (*NO_JSON, *NO_OBJECT, *(json.dumps({"best": wrong}).encode() for wrong in WRONG)):
        file.write_bytes(text)
        assert told(run.find_checkpoint, file), text


def test_evaluations(run: Run) -> None:
    file = run.path / "evaluations.jsonl"
    line = {"step": 64, "bodies": {"centipede-6": {"returns": [1.0, 3.0], "lengths": [9, 9]}}}
    file.write_text(json.dumps(line) + "\n")
    assert read_evaluations(run)["centipede-6"].values.tolist() == [2.0]
    for text in (*(text for text in NO_JSON if text), *NO_OBJECT):
        file.write_bytes(text + b"\n")
        assert told(lambda: read_evaluations(run), file)
    for damaged in variants(line):
        file.write_text(json.dumps(damaged) + "\n")
        whole = isinstance(damaged, dict) and damaged.get("step") == 64
        told(lambda: read_evaluations(run), file)
        if not whole:
            assert told(lambda: read_evaluations(run), file), damaged


def test_source_of_a_finetuned_run(run: Run) -> None:
    file = run.path / "finetune.json"
    assert _source(run) == {}
    file.write_text('{"source": {"run": "runs/a", "step": 64}}')
    assert _source(run) == {"run": "runs/a", "step": 64}
    for text in (*NO_JSON, *NO_OBJECT, b'{"source": 3}', b'{"source": {}}', b'{"source": {"step": "64"}}'):
        file.write_bytes(text)
        assert told(lambda: _source(run), file)


def test_deleted_checkpoints_are_told_as_such(run: Run) -> None:
    (step,) = run.checkpoints()
    index = run.path / "checkpoints" / "index.json"
    index.write_text(json.dumps({"last": step, "best": step + 1}))
    with pytest.raises(UserError) as error:
        run.find_checkpoint()
    assert f"no checkpoint 'best': its folder step_{step + 1:012d} was deleted; it has: last, {step}" in str(
        error.value
    )
    shutil.rmtree(run.checkpoint_path(step))
    with pytest.raises(UserError, match=r"'last': its folder .* was deleted; it has: none: their folders were deleted"):
        run.find_checkpoint("last")
    index.unlink()
    with pytest.raises(UserError, match="it has: none: the run was stopped before its first"):
        run.find_checkpoint()
    with pytest.raises(UserError, match="no checkpoint '²'"):
        run.find_checkpoint("²")
