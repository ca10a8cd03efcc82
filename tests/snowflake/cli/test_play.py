"""``snowflake play``: one line without a display; with a window, it plays until the window closes."""

from __future__ import annotations

import contextlib
import platform
from types import SimpleNamespace

import numpy as np
import pytest

from agents.errors import UserError
from envs import LocomotionVectorEnv
from snowflake.cli import play


class Window:
    """What `mujoco.viewer.launch_passive` returns, without a window: open for some frames."""

    def __init__(self, frames: int) -> None:
        self.frames, self.synced, self.closed = frames, 0, False
        self.cam = SimpleNamespace(type=None, trackbodyid=-1)

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *exception: object) -> None:
        self.closed = True

    def is_running(self) -> bool:
        return self.synced < self.frames

    def lock(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def sync(self) -> None:
        self.synced += 1


class Zero:
    """A controller that counts its episodes."""

    episodes = 0

    def begin(self) -> None:
        self.episodes += 1

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        return np.zeros((1, 6), np.float32)


def test_it_plays_until_the_window_closes() -> None:
    env = LocomotionVectorEnv("centipede-3", 1, max_episode_steps=4, num_threads=1)
    controller, window = Zero(), Window(10)
    assert play.watch(env, controller, window, speed=100.0) == 10
    assert window.closed
    assert window.cam.trackbodyid == env.robot.root_body
    assert controller.episodes == 1 + 10 // 4


@pytest.mark.skipif(platform.system() != "Linux", reason="displays are told apart by DISPLAY on Linux only")
def test_no_display_is_one_line_that_offers_the_video(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match=r"no display .* `snowflake video runs/x`"):
        play.require_display("runs/x")
    monkeypatch.setenv("DISPLAY", ":0")
    play.require_display("runs/x")
