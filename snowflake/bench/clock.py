"""Time of the parts of a program, each without the parts inside it, and statistics of repetitions."""

from __future__ import annotations

import contextlib
import functools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

REST = "other"
"""Part that is charged with what no named part took."""


class PartClock:
    """Charges the time of the thread that made it to parts: to the innermost one that is open, else to `REST`.

    So the parts of a stretch add up to it. Calls of other threads pass through unmeasured.

    Args:
        now: clock in seconds.
        settle: called before the clock is read, for instance `torch.cuda.synchronize`.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter, settle: Callable[[], None] | None = None) -> None:
        self._now, self._settle = now, settle
        self._thread = threading.get_ident()
        self._open: list[str] = []
        self._since = 0.0
        self.seconds: dict[str, float] = {}

    def start(self) -> None:
        """Begin to charge; `seconds` starts anew."""
        self.seconds, self._open, self._since = {}, [REST], self._read()

    def stop(self) -> None:
        """End charging."""
        self._charge()
        self._open = []

    @contextlib.contextmanager
    def part(self, name: str, within: str | None = None) -> Iterator[None]:
        """Charge what happens inside to a part; nothing is charged while the clock does not run.

        Args:
            name: the part.
            within: only where this is the innermost part that is open.
        """
        elsewhere = threading.get_ident() != self._thread
        if elsewhere or not self._open or within not in (None, self._open[-1]):
            yield
            return
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def _read(self) -> float:
        if self._settle is not None:
            self._settle()
        return self._now()

    def _charge(self) -> None:
        now = self._read()
        name = self._open[-1]
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


class ThreadClock:
    """Sums the time that every thread spends in named calls, each without those inside it.

    Args:
        now: clock in seconds.
        settle: see `PartClock`.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter, settle: Callable[[], None] | None = None) -> None:
        self._now, self._settle = now, settle
        self._clocks: list[PartClock] = []
        self._own = threading.local()  # not by thread id: those of ended threads come again

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Charge what happens inside to this thread and a name."""
        if not hasattr(self._own, "clock"):
            self._own.clock = PartClock(self._now, self._settle)
            self._own.clock.start()
            self._clocks.append(self._own.clock)
        with self._own.clock.part(name):
            yield

    def busiest(self) -> dict[str, float]:
        """Return the seconds by name of the thread that spent most; empty if there was no call."""
        spent = [{name: v for name, v in clock.seconds.items() if name != REST} for clock in self._clocks]
        return max(spent, key=lambda seconds: sum(seconds.values()), default={})


@contextlib.contextmanager
def wrapped(calls: Sequence[tuple[Any, str, Callable[[], contextlib.AbstractContextManager[None]]]]) -> Iterator[None]:
    """Run functions inside contexts, for a while.

    Args:
        calls: object, class or module; name of its function; what makes the context of a call.
    """
    with contextlib.ExitStack() as stack:
        for owner, name, context in calls:
            own = name in vars(owner)
            function = getattr(owner, name)
            setattr(owner, name, _in_context(function, context))
            if own:
                stack.callback(setattr, owner, name, function)
            else:
                stack.callback(delattr, owner, name)
        yield


def _in_context(
    function: Callable[..., Any], context: Callable[[], contextlib.AbstractContextManager[None]]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return call


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, smallest and largest of repetitions."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}
