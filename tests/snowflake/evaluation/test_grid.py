"""Videos of several bodies: every cell in its place with its name, one clock for all, an end of one stops no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import pytest

from agents.errors import UserError
from envs import LocomotionVectorEnv
from snowflake import rendering
from snowflake.evaluation import grid, video

BLUE, RED = (0, 0, 255), (255, 0, 0)


def plain(color: tuple[int, int, int], cell: tuple[int, int]) -> np.ndarray:
    return np.full((cell[1], cell[0], 3), color, np.uint8)


@pytest.mark.parametrize(
    ("count", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 2, 2), (5, 3, 2), (9, 3, 3)]
)
def test_pictures_lie_row_by_row_without_overlap(count: int, columns: int, rows: int) -> None:
    layout = grid.Layout([""] * count, 320, 240)
    assert (layout.columns, layout.rows) == (columns, rows)
    colors = [(20 * i, 5, 250 - 20 * i) for i in range(count)]
    whole = layout.compose([plain(color, layout.cell) for color in colors])
    assert (whole.shape, whole.dtype) == ((240, 320, 3), np.uint8)
    for index, color in enumerate(colors):
        left, top = layout.corner(index)
        cell = whole[top : top + layout.cell[1], left : left + layout.cell[0]]
        assert tuple(cell[-1, -1]) == tuple(cell[layout.cell[1] // 2, 0]) == color
        assert np.all(whole[:, left + layout.cell[0] : left + layout.cell[0] + grid.GAP] == 255)
    shown = sum((whole == color).all(axis=2).sum() for color in colors)
    assert shown > 0.7 * count * layout.cell[0] * layout.cell[1]
    if columns * rows > count:
        assert np.all(whole[-1, -1] == 255)  # nothing in the cells left over


def test_names_differ_stay_in_their_cells_and_are_cut_where_they_are_long() -> None:
    names = ["ant", "a body with a name that is much longer than its cell is wide", "ünïcode_$x^2$"]
    layout = grid.Layout(names, 320, 240)
    whole = layout.compose([plain(BLUE, layout.cell)] * 3)
    bands = []
    for index in range(3):
        left, top = layout.corner(index)
        cell = whole[top : top + layout.cell[1], left : left + layout.cell[0]]
        written = (cell != BLUE).any(axis=2)
        assert np.all(~written[40:])  # a name is at the top
        assert cell[written].max(axis=1).max() > 200  # and white on the band
        bands.append(cell[:20, :60].copy())
    assert not np.array_equal(bands[0], bands[1])
    widths = [grid.label(name, *layout.cell).shape[1] for name in ("ant", "antant", names[1])]
    assert widths[0] < widths[1] < widths[2] <= layout.cell[0]
    # Without names the pictures are untouched but for an empty band.
    assert grid.label("", 100, 80).max() == 0


def test_too_many_bodies_for_the_picture() -> None:
    with pytest.raises(UserError, match="9 bodies do not fit into 96 x 96 pixels: film fewer, or larger"):
        grid.Layout(["a"] * 9, 96, 96)


class Paint:
    """Stands in for OpenGL: draws how long the simulation has run, in hundredths of a second."""

    open = 0

    def __init__(self, model: object, width: int, height: int, **_: object) -> None:
        self.shape = (height, width, 3)
        self.jumps = 0

    def __enter__(self) -> Paint:
        Paint.open += 1
        return self

    def __exit__(self, *exception: object) -> None:
        Paint.open -= 1

    def recentre(self) -> None:
        self.jumps += 1

    def draw(self, data: Any) -> np.ndarray:
        return np.full(self.shape, round(100 * data.time), np.uint8)


class Frames(list[np.ndarray]):
    """Takes the frames of a video."""

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def append_data(self, im: np.ndarray) -> None:
        self.append(im)


def still(actions: int):
    return lambda obs: np.zeros((len(obs), actions), np.float32)


def test_one_clock_for_bodies_with_different_control_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Centipede steps every 50 ms, a hopper every 8 ms, and its episodes end often."""
    frames = Frames()
    monkeypatch.setattr(video, "SceneRenderer", Paint)
    monkeypatch.setattr(grid, "open_writer", lambda path, fps: frames)
    envs = [
        LocomotionVectorEnv("centipede-3", 1, num_threads=1),
        LocomotionVectorEnv("hopper", 1, max_episode_steps=20, num_threads=1),
    ]
    assert [env.dt for env in envs] == pytest.approx([0.05, 0.008])
    cells = [grid.Cell(str(i), env, still(env.single_action_space.shape[0])) for i, env in enumerate(envs)]
    told: list[tuple[int, int]] = []
    made = grid.record_grid(cells, tmp_path / "a.mp4", seconds=0.4, size=(128, 64), told=lambda *a: told.append(a))
    assert Paint.open == 0
    assert made.fps == pytest.approx(1 / 0.024)  # every third step of the hopper
    assert made.frames == len(frames) == 1 + round(0.4 / 0.024)
    assert told[-1] == (made.frames - 1, made.frames - 1)
    seconds = (made.frames - 1) / made.fps
    assert made.steps == (int(seconds / 0.05), int(seconds / 0.008 + 1e-6))
    assert len(made.returns[0]) == 0
    assert len(made.returns[1]) == made.steps[1] // 20  # and it went on with new episodes
    cell = grid.Layout(["0", "1"], 128, 64).cell
    clocks = [frame[-1, cell[0] // 2, 0] for frame in frames]
    assert clocks == [100 * 0.05 * int(i / made.fps / 0.05 + 1e-6) for i in range(len(frames))]
    for env in envs:
        env.close()


def test_a_grid_with_opengl_shows_each_body_moving(tmp_path: Path) -> None:
    try:
        rendering.find_backend()
    except UserError as error:
        pytest.skip(str(error))
    envs = [LocomotionVectorEnv(name, 1, num_threads=1) for name in ("centipede-3", "centipede-5", "ant")]
    cells = [grid.Cell(env.morphology.name, env, still(env.single_action_space.shape[0])) for env in envs]
    path = tmp_path / "grid.mp4"
    made = grid.record_grid(cells, path, seconds=0.2, size=(160, 120))
    frames = [np.asarray(frame, float) for frame in imageio.get_reader(path)]
    assert len(frames) == made.frames
    layout = grid.Layout([cell.name for cell in cells], 160, 120)
    for index in range(3):
        left, top = layout.corner(index)
        part = (slice(top, top + layout.cell[1]), slice(left, left + layout.cell[0]))
        assert frames[0][part].std() > 10
        assert np.abs(frames[0][part] - frames[-1][part]).max() > 30
    assert frames[0][80:, 100:].min() > 240  # the cell left over
    for env in envs:
        env.close()
