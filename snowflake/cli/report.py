"""``snowflake report``: one page over the results of studies and runs."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from agents.errors import UserError
from snowflake.cli.parsing import parse
from snowflake.files import check_no_file


@dataclass(frozen=True, kw_only=True)
class ReportFlags:
    """Compare trained policies: learning curves with intervals over seeds, final table, transfer matrix, as one page.

    Writes index.html (needs nothing beside it), a PNG of each figure, table.md and summary.json.
    """

    folders: Annotated[
        Positional[tuple[Path, ...]], arg(name="dir", metavar="DIR [DIR ...]", help_behavior_hint="(required)")
    ]
    """Folders of studies (snowflake sweep) or of runs, searched with all their subfolders."""
    output: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: report/ in the first DIR)")] = None
    """Folder of the report."""
    title: Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="(default: the names of the studies)")] = None
    """Title of the page."""

    def __post_init__(self) -> None:
        if not self.folders:
            raise UserError("name a folder: snowflake report DIR [DIR ...]")
        for folder in self.folders:
            if not os.path.isdir(folder):
                what = "is a file, name a folder" if os.path.exists(folder) else "does not exist"
                raise UserError(f"{folder} {what}: a study's folder, or run folders")
        check_no_file(self.output)


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(ReportFlags, argv, "snowflake report")
    from snowflake.files import check_output
    from snowflake.report.files import PAGES, read_folders, write_report

    output = flags.output or flags.folders[0] / "report"
    check_output(output, PAGES)
    rows, notes = read_folders(flags.folders)
    from snowflake.report.build import build

    studies = [study for study in dict.fromkeys(row.study for row in rows) if study is not None]
    title = flags.title or "Report: " + (", ".join(studies) or ", ".join(f.resolve().name for f in flags.folders))
    report = build(rows, title, shlex.join(["snowflake", "report", *argv]), notes)
    paths = write_report(report, output)
    sys.stdout.write(report.table.markdown())
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"wrote {paths[-1]}, table.md, summary.json and {len(paths) - 3} figures beside it", file=sys.stderr)
    return 0
