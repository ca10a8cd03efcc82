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


def test_variations_of_own_bodies_go_by_short_names_wherever_the_command_runs(
    runs: tuple[Run, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "mine.yaml").write_text("test: [pendulum, pendulum+gear=2, centipede-6]\n")
    heavy = load(f"{tmp_path}/two/pendulum.xml+mass=2")
    assert choose_bodies(runs[1], ("pendulum+mass=2", "pendulum+mass=1")) == (heavy, runs[1].morphologies[0])
    assert choose_bodies(runs, ("pendulum+mass=2",)) == (load(f"{tmp_path}/one/pendulum.xml+mass=2"),)
    chosen = choose_bodies(runs[1], ("set:mine.yaml/test+mass=2",))
    assert [body.name for body in chosen] == ["pendulum+mass=2", "pendulum+mass=2+gear=2", "centipede-6+mass=2"]
    assert chosen[0] == heavy
    # A run on a variation knows the others too, and the body that they are made of.
    varied = Run(tmp_path, TrainConfig(), (heavy,))
    chosen = choose_bodies(varied, ("pendulum+mass=2", "pendulum+mass=2+gear=2", "pendulum"))
    assert [body.name for body in chosen] == ["pendulum+mass=2", "pendulum+mass=2+gear=2", "pendulum"]
    assert chosen[2] == runs[1].morphologies[0]
    with pytest.raises(UserError, match="unknown body 'pendulum'"):
        choose_bodies(Run(tmp_path, TrainConfig(), (load("centipede-4"),)), ("pendulum+mass=2",))
    with pytest.raises(UserError, match="mass=99 must be a number from"):
        choose_bodies(runs, ("pendulum+mass=99",))
