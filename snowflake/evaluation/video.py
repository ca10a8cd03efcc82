"""Videos of a policy: one body, one MP4, drawn without a display."""

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
    if env.num_envs != 1:
        raise ValueError(f"a video shows one environment, not {env.num_envs}")
    every = frame_interval(env.dt)
    fps = 1.0 / (env.dt * every)
    robot = getattr(env, "robot", None)
    # A renderer of its own for every video: a context that outlives its model draws black.
    with (
        SceneRenderer(env.model, *size, bodies=None if robot is None else robot.bodies) as renderer,
        _writer(path, fps) as writer,
    ):
        return _play(env, controller, path, renderer, writer, steps, seed, every, fps, told)


def _play(
    env: LocomotionVectorEnv,
    controller: Controller,
    path: Path,
    renderer: SceneRenderer,
    writer: FrameWriter,
    steps: int,
    seed: int,
    every: int,
    fps: float,
    told: Callable[[int, int], None] | None,
) -> Video:
    begin = getattr(controller, "begin", None)
    if begin is not None:
        begin()
    obs, _ = env.reset(seed=seed)
    writer.append_data(renderer.draw(env.physics.data[0]))
    frames, total, returns = 1, 0.0, []
    for step in range(1, steps + 1):
        obs, rewards, terminated, truncated, _ = env.step(np.asarray(controller(obs)))
        total += float(rewards[0])
        if terminated[0] or truncated[0]:
            returns.append(total)
            total = 0.0
            if begin is not None:
                begin()
            renderer.recentre()
        if step % every == 0:
            writer.append_data(renderer.draw(env.physics.data[0]))
            frames += 1
        if told is not None:
            told(step, steps)
    return Video(path, frames, fps, steps, len(returns), tuple(returns))


@contextmanager
def _writer(path: Path, fps: float) -> Iterator[FrameWriter]:
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
