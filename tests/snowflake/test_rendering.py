"""Which OpenGL works is found by trying; the camera fits the body."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import agents
from agents.errors import UserError
from snowflake import rendering


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(rendering.WANTED, raising=False)
    monkeypatch.setattr(rendering.platform, "system", lambda: "Linux")
    rendering.find_backend.cache_clear()
    yield
    rendering.find_backend.cache_clear()


@pytest.mark.parametrize(
    ("wanted", "display", "tried"),
    [
        ("", "", ("egl", "osmesa")),
        ("osmesa", "", ("osmesa", "egl")),
        ("EGL", ":0", ("egl", "osmesa", "glfw")),
        ("glfw", "", ("glfw", "egl", "osmesa")),
        ("nonsense", "", ("egl", "osmesa")),
        ("off", ":0", ()),
    ],
)
def test_what_is_tried(wanted: str, display: str, tried: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", wanted)
    monkeypatch.setenv("DISPLAY", display)
    assert rendering.candidates() == tried


def test_the_first_that_works_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(rendering, "_try", lambda backend: "" if backend == "osmesa" else "no device")
    assert rendering.find_backend() == "osmesa"


def test_one_hint_when_none_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(rendering, "_try", lambda backend: "no device")
    with pytest.raises(UserError, match=r"libegl1 .* \(egl: no device; osmesa: no device\)") as error:
        rendering.find_backend()
    assert len(str(error.value).splitlines()) == 1
    rendering.find_backend.cache_clear()
    monkeypatch.setenv("MUJOCO_GL", "off")
    with pytest.raises(UserError, match="MUJOCO_GL=off: unset it"):
        rendering.find_backend()


def test_a_backend_that_dies_is_a_reason() -> None:
    assert "nowhere" in rendering._try("nowhere")


def test_the_sphere_holds_the_body() -> None:
    model = agents.load("centipede-6").compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    centre, radius = rendering.body_extent(model, data, np.arange(1, model.nbody))
    tips = data.geom_xpos[model.geom_bodyid > 0]
    assert (np.linalg.norm(tips - centre, axis=1) < radius).all()
    assert 0.5 < radius < 2.0
    assert centre == pytest.approx([0.5, 0.0, 0.75], abs=1e-6)


def test_a_body_without_anything_to_see_has_a_place() -> None:
    body = '<body pos="1 2 3"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body>'
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{body}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    centre, radius = rendering.body_extent(model, data, [1])
    assert (centre.tolist(), radius) == ([1, 2, 3], pytest.approx(0.05))
