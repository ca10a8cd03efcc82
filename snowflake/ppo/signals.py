"""Ctrl-C and SIGTERM during training."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stop_on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM call ``stop``, which asks training to save and end; a second one ends it at once.

    Args:
        stop: Called in the main thread, between two of its instructions.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python takes signals in the main thread only
        return
    asked = False

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        stop()
        print("stopping after this update (once more: at once, losing it)", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
