"""The drawing of a graph: no two nodes in one place, loops drawn apart, a PNG without any OpenGL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import agents
from agents.errors import UserError
from envs.robot import find_robot
from snowflake.inspection import drawing
from snowflake.inspection.report import inspect


def test_leaves_have_rows_of_their_own_and_parents_lie_between() -> None:
    position, loops = drawing.tidy_tree(6, [[0, 1], [1, 2], [1, 3], [0, 4], [4, 5]])
    assert position[:, 0].tolist() == [0, 1, 2, 2, 1, 2]
    assert position[[2, 3, 5], 1].tolist() == [0, 1, 2]
    assert position[1, 1] == 0.5
    assert position[0, 1] == (0.5 + 2) / 2
    assert loops == []


def test_loops_and_lone_nodes() -> None:
    position, loops = drawing.tidy_tree(5, [[0, 1], [0, 2], [1, 2]])
    assert loops == [[1, 2]]
    assert len(np.unique(position, axis=0)) == 5
    assert drawing.tidy_tree(1, [])[0].tolist() == [[0, 0]]


def test_a_drawing_without_opengl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.image

    def refuse(*arguments: object) -> None:
        raise UserError("nothing can be drawn here")

    monkeypatch.setattr(drawing, "robot_picture", refuse)
    report = inspect("ant", steps=0, output=tmp_path)
    path = tmp_path / "ant.png"
    assert report["drawing"] == str(path)
    assert [f["code"] for f in report["findings"] if f["severity"] == "note"] == ["no-rendering"]
    picture = matplotlib.image.imread(path)
    assert picture[..., :3].std() > 0.02
    assert [file.name for file in tmp_path.iterdir()] == ["ant.png"]


def test_links_of_equality_constraints_are_dashed(tmp_path: Path) -> None:
    """Two fingers that a joint constraint couples: the tree does not join them, the constraint may."""
    import matplotlib.image
    from matplotlib.colors import to_rgb

    finger = '<body><joint name="{}" axis="0 1 0"/><geom size=".1" pos="{} 0 .2"/></body>'
    hand = f"""<mujoco><worldbody><body name="palm"><geom size=".1"/>{finger.format("a", 0.2)}{finger.format("b", -0.2)}
    </body></worldbody><equality>{{}}</equality><actuator><motor joint="a" ctrlrange="-1 1"/></actuator></mujoco>"""
    for name, tie, links in (("tied", '<joint joint1="a" joint2="b"/>', [[1, 2]]), ("loose", "", [])):
        (tmp_path / f"{name}.xml").write_text(hand.format(tie))
        report = inspect(str(tmp_path / f"{name}.xml"), steps=0, output=tmp_path, rendering=False)
        assert (report["edges"], report["equality_edges"]) == ([[0, 1], [0, 2]], links)
        picture = matplotlib.image.imread(tmp_path / f"{name}.png")[..., :3]
        drawn = np.abs(picture - to_rgb(drawing.EQUALITY)).max(axis=2) < 0.02
        assert drawn.any() == bool(links)
        if links:  # dashes: gaps along the arc
            rows = drawn.any(axis=1)
            assert np.count_nonzero(np.diff(rows.astype(int)) == 1) > 3


def test_a_picture_goes_beside_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.image

    monkeypatch.setattr(drawing, "robot_picture", lambda *_: np.full((9, 9, 3), (250, 0, 0), np.uint8))
    report = inspect("centipede-4", steps=0)
    model = agents.load("centipede-4").compile()
    assert drawing.write_drawing(tmp_path / "a.png", model, report, find_robot(model)) is None
    picture = matplotlib.image.imread(tmp_path / "a.png")
    red = (picture[..., 0] > 0.95) & (picture[..., 1] < 0.05)
    assert red[:, picture.shape[1] // 2 :].mean() > 0.2
