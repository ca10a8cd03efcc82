"""Files are whole or untouched, and go where they can."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import snowflake
from agents import UserError
from snowflake.evaluation import files
from snowflake.evaluation.files import output_folder, write


def test_write_makes_the_three_files(result: Any, tmp_path: Path) -> None:
    paths = write(result("transfer"), tmp_path / "new", b"figure")
    assert [p.name for p in paths] == ["transfer.json", "transfer.csv", "transfer.png"]
    assert paths[2].read_bytes() == b"figure"
    assert sorted(os.listdir(tmp_path / "new")) == ["transfer.csv", "transfer.json", "transfer.png"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_an_interrupted_write_leaves_the_old_files(broken: str, result: Any, tmp_path: Path, monkeypatch: Any) -> None:
    write(result(), tmp_path, b"old")
    old = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, broken, interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(result(bodies=("centipede-8",)), tmp_path, b"new")
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == old
    write(result(bodies=("centipede-8",)), tmp_path, b"new")
    assert set(os.listdir(tmp_path)) == set(old)
    assert all((tmp_path / name).read_bytes() != content for name, content in old.items())


def test_a_folder_that_cannot_be_written_is_told_in_one_line(result: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--output") as error:
        write(result(), tmp_path / "file", b"")
    assert "\n" not in str(error.value)


def test_output_folder(tmp_path: Path, monkeypatch: Any) -> None:
    assert output_folder(tmp_path, None) == (tmp_path, None)
    assert output_folder(tmp_path, Path("elsewhere")) == (Path("elsewhere"), None)
    packaged = Path(snowflake.__file__).parent / "pretrained" / "centipede-6"
    folder, note = output_folder(packaged, None)
    assert folder == Path("runs/centipede-6-evaluation")
    assert note is not None
    assert "--output" in note
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    folder, note = output_folder(tmp_path, None)
    assert folder == Path("runs") / f"{tmp_path.name}-evaluation"
    assert note is not None
    assert "cannot be written" in note
