"""One input and what became of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 10.0
"""A command that computes longer over one input hangs [s]."""
WALL_SECONDS = 60.0
"""So does one that takes longer in all: it waits for something, or the machine is busy with other things [s]."""


@dataclass(frozen=True)
class Case:
    """One input: which, and the command line that meets it.

    Attributes:
        kind: ``config``, ``body``, ``run``, ``checkpoint`` or ``cli``.
        seed: of the whole series.
        index: place in the series; with kind and seed it decides the input.
        argv: arguments of ``snowflake``.
        story: what was done to a valid input.
        writes: folders, relative to the working directory, that the command may write into if it succeeds.
    """

    kind: str
    seed: int
    index: int
    argv: tuple[str, ...]
    story: str
    writes: tuple[str, ...] = ("out", "runs")


@dataclass
class Verdict:
    """What a command did with an input.

    Attributes:
        case: the input.
        code: exit code; None if it was killed or died.
        seconds: how long it took [s].
        faults: what it should not have done; empty if all is well.
        said: the end of standard error.
    """

    case: Case
    code: int | None
    seconds: float
    faults: list[str] = field(default_factory=list)
    said: str = ""


@dataclass(frozen=True)
class Place:
    """The folders of one case: all that a command may touch.

    Attributes:
        root: holds the others.
        templates: valid run folders to copy, by name; shared by all cases and only read.
    """

    root: Path
    templates: Path

    @property
    def here(self) -> Path:
        """Working directory, where the input lies."""
        return self.root / "here"

    @property
    def temporary(self) -> Path:
        """Folder of temporary files, which is to be empty again."""
        return self.root / "tmp"

    @property
    def home(self) -> Path:
        """Home folder; caches of libraries go there."""
        return self.root / "home"


Maker = Callable[[random.Random, Place], tuple[tuple[str, ...], str, tuple[str, ...]]]
"""Writes an input into ``place.here``; returns command line, story and the folders that may be written."""


def generator(kind: str, seed: int, index: int) -> random.Random:
    """Return the generator that decides one input."""
    return random.Random(f"{kind}/{seed}/{index}")
