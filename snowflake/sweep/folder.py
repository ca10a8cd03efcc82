"""The folder of a sweep: what lies where, what is done, and the lock that keeps a cell from being run twice."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agents.errors import UserError
from snowflake.files import dump_json, read_text, write_atomic
from snowflake.locks import held

LOCK_SECONDS = 10.0
"""How long to wait for a cell that is being run elsewhere: a killed sweep's last process needs a moment to die."""


class AnyCell(Protocol):
    """What the folder knows of a cell: its name, unique in the folder, and all that it needs to be run, as text."""

    @property
    def name(self) -> str: ...
    def to_yaml(self) -> str: ...


@dataclass(frozen=True)
class SweepFolder:
    """``cells/`` what to run, ``runs/`` run folders, ``results/`` rows, ``logs/`` output, ``timings/`` wall time.

    Attributes:
        path: The folder.
    """

    path: Path

    def cell_file(self, name: str) -> Path:
        """Everything that a process needs to run the cell."""
        return self.path / "cells" / f"{name}.yaml"

    def run(self, name: str) -> Path:
        """Run folder of the cell."""
        return self.path / "runs" / name

    def result(self, name: str) -> Path:
        """The cell's row, there once the cell is done."""
        return self.path / "results" / f"{name}.json"

    def log(self, name: str) -> Path:
        """What the cell's processes printed."""
        return self.path / "logs" / f"{name}.log"

    def timing(self, name: str) -> Path:
        """Wall time of each process that worked on the cell."""
        return self.path / "timings" / f"{name}.json"

    def prepare(self, cells: Sequence[AnyCell], study_yaml: str) -> None:
        """Make the folder, or continue one; files of cells that are there already must say the same.

        Raises:
            UserError: The folder cannot be written, or holds a cell of the same name with other settings.
        """
        for cell in cells:
            file = self.cell_file(cell.name)
            if file.exists() and read_text(file) != cell.to_yaml():
                raise UserError(
                    f"{file}: this cell was started with other settings ({_first_difference(file, cell)}): choose "
                    f"another --output, or delete {self.path}"
                )
        try:
            for name in ("cells", "runs", "results", "logs", "timings"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            for cell in cells:
                if not self.cell_file(cell.name).exists():
                    write_atomic(self.cell_file(cell.name), cell.to_yaml())
            write_atomic(self.path / "study.yaml", study_yaml)
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror or error}; choose another --output") from error

    @contextlib.contextmanager
    def locked(self, name: str, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Hold the cell; the lock goes with the process, however that ends.

        Raises:
            Busy: Another process holds it.
        """
        with held(self.cell_file(name), seconds):
            self._sweep_up(name)
            yield

    def add_timing(self, name: str, seconds: float, steps: int) -> None:
        """Add the wall time of one process, and the environment steps that it trained."""
        file = self.timing(name)
        entries = []
        with contextlib.suppress(OSError, ValueError):  # none yet, or damaged: the row matters, not this
            entries = list(json.loads(read_text(file)))
        write_atomic(file, dump_json([*entries, {"seconds": round(seconds, 1), "steps": steps}]))

    def done(self, name: str) -> bool:
        """Whether the cell has its row."""
        return self.result(name).exists()

    def read_result(self, name: str) -> dict[str, Any]:
        """The row of a cell that is done.

        Raises:
            UserError: It is damaged.
        """
        try:
            row = json.loads(read_text(self.result(name)))
            row["final"]["bodies"][0]["policies"]
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            raise UserError(f"{self.result(name)} is damaged: delete it, and sweep again: its run is kept") from None
        return row

    def state(self, name: str) -> str:
        """``done``, ``step N`` for a run in between, or ``not started``."""
        if self.done(name):
            return "done"
        index = self.run(name) / "checkpoints" / "index.json"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return f"step {json.loads(read_text(index))['last']:,}"
        return "not started"

    def last_words(self, name: str) -> str:
        """Last line of the cell's log, where a process says why it failed."""
        with contextlib.suppress(OSError):
            lines = self.log(name).read_text(encoding="utf-8", errors="replace").split("\n")
            return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
        return ""

    def _sweep_up(self, name: str) -> None:
        """Delete half-written files of a process that was killed."""
        for place, stem in ((self.path / "runs", name), (self.path / "results", name), (self.path / "timings", name)):
            for left in place.glob(f".tmp-{stem}-*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _first_difference(file: Path, cell: AnyCell) -> str:
    before, now = read_text(file).splitlines(), cell.to_yaml().splitlines()
    for old, new in zip(before, now, strict=False):
        if old != new:
            return f"{old.strip()} then, {new.strip()} now"[:160]
    return "one has more settings"
