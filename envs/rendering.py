"""Pictures of the environments. OpenGL is imported at the first frame, never before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from agents.errors import UserError

MODES = ("human", "rgb_array")
WIDTH, HEIGHT = 640, 480


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
        """Return one image (480, 640, 3) uint8 per element, or `None` in human mode."""
        if self._renderer is None:
            from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

            track = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
            self._renderer = MujocoRenderer(
                self._model, self._scene, width=WIDTH, height=HEIGHT, camera_id=track if track >= 0 else None
            )
        images = []
        for source in data:
            mujoco.mj_copyData(self._scene, self._model, source)
            mujoco.mj_kinematics(self._model, self._scene)  # a step leaves positions that lag its end
            mujoco.mj_comPos(self._model, self._scene)
            mujoco.mj_camlight(self._model, self._scene)
            images.append(self._renderer.render(self._mode))
        return tuple(images) if self._mode == "rgb_array" else None

    def close(self) -> None:
        """Free the OpenGL contexts."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
