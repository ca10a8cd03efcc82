"""A run knows its own bodies by their short names, files included."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents import UserError, load
from snowflake.config import TrainConfig
from snowflake.evaluation.choice import choose_bodies
from snowflake.run import Run

MJCF = (
    '<mujoco><worldbody><body name="a"><geom size="{size}"/><joint name="j" axis="0 1 0"/></body></worldbody>'
    '<actuator><motor joint="j" ctrlrange="-1 1"/></actuator></mujoco>'
)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    """Runs on `pendulum` files of two sizes, and on centipede-4."""
    bodies = []
    for folder, size in (("one", 0.1), ("two", 0.2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pendulum.xml").write_text(MJCF.format(size=size))
        bodies.append(load(str(tmp_path / folder / "pendulum.xml")))
    return Run(tmp_path, TrainConfig(), (bodies[0], load("centipede-4"))), Run(tmp_path, TrainConfig(), (bodies[1],))


def test_own_bodies_go_by_their_short_names(runs: tuple[Run, Run]) -> None:
    run, other = runs
    chosen = choose_bodies(run, ("centipede-6", "pendulum", "centipede-4", "pendulum"))
    assert [body.name for body in chosen] == ["centipede-6", "pendulum", "centipede-4"]
    assert chosen[1] is run.morphologies[0]
    assert choose_bodies(runs, ("pendulum",)) == (run.morphologies[0],)
    assert choose_bodies((other, run), ("pendulum",)) == (other.morphologies[0],)
    assert choose_bodies(run, ()) == ()


def test_what_is_unknown_or_ambiguous_is_told(runs: tuple[Run, Run], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pendulumm"):
        choose_bodies(runs[0], ("pendulumm",))
    with pytest.raises(UserError, match="two bodies are called 'pendulum'"):
        choose_bodies(runs[0], ("pendulum", str(tmp_path / "two" / "pendulum.xml")))
