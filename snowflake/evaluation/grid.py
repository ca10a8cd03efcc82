"""A video of several bodies at once, in a grid: one policy, one MP4, every body with its name and its own camera."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agents.errors import UserError
from envs import LocomotionVectorEnv
from snowflake.evaluation.rollout import Controller
from snowflake.evaluation.video import Stage, frame_interval, open_renderer, open_writer

GAP = 4
"""Pixels between two cells."""
SMALLEST = 32
"""Least width and height of a cell, in pixels."""
_PAPER = (255, 255, 255)
_BAND = 0.55  # opacity of the band behind a name
_LETTER = 0.055  # height of a name's letters, as a share of the cell's


@dataclass(frozen=True)
class Cell:
    """What one cell of the grid shows.

    Attributes:
        name: written into it.
        env: one environment; it starts again when an episode ends.
        controller: maps its observations (1, D) to actions (1, A).
    """

    name: str
    env: LocomotionVectorEnv
    controller: Controller


@dataclass(frozen=True)
class GridVideo:
    """A finished video of a grid.

    Attributes:
        path: the file.
        frames: number of pictures.
        fps: pictures per second.
        steps: control steps of each cell.
        returns: of each cell, the return of each episode that ended.
    """

    path: Path
    frames: int
    fps: float
    steps: tuple[int, ...]
    returns: tuple[tuple[float, ...], ...]


class Layout:
    """Where the cells lie in a picture: row by row, as many columns as make the cells widest, names at the top left.

    Attributes:
        columns, rows: of the grid.
        cell: width and height of a cell, in pixels.

    Args:
        names: of the cells, in order.
        width, height: of the picture, in pixels.

    Raises:
        UserError: the cells would be too small to show anything.
    """

    def __init__(self, names: Sequence[str], width: int, height: int) -> None:
        self.columns = math.ceil(math.sqrt(len(names)))
        self.rows = math.ceil(len(names) / self.columns)
        self.cell = ((width - GAP * (self.columns - 1)) // self.columns, (height - GAP * (self.rows - 1)) // self.rows)
        if min(self.cell) < SMALLEST:
            raise UserError(f"{len(names)} bodies do not fit into {width} x {height} pixels: film fewer, or larger")
        self._shape = (height, width, 3)
        self._names = [label(name, *self.cell) for name in names]

    def corner(self, index: int) -> tuple[int, int]:
        """Return the left and top pixel of a cell."""
        row, column = divmod(index, self.columns)
        return column * (self.cell[0] + GAP), row * (self.cell[1] + GAP)

    def compose(self, pictures: Sequence[np.ndarray]) -> np.ndarray:
        """Put a picture (cell height, cell width, 3) uint8 into each cell; cells left over stay white.

        Returns:
            (height, width, 3) uint8.
        """
        whole = np.empty(self._shape, dtype=np.uint8)
        whole[:] = _PAPER
        for index, (picture, name) in enumerate(zip(pictures, self._names, strict=True)):
            left, top = self.corner(index)
            whole[top : top + self.cell[1], left : left + self.cell[0]] = picture
            place = whole[top : top + name.shape[0], left : left + name.shape[1]]
            dark = place * (1 - _BAND)
            place[:] = (dark + (255 - dark) * name[..., None]).astype(np.uint8)
        return whole


def label(text: str, width: int, height: int) -> np.ndarray:
    """Return a name as the opacity of its letters, (h, w) float in [0, 1], cut to fit a cell of this size [pixels]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = max(9, round(_LETTER * height))
    figure = Figure(figsize=(width / 100, 1.7 * size / 100), dpi=100, facecolor="black")
    canvas = FigureCanvasAgg(figure)
    drawn = figure.text(size / 2 / width, 0.5, text, color="white", fontsize=size * 0.72, va="center", parse_math=False)
    box = drawn.get_window_extent(canvas.get_renderer())
    while box.x1 > width - size / 2 and len(text) > 1:
        text = text.removesuffix("…")[:-1] + "…" if len(text) > 2 else text[:1]
        drawn.set_text(text)
        box = drawn.get_window_extent(canvas.get_renderer())
    canvas.draw()
    opacity = np.asarray(canvas.buffer_rgba())[..., 0] / 255.0
    return opacity[: min(height, opacity.shape[0]), : min(width, round(box.x1 + size / 2))]


def record_grid(
    cells: Sequence[Cell],
    path: Path,
    *,
    seconds: float,
    seed: int = 0,
    size: tuple[int, int] = (960, 720),
    told: Callable[[int, int], None] | None = None,
) -> GridVideo:
    """Play controllers on their bodies side by side and write what happens as one MP4 (H.264).

    All cells share one clock, so that a second is a second in each, whatever the control steps; a body whose episode
    ends starts again at once, while the others go on.

    Args:
        cells: what to show, in order.
        path: the file; it appears when it is complete.
        seconds: simulated time.
        seed: of the first start state of every body.
        size: width and height of the picture in pixels, even numbers.
        told: called with the picture and the number of pictures.

    Raises:
        UserError: nothing can be drawn here, too many cells, or the file cannot be written.
    """
    layout = Layout([cell.name for cell in cells], *size)
    fps = max(1.0 / (cell.env.dt * frame_interval(cell.env.dt)) for cell in cells)
    frames = max(1, round(seconds * fps))
    with ExitStack() as stack:
        renderers = [stack.enter_context(open_renderer(cell.env, *layout.cell)) for cell in cells]
        writer = stack.enter_context(open_writer(path, fps))
        stages = [Stage(cell.env, cell.controller, at, seed) for cell, at in zip(cells, renderers, strict=True)]
        writer.append_data(layout.compose([stage.draw() for stage in stages]))
        for frame in range(1, frames + 1):
            for stage in stages:
                while stage.steps < math.floor(frame / fps / stage.env.dt + 1e-6):
                    stage.step()
            writer.append_data(layout.compose([stage.draw() for stage in stages]))
            if told is not None:
                told(frame, frames)
    steps, returns = tuple(stage.steps for stage in stages), tuple(tuple(stage.returns) for stage in stages)
    return GridVideo(path, frames + 1, fps, steps, returns)
