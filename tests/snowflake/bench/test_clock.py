"""Parts are charged without the parts inside them, and add up."""

from __future__ import annotations

import threading

import pytest

from snowflake.bench.clock import REST, PartClock, ThreadClock, spread, wrapped


class FakeTime:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.value = 0.0

    def __call__(self) -> float:
        return self.value

    def pass_by(self, seconds: float) -> None:
        self.value += seconds


def test_a_part_does_not_count_what_is_inside_it() -> None:
    now = FakeTime()
    clock = PartClock(now)
    clock.start()
    now.pass_by(1)
    with clock.part("outer"):
        now.pass_by(2)
        with clock.part("inner"):
            now.pass_by(4)
        now.pass_by(8)
        with clock.part("inner"):
            now.pass_by(16)
    now.pass_by(32)
    clock.stop()
    assert clock.seconds == {REST: 33.0, "outer": 10.0, "inner": 20.0}
    assert sum(clock.seconds.values()) == now.value


def test_within_charges_only_directly_inside_another_part() -> None:
    now = FakeTime()
    clock = PartClock(now)
    clock.start()
    for outside in ("loop", "elsewhere"):
        with clock.part(outside), clock.part("detail", within="loop"):
            now.pass_by(1)
    clock.stop()
    assert clock.seconds == {REST: 0.0, "loop": 0.0, "detail": 1.0, "elsewhere": 1.0}


def test_a_part_that_fails_is_closed() -> None:
    now = FakeTime()
    clock = PartClock(now)
    clock.start()

    def fail() -> None:
        with clock.part("a"):
            now.pass_by(1)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    now.pass_by(2)
    clock.stop()
    assert clock.seconds == {"a": 1.0, REST: 2.0}


def test_other_threads_are_not_charged_to_parts() -> None:
    now = FakeTime()
    clock = PartClock(now)
    clock.start()

    def work() -> None:
        with clock.part("a"):
            now.pass_by(5)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    clock.stop()
    assert clock.seconds == {REST: 5.0}


def test_the_busiest_thread_tells_the_passes() -> None:
    now = FakeTime()
    clock = ThreadClock(now)

    def work(forward: float, backward: float) -> None:
        for _ in range(2):
            with clock.part("forward"):
                now.pass_by(forward)
                with clock.part("backward"):
                    now.pass_by(backward)

    assert clock.busiest() == {}
    for seconds in ((1.0, 2.0), (3.0, 4.0), (0.5, 0.5)):
        thread = threading.Thread(target=work, args=seconds)
        thread.start()
        thread.join()
    assert clock.busiest() == {"forward": 6.0, "backward": 8.0}


def test_wrapped_functions_come_back() -> None:
    class Thing:
        def double(self, x: int) -> int:
            return 2 * x

    thing, entered = Thing(), []
    clock = PartClock(FakeTime())

    def context():
        entered.append(True)
        return clock.part("x")

    original = Thing.double
    with wrapped([(thing, "double", context), (Thing, "double", context)]):
        assert thing.double(4) == 8
        assert Thing().double(1) == 2
    assert "double" not in vars(thing)
    assert Thing.double is original
    assert len(entered) == 2  # the instance kept the class's own function from before


def test_spread() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0}
