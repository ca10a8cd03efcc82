"""Stored bodies: what is told when one is no longer the model that was trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.errors import UserError
from envs import LocomotionVectorEnv
from snowflake import body_files
from snowflake.run import graph_of
from tests.envs.robots import ROBOTS, morphology


def store(folder: Path, xml: bytes | str = ROBOTS["fixed base"]) -> Path:
    """Store a robot of a file as a run does; return its entry."""
    body = morphology(folder, ROBOTS["fixed base"])
    if isinstance(xml, bytes):
        (folder / "small.xml").write_bytes(xml)
    (folder / "run" / "bodies").mkdir(parents=True)
    versions = {"mujoco": body_files.metadata.version("mujoco"), "git_commit": "abc"}
    versions["snowflake-rl"] = body_files.metadata.version("snowflake-rl")
    (folder / "run" / "versions.json").write_text(json.dumps(versions))
    env = LocomotionVectorEnv(body, 1, num_threads=1)
    body_files.write_body(folder / "run" / "bodies", env, graph_of(env))
    return folder / "run" / "bodies" / "small.json"


def test_the_same_body_is_read(tmp_path: Path) -> None:
    entry = store(tmp_path)
    (tmp_path / "small.xml").unlink()  # the copy stands alone
    assert body_files.read_body(entry).name == "small"


@pytest.mark.parametrize("new", [ROBOTS["pendulum"], "<mujoco>", ROBOTS["fixed base"].replace('elbow"', 'knee"', 1)])
def test_an_edited_copy_is_told_as_such(tmp_path: Path, new: str) -> None:
    """Another robot, no robot at all, and one that does not compile."""
    entry = store(tmp_path)
    (entry.parent / "small" / "small.xml").write_text(new)
    with pytest.raises(
        UserError, match=r"body 'small' of .*run no longer compiles .*small.xml was changed since"
    ) as told:
        body_files.read_body(entry)
    assert "mujoco" not in str(told.value)


def test_another_version_is_told_as_such(tmp_path: Path) -> None:
    entry = store(tmp_path)
    entry.write_text(entry.read_text().replace(json.loads(entry.read_text())["model_hash"], "0" * 64))
    with pytest.raises(UserError, match=r"with the same versions .*was the package changed\? \(commit abc\)"):
        body_files.read_body(entry)
    versions = tmp_path / "run" / "versions.json"
    versions.write_text(json.dumps(json.loads(versions.read_text()) | {"mujoco": "2.1.0"}))
    with pytest.raises(UserError, match=r"trained with mujoco 2.1.0, here \d.*install that version") as told:
        body_files.read_body(entry)
    assert "changed" not in str(told.value)


def test_names_that_are_no_utf8_are_stored(tmp_path: Path) -> None:
    entry = store(
        tmp_path, ROBOTS["fixed base"].replace("elbow", "Ellbogn").encode().replace(b"Ellbogn", b"Ellb\xf6gn")
    )
    assert b"Ellb\xf6gn" in (entry.parent / "small.xml").read_bytes()
    assert body_files.read_body(entry).compile().nu == 2
