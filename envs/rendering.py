"""Pictures of the environments. OpenGL is imported at the first frame, never before."""

from __future__ import annotations

import importlib
import os
import platform
import warnings
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from agents.errors import UserError

MODES = ("human", "rgb_array")
WIDTH, HEIGHT = 640, 480
_BACKENDS = ("glfw", "egl", "osmesa")
_HINT = (
    "set MUJOCO_GL=egl or MUJOCO_GL=osmesa before Python starts (apt-get install libegl1 libgl1-mesa-dri, libosmesa6)"
)


def check_backend() -> None:
    """Require that MUJOCO_GL names an OpenGL that can work here without a window.

    Raises:
        UserError: it does not; glfw, which is taken where nothing is named, needs a display.
    """
    chosen = os.environ.get("MUJOCO_GL")
    if chosen is not None and chosen not in _BACKENDS:
        raise UserError(f"render_mode 'rgb_array': MUJOCO_GL={chosen} is none of {', '.join(_BACKENDS)}: {_HINT}")
    if chosen in (None, "glfw") and not _has_display():
        raise UserError(f"render_mode 'rgb_array': {_chosen()} needs a display and there is none: {_HINT}")


def check_window() -> None:
    """Require that a window can be opened: GLFW would take the process down.

    Raises:
        UserError: it cannot.
    """
    instead = "use render_mode='rgb_array', with MUJOCO_GL=egl where there is no display"
    if not _has_display():
        raise UserError(f"render_mode 'human' needs a display (DISPLAY is not set) for its window: {instead}")
    glfw = importlib.import_module("glfw")  # MuJoCo brings it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not glfw.init():
            display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY", "")
            raise UserError(f"render_mode 'human': no window can be opened on the display {display!r}: {instead}")


def _has_display() -> bool:
    return platform.system() != "Linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _chosen() -> str:
    named = os.environ.get("MUJOCO_GL")
    return f"MUJOCO_GL={named}" if named else "glfw, which is taken while MUJOCO_GL is not set,"


class Renderer:
    """Draws `mujoco.MjData` of one model with Gymnasium's MuJoCo renderer.

    Args:
        model: the model. A camera named "track" is used if there is one.
        mode: `"human"` (a window) or `"rgb_array"`.
        num_envs: environments to draw; a window shows one.

    Raises:
        UserError: another mode, or a window for several environments.
    """

    def __init__(self, model: mujoco.MjModel, mode: str, num_envs: int) -> None:
        if mode not in MODES:
            raise UserError(f"render_mode {mode!r}: choose from {', '.join(MODES)}")
        if mode == "human" and num_envs > 1:
            raise UserError(f"render_mode 'human' shows one environment, not {num_envs}: use 'rgb_array'")
        self._model = model
        self._mode = mode
        self._scene = mujoco.MjData(model)
        self._renderer: Any = None

    def render(self, data: Sequence[mujoco.MjData]) -> tuple[np.ndarray, ...] | None:
        """Return one image (480, 640, 3) uint8 per element, or `None` in human mode.

        Raises:
            UserError: nothing can be drawn here; says what to set.
        """
        if self._renderer is None:
            check_window() if self._mode == "human" else check_backend()
        images = []
        for source in data:
            mujoco.mj_copyData(self._scene, self._model, source)
            mujoco.mj_kinematics(self._model, self._scene)  # a step leaves positions that lag its end
            mujoco.mj_comPos(self._model, self._scene)
            mujoco.mj_camlight(self._model, self._scene)
            try:
                images.append(self._draw())
            except Exception as error:  # every backend fails in its own way
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                raise UserError(
                    f"render_mode {self._mode!r}: {_chosen()} does not work here ({reason}): {_HINT}"
                ) from error
        return tuple(images) if self._mode == "rgb_array" else None

    def _draw(self) -> np.ndarray | None:
        if self._renderer is None:
            from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

            track = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
            self._renderer = MujocoRenderer(
                self._model, self._scene, width=WIDTH, height=HEIGHT, camera_id=track if track >= 0 else None
            )
        return self._renderer.render(self._mode)

    def close(self) -> None:
        """Free the OpenGL contexts."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
