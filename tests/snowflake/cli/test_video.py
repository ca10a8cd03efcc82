"""``snowflake video``: one file whatever the number of bodies, and which policy moves which."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.errors import UserError
from snowflake.cli.parsing import parse
from snowflake.cli.video import VideoFlags, open_watched, video_path

SHIPPED = "pretrained:centipede-6"


def flags(*argv: str) -> VideoFlags:
    return parse(VideoFlags, argv, "snowflake video")


def test_one_file_for_any_number_of_bodies(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert video_path(flags(SHIPPED), run, ["ant"]) == run / "videos" / "ant.mp4"
    assert video_path(flags(SHIPPED), run, ["ant", "my body"]) == run / "videos" / "ant+my_body.mp4"
    many = video_path(flags(SHIPPED), run, [f"centipede-{n}" for n in range(3, 60)])
    assert len(many.name) < 120
    assert video_path(flags(SHIPPED, "--output", "x.mp4"), run, ["a", "b"]) == Path("x.mp4")
    assert video_path(flags(SHIPPED, "--output", str(tmp_path)), run, ["a", "b"]) == tmp_path / "a+b.mp4"


@pytest.mark.parametrize(
    ("output", "message"), [("x.avi", "ends in .mp4"), ("folder.mp4", "is a folder"), ("file", "is a file")]
)
def test_places_where_no_video_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.mp4").mkdir()
    Path("file").touch()
    with pytest.raises(UserError, match=message):
        video_path(flags(SHIPPED, "--output", output), tmp_path, ["a"])


def test_bodies_are_the_runs_own_or_those_named() -> None:
    run, bodies = open_watched(flags(SHIPPED))
    assert bodies == run.morphologies
    _, bodies = open_watched(flags(SHIPPED, "--agents", "centipede-8", "centipede-6"))
    assert [body.name for body in bodies] == ["centipede-8", "centipede-6"]
    assert [run.own_index(body) for body in bodies] == [None, 0]
    with pytest.raises(UserError, match="unknown body 'centipde-8'"):
        open_watched(flags(SHIPPED, "--agents", "centipde-8"))


def test_one_policy_drives_own_bodies_by_their_index_and_others_zero_shot() -> None:
    import numpy as np

    from snowflake.evaluation.player import make_players

    run, bodies = open_watched(flags(SHIPPED, "--agents", "centipede-8", "centipede-6"))
    other, own = make_players(run, bodies)
    assert (other.zero_shot, own.zero_shot) == (True, False)
    for player, width in ((other, 22), (own, 16)):
        obs, _ = player.env.reset(seed=0)
        assert player.controller(obs).shape == (1, width)
        assert np.any(player.controller(obs))
        player.env.close()
    weights, moved = own.controller.policy.actor.state_dict(), other.controller.policy.actor.state_dict()
    assert all(bool((weights[name] == moved[name]).all()) for name in weights)
