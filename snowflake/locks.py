"""A lock that one process holds on a file, and that goes with the process, however that ends."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Busy(Exception):
    """Another process holds the lock."""


@contextmanager
def held(file: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock on ``file``, which is made where it does not exist and stays empty or as it is.

    The kernel keeps the lock, not the file: one left behind by a killed process locks nothing.

    Args:
        file: The file.
        seconds: How long to wait for another process.

    Raises:
        Busy: Another process, or another part of this one, holds it.
        OSError: The file cannot be opened for writing.
    """
    end = time.monotonic() + seconds
    with file.open("ab") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise Busy(str(file)) from None
                time.sleep(0.1)
        yield
