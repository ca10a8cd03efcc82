"""The files of a report, and the command that writes them."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from snowflake.cli import main
from snowflake.report.files import read_folders


class Page(HTMLParser):
    """Balance of tags, and every attribute that can load something."""

    void = {"meta", "img", "br", "link"}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.void:
            self.open.append(tag)
        values = dict(attrs)
        self.loads += [values[k] or "" for k in ("src", "href") if k in values]
        self.ids += [values["id"] or ""] if "id" in values else []
        assert tag not in ("script", "link", "iframe")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_report_command(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = study / "report"
    output.mkdir()
    (output / "mine.png").write_bytes(b"the user's own")
    (output / "old.png").write_bytes(b"of an earlier report")
    (output / "summary.json").write_text(json.dumps({"kind": "report", "files": ["old.png", "../../x.png"]}))
    assert main(["report", str(study), "--title", "Good & poor"]) == 0
    shown = capsys.readouterr()
    names = {path.name for path in output.iterdir()}
    figures = {f"curve-evaluation-{place}.png" for place in ("a", "b", "all-bodies")}
    figures |= {"curve-snowflake-kl-batch-a.png", "curve-snowflake-kl-batch-b.png", "scaling.png", "improvement.png"}
    figures |= {"transfer-mean-action.png", "transfer-stochastic.png"}
    assert names == figures | {"index.html", "table.md", "summary.json", "mine.png"}
    assert f"wrote {output}/index.html" in shown.err
    assert shown.out == (output / "table.md").read_text()
    assert shown.out.splitlines()[2].startswith("| good | a | 3 | 1,000 | 110 ± 10.0 |")

    text = (output / "index.html").read_text()
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    pictures = [base64.b64decode(s.split(",")[1]) for s in page.loads if s.startswith("data:image/png;base64,")]
    assert sorted(pictures) == sorted((output / name).read_bytes() for name in figures)
    assert {s[1:] for s in page.loads if not s.startswith("data:")} <= set(page.ids)
    assert "Good &amp; poor" in text
    assert f"snowflake report {study} --title" in text
    for figure in re.findall(r"<figure.*?</figure>", text, re.S):  # each beside the commands that made it
        assert "snowflake train --run good__" in figure
        assert "snowflake report" in figure
    numbers = json.loads((output / "summary.json").read_text(), parse_constant=pytest.fail)
    assert numbers["final"][0]["returns"]["mean_action"]["iqm"]["value"] == 110.0
    assert numbers["facts"]["seeds"] == "0, 1, 2"


IN_A_PROCESS = """
import sys
from snowflake.cli import main
code = main(sys.argv[1:])
print(code, [name for name in ("torch", "matplotlib.pyplot") if name in sys.modules])
"""


def test_one_seed_without_torch_and_the_same_files_each_time(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (study / "results").iterdir():
        if "__a__seed0" not in path.name:
            path.unlink()
    output = study / "results" / "out"
    arguments = ["report", str(study), "--output", str(output)]
    assert main(arguments) == 0
    note = "One seed only, so no interval exists and none is drawn: good on a; poor on a."
    assert note in capsys.readouterr().err
    assert note in (output / "index.html").read_text()
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    (output / "index.html").unlink()
    command = [sys.executable, "-c", IN_A_PROCESS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0 []"  # its own summary.json was no row
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    numbers = json.loads(before["summary.json"])
    assert {band["low"] is None for panel in numbers["curves"] for band in panel["bands"]} == {True}
    assert numbers["final"][0]["returns"]["mean_action"]["sd"] is None


def test_broken_row_leaves_the_old_report(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (study / "report").mkdir()
    (study / "report" / "index.html").write_text("the old one")
    (study / "results" / "zz.json").write_text('{"format": 1}')
    assert main(["report", str(study)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"snowflake: error: {study}/results/zz.json is damaged: ")
    assert told.count("\n") == 1
    assert [path.read_text() for path in (study / "report").iterdir()] == ["the old one"]
    assert main(["report", str(study), "--output", str(study / "new")]) == 2
    assert not (study / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a folder"),
        (["nowhere"], "nowhere does not exist"),
        (["file"], "file is a file, name a folder"),
        (["empty"], "empty holds no result"),
        (["study", "--output", "file"], "--output file: is a file"),
        (["study", "--output", "file/below"], "--output file/below: cannot be made"),
        (["study", "study/results", "--titel", "x"], "unknown option --titel: did you mean '--title'"),
    ],
)
def test_mistakes(
    study: Path, arguments: list[str], message: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study.parent)
    Path("file").write_text("")
    Path("empty").mkdir()
    assert main(["report", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (study / "report").exists()


def test_a_row_named_by_two_folders_counts_once(study: Path) -> None:
    rows, notes = read_folders([study, study / "results", study / ".." / "study"])
    assert len(rows) == 12
    assert [note.split(" holds nothing that ")[0] for note in notes] == [f"{study}/results", f"{study}/../study"]
    assert read_folders([study])[1] == []
