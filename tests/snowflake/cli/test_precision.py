"""`--precision` on the commands that run a trained policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from snowflake.cli import main
from snowflake.cli.bench import parse_bench
from snowflake.cli.train import parse_train
from snowflake.cli.video import WatchFlags, open_watched
from snowflake.evaluation.player import make_players
from snowflake.ppo.train import resume, train
from snowflake.run import Run
from tests.snowflake.ppo.helpers import tiny_config

SMALL = {"hidden_size": 8, "propagation_steps": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = tiny_config(precision="fp8-amax", policy=SMALL, env={"max_episode_steps": 12}, total_timesteps=64)
    return train(config, tmp_path_factory.mktemp("runs") / "run", progress=False)


def notes_of(run: Run, command: str, *flags: str, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[float]]:
    assert main([command, str(run.path), "--episodes", "2", "--num-threads", "1", "--json", *flags]) == 0
    result = json.loads(capsys.readouterr().out)
    bodies = result["bodies"]
    return result["notes"], [sum(body["policies"]["mean_action"]["episodes"]["returns"]) for body in bodies]


def test_a_run_is_evaluated_as_trained_or_by_another_recipe(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    as_trained, returns = notes_of(run, "evaluate", capsys=capsys)
    assert any("precision fp8-amax: products are emulated on cpu" in note for note in as_trained)
    same, again = notes_of(run, "evaluate", "--precision", "fp8-amax", capsys=capsys)
    plain, exact = notes_of(run, "evaluate", "--precision", "fp32", capsys=capsys)
    assert (same, again) == (as_trained, returns)
    assert not any("precision" in note for note in plain)
    assert exact != returns


def test_other_bodies_too(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--to", "centipede-6", "--sibling-orders", "1", "--precision")
    rough, returns = notes_of(run, "transfer", *flags, "bf16", capsys=capsys)
    _, exact = notes_of(run, "transfer", *flags, "fp32", capsys=capsys)
    assert any("precision bf16" in note for note in rough)
    assert len(returns) == 2
    assert all(a != b for a, b in zip(returns, exact, strict=True))


def test_players_of_videos_and_windows_are_converted(run: Run) -> None:
    flags = WatchFlags(run=str(run.path), agents=("centipede-4", "centipede-6"), precision="fp8-cscale")
    opened, bodies = open_watched(flags)
    for player in make_players(opened, bodies):
        assert player.controller.policy.numerics.recipe.name == "fp8-cscale"
        player.env.close()


def test_a_run_goes_on_by_another_recipe(run: Run, tmp_path: Path) -> None:
    copy = train(run.config, tmp_path / "copy", progress=False)
    resumed = resume(copy.path, 128, precision="bf16", progress=False)
    assert Run.open(resumed.path).config.precision == "bf16"
    assert resumed.index()["last"] == 128


def test_training_and_bench_take_a_recipe() -> None:
    assert parse_train(["--precision", "fp8-mor", "--statistics-every", "5"])[0].numerics.statistics_every == 5
    _, config, given = parse_bench(["--precision", "bf16"])
    assert (config.precision, given[-2:]) == ("bf16", ["--precision", "bf16"])


@pytest.mark.parametrize(
    ("precision", "words"), [("fp8", "is not a choice"), ("fp8-unit", "is for unit-scaled networks")]
)
def test_a_recipe_that_does_not_suit_is_one_line(
    run: Run, precision: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("evaluate", "video", "play", "resume"):
        assert main([command, str(run.path), "--precision", precision]) == 2
        told = capsys.readouterr().err
        assert words in told
        assert told.count("\n") == 1
