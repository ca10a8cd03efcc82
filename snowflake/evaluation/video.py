"""Videos of a policy on one body, drawn without a display; `grid` shows several at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from agents.errors import UserError
from envs import LocomotionVectorEnv
from snowflake.evaluation.rollout import Controller
from snowflake.files import replacing
from snowflake.rendering import SceneRenderer

MAX_FPS = 60
"""Frames per second at most; faster control loops are shown every second, third, ... step, in real time."""


class FrameWriter(Protocol):
    """What takes the frames, as `imageio`'s writer does."""

    def append_data(self, im: np.ndarray) -> Any:
        """Take one frame (height, width, 3) uint8."""
        ...


@dataclass(frozen=True)
class Video:
    """A finished video.

    Attributes:
        path: the file.
        frames: number of pictures.
        fps: pictures per second.
        steps: control steps shown.
        episodes: episodes that ended in them.
        returns: return of each of these episodes.
    """

    path: Path
    frames: int
    fps: float
    steps: int
    episodes: int
    returns: tuple[float, ...]


def frame_interval(dt: float) -> int:
    """Return every how many control steps of dt [s] a frame is shown, so that playing takes as long as the motion."""
    return max(1, int(np.ceil(1.0 / (MAX_FPS * dt) - 1e-6)))


class Stage:
    """One body, the controller that moves it and the camera that follows it, step by step.

    An episode that ends starts again at once, and the camera jumps to the new start.

    Args:
        env: one environment.
        controller: maps observations (1, D) to actions (1, A).
        renderer: draws its states.
        seed: of the first start state.
    """

    def __init__(self, env: LocomotionVectorEnv, controller: Controller, renderer: SceneRenderer, seed: int) -> None:
        if env.num_envs != 1:
            raise ValueError(f"a video shows one environment of a body, not {env.num_envs}")
        self.env, self.renderer = env, renderer
        self.steps = 0
        self.returns: list[float] = []
        self._controller, self._total = controller, 0.0
        self._begin()
        self._obs, _ = env.reset(seed=seed)

    def _begin(self) -> None:
        begin = getattr(self._controller, "begin", None)
        if begin is not None:
            begin()

    def step(self) -> None:
        """Advance by one control step."""
        self._obs, rewards, terminated, truncated, _ = self.env.step(np.asarray(self._controller(self._obs)))
        self.steps += 1
        self._total += float(rewards[0])
        if terminated[0] or truncated[0]:
            self.returns.append(self._total)
            self._total = 0.0
            self._begin()
            self.renderer.recentre()

    def draw(self) -> np.ndarray:
        """Return the picture of the state, (height, width, 3) uint8."""
        return self.renderer.draw(self.env.physics.data[0])


def open_renderer(env: LocomotionVectorEnv, width: int, height: int) -> SceneRenderer:
    """Return a renderer of its own for an environment: a context that outlives its model draws black."""
    robot = getattr(env, "robot", None)
    return SceneRenderer(env.model, width, height, bodies=None if robot is None else robot.bodies)


def record(
    env: LocomotionVectorEnv,
    controller: Controller,
    path: Path,
    *,
    steps: int,
    seed: int = 0,
    size: tuple[int, int] = (960, 720),
    told: Callable[[int, int], None] | None = None,
) -> Video:
    """Play a controller in an environment and write what happens as an MP4 (H.264).

    Args:
        env: one environment; it starts again when an episode ends.
        controller: maps observations (1, D) to actions (1, A).
        path: the file; it appears when it is complete.
        steps: control steps.
        seed: of the first start state.
        size: width and height in pixels, even numbers.
        told: called with the step and the number of steps.

    Raises:
        UserError: nothing can be drawn here, or the file cannot be written.
    """
    every = frame_interval(env.dt)
    fps = 1.0 / (env.dt * every)
    with open_renderer(env, *size) as renderer, open_writer(path, fps) as writer:
        stage = Stage(env, controller, renderer, seed)
        writer.append_data(stage.draw())
        frames = 1
        for step in range(1, steps + 1):
            stage.step()
            if step % every == 0:
                writer.append_data(stage.draw())
                frames += 1
            if told is not None:
                told(step, steps)
    return Video(path, frames, fps, steps, len(stage.returns), tuple(stage.returns))


@contextmanager
def open_writer(path: Path, fps: float) -> Iterator[FrameWriter]:
    """Yield a writer to a temporary file that takes the name `path` when all went well."""
    import imageio.v2 as imageio

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"video {path}: its folder cannot be made ({error.strerror or error})") from error
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"video {path}: the folder cannot be written to, choose another --output")
    with replacing(path) as temporary:
        writer: Any = imageio.get_writer(
            temporary, format="FFMPEG", mode="I", fps=fps, codec="libx264", quality=7, macro_block_size=2
        )
        try:
            yield writer
        finally:
            writer.close()
