"""Pictures, where OpenGL works without a display."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

import agents
import envs
from envs import LocomotionVectorEnv

SCRIPT = """
import sys; sys.path.insert(0, {root!r})
import numpy as np
from envs import LocomotionEnv, LocomotionVectorEnv
env = LocomotionEnv("centipede-6", render_mode="rgb_array")
env.reset(seed=0)
first = env.render()
state = env.get_state()
for _ in range(15):
    env.step(np.full(16, 0.5))
later = env.render()
env.set_state(state)
again = env.render()
print(first.shape, first.dtype, first.std() > 10, np.array_equal(first, later), np.array_equal(first, again))
env.close()
batch = LocomotionVectorEnv("centipede-3", 2, render_mode="rgb_array")
batch.reset(seed=0)
images = batch.render()
print(len(images), np.array_equal(*images))
batch.close()
"""


def test_pictures(tmp_path: Path) -> None:
    script = SCRIPT.format(root=str(Path(envs.__file__).parent.parent))
    for backend in ("egl", "osmesa"):
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True,
                              check=False, env={"MUJOCO_GL": backend, "PATH": ""})  # fmt: skip
        if done.returncode == 0:
            break
    else:
        pytest.skip(f"no OpenGL without a display here: {done.stderr.strip().splitlines()[-1]}")
    assert done.stdout.splitlines() == ["(480, 640, 3) uint8 True False True", "2 False"]


def render(mode: str) -> None:
    env = LocomotionVectorEnv("centipede-3", 1, render_mode=mode, num_threads=1)
    env.reset(seed=0)
    try:
        env.render()
    finally:
        env.close()


@pytest.mark.skipif(platform.system() != "Linux", reason="a display is named by DISPLAY on Linux only")
@pytest.mark.parametrize(
    ("mode", "chosen", "message"),
    [
        ("rgb_array", None, "glfw, which is taken while MUJOCO_GL is not set, needs a display .*: set MUJOCO_GL=egl"),
        ("rgb_array", "glfw", "MUJOCO_GL=glfw needs a display"),
        ("rgb_array", "disable", "MUJOCO_GL=disable is none of glfw, egl, osmesa: set MUJOCO_GL=egl"),
        ("human", None, "needs a display .*: use render_mode='rgb_array'"),
    ],
)
def test_nothing_to_draw_on_is_one_line(
    monkeypatch: pytest.MonkeyPatch, mode: str, chosen: str | None, message: str
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    if chosen is not None:
        monkeypatch.setenv("MUJOCO_GL", chosen)
    with pytest.raises(agents.UserError, match=message) as told:
        render(mode)
    assert "\n" not in str(told.value)


def test_a_backend_that_breaks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the library is there and no driver is."""
    from gymnasium.envs.mujoco import mujoco_rendering

    def broken(*arguments: object) -> None:
        raise RuntimeError("eglInitialize\nfailed")

    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setattr(mujoco_rendering.MujocoRenderer, "render", broken)
    with pytest.raises(agents.UserError, match=r"MUJOCO_GL=egl does not work here \(eglInitialize failed\): set"):
        render("rgb_array")


def test_a_display_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import glfw

    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setattr(glfw, "init", lambda: 0)
    with pytest.raises(agents.UserError, match="no window can be opened on the display ':99'"):
        render("human")


def test_a_window_shows_one_environment() -> None:
    with pytest.raises(agents.UserError, match="one environment, not 2"):
        LocomotionVectorEnv("centipede-3", 2, render_mode="human")
