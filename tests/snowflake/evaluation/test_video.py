"""Videos: real time, complete or not there, and never black, however many are made in one process."""

from __future__ import annotations

from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest

from agents.errors import UserError
from envs import LocomotionVectorEnv
from snowflake import rendering
from snowflake.evaluation import video


def controller(obs: np.ndarray) -> np.ndarray:
    return np.full((1, 6), 0.5, np.float32)


@pytest.mark.parametrize(("dt", "every"), [(0.05, 1), (1 / 60, 1), (0.01, 2), (0.002, 9), (0.5, 1)])
def test_playing_takes_as_long_as_the_motion(dt: float, every: int) -> None:
    assert video.frame_interval(dt) == every
    assert 1 / (every * dt) <= video.MAX_FPS + 1e-9


def test_three_videos_in_one_process_show_something(tmp_path: Path) -> None:
    try:
        rendering.find_backend()
    except UserError as error:
        pytest.skip(str(error))
    for number in range(3):
        env = LocomotionVectorEnv("centipede-3", 1, max_episode_steps=6, num_threads=1)
        path = tmp_path / f"{number}.mp4"
        made = video.record(env, controller, path, steps=8, seed=number, size=(64, 48))
        env.close()
        assert (made.frames, made.fps, made.steps, made.episodes) == (9, pytest.approx(20), 8, 1)
        frames = [np.asarray(frame, float) for frame in imageio.get_reader(path)]
        assert len(frames) == 9
        assert all(frame.std() > 10 for frame in frames)
        assert np.abs(frames[0] - frames[5]).max() > 30
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0.mp4", "1.mp4", "2.mp4"]


class FakeRenderer:
    """Stands in for OpenGL: counts pictures, and fails at the fourth."""

    def __init__(self, model: object, width: int, height: int, **_: object) -> None:
        self.shape, self.drawn = (height, width, 3), 0

    def __enter__(self) -> FakeRenderer:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def recentre(self) -> None: ...

    def draw(self, data: object) -> np.ndarray:
        self.drawn += 1
        if self.drawn == 4:
            raise UserError("the context is lost")
        return np.full(self.shape, 100, np.uint8)


def test_half_a_video_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "SceneRenderer", FakeRenderer)
    env = LocomotionVectorEnv("centipede-3", 1, num_threads=1)
    made = video.record(env, controller, tmp_path / "whole.mp4", steps=2, size=(64, 48))
    assert (made.frames, made.episodes) == (3, 0)
    with pytest.raises(UserError, match="lost"):
        video.record(env, controller, tmp_path / "half.mp4", steps=5, size=(64, 48))
    assert [file.name for file in tmp_path.iterdir()] == ["whole.mp4"]
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="folder cannot be made"):
        video.record(env, controller, tmp_path / "file" / "a.mp4", steps=1, size=(64, 48))
    env.close()
