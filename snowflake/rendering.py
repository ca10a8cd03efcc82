"""Pictures without a display: a backend that works here, found by trying, and a camera that fits the body.

MuJoCo binds OpenGL when it is imported, to what MUJOCO_GL says, and a backend that does not work may take the process
down. So each backend is tried in a process of its own, and OpenGL is loaded here only when the first picture is drawn.
"""

from __future__ import annotations

import functools
import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from agents.errors import UserError

HEADLESS = ("egl", "osmesa")
"""Backends that need no display, in the order in which they are tried."""

WANTED = "SNOWFLAKE_GL"
"""Environment variable that keeps what MUJOCO_GL said, where the command line took it out of MuJoCo's sight."""

BACKGROUND = (0.93, 0.94, 0.96)
"""Colour behind the scene of a model that has no sky."""

_OFF = ("disable", "disabled", "off", "false", "0")
_PROBE_SECONDS = 60
_VISIBLE_GROUPS = 3  # of geoms; MuJoCo draws groups 0, 1 and 2 unless told otherwise


def wanted_backend() -> str:
    """Return the backend that the user named in MUJOCO_GL, `""` for none."""
    return os.environ.get(WANTED, os.environ.get("MUJOCO_GL", "")).lower().strip()


def candidates() -> tuple[str, ...]:
    """Return the backends to try here, the one named in MUJOCO_GL first; none if it switches rendering off."""
    wanted = wanted_backend()
    if wanted in _OFF:
        return ()
    known = HEADLESS if platform.system() == "Linux" else ()
    if platform.system() == "Darwin":
        known = ("cgl",)
    if platform.system() == "Windows" or os.environ.get("DISPLAY") or wanted == "glfw":
        known = (*known, "glfw")
    return tuple(dict.fromkeys((wanted, *known) if wanted in known else known))


@functools.cache
def find_backend() -> str:
    """Return the first backend that draws a picture here, as tried in processes of their own.

    Raises:
        UserError: none does; says what to do.
    """
    reasons = []
    for backend in candidates():
        reason = _try(backend)
        if not reason:
            return backend
        reasons.append(f"{backend}: {reason}")
    if not reasons:
        raise UserError(f"rendering is switched off by MUJOCO_GL={wanted_backend()}: unset it, or set MUJOCO_GL=egl")
    raise UserError(
        "nothing can be drawn here, no OpenGL backend works: install EGL (on Debian and Ubuntu: apt-get install "
        f"libegl1 libgl1-mesa-dri) or OSMesa (libosmesa6) ({'; '.join(reasons)})"
    )


def _try(backend: str) -> str:
    """Return why a backend does not work, `""` if it does."""
    script = f"from snowflake.rendering import probe; probe({backend!r})"
    # Not the backend's name: MuJoCo would load it at import, where its failure is a traceback of another kind.
    setting = {"MUJOCO_GL": "disable", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment = {key: value for key, value in os.environ.items() if key != "PYOPENGL_PLATFORM"} | setting
    try:
        done = subprocess.run([sys.executable, "-P", "-c", script], env=environment, capture_output=True, text=True,
                              timeout=_PROBE_SECONDS, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer in {_PROBE_SECONDS} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1][:160] if lines else f"the process died with code {done.returncode}"


def probe(backend: str) -> None:
    """Draw a small picture in this process and check that it shows something.

    Raises:
        RuntimeError: the picture is empty. What else is raised is the backend's own.
    """
    text = '<mujoco><worldbody><geom type="sphere" size=".3" rgba="1 0 0 1"/></worldbody></mujoco>'
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with SceneRenderer(model, 64, 64, backend=backend) as renderer:
        if renderer.draw(data).std() < 1:
            raise RuntimeError("the picture is empty")


def body_extent(model: mujoco.MjModel, data: mujoco.MjData, bodies: Sequence[int] | np.ndarray) -> Any:
    """Return centre (3,) [m] and radius [m] of a sphere around what is drawn of some bodies."""
    geoms = np.isin(model.geom_bodyid, bodies) & (model.geom_group < _VISIBLE_GROUPS) & (model.geom_rbound > 0)
    points, reach = data.geom_xpos[geoms], model.geom_rbound[geoms]
    if not len(points):
        points = data.xpos[np.asarray(bodies)]
        reach = np.full(len(points), 0.05)
    low, high = (points - reach[:, None]).min(axis=0), (points + reach[:, None]).max(axis=0)
    centre = (low + high) / 2
    # A mesh's bound is often loose: the box's half diagonal may be smaller than the farthest bound.
    radius = min((np.linalg.norm(points - centre, axis=1) + reach).max(), float(np.linalg.norm(high - low)) / 2)
    return centre, float(max(radius, 1e-3))


class SceneRenderer:
    """Draws states of one model, with a camera that stands where the body fills the picture and follows it.

    Every instance has an OpenGL context of its own: close one before the next is made, or use it as a context manager.

    Args:
        model: the model; a copy is kept.
        width, height: size of the pictures, in pixels.
        bodies: ids of the bodies to look at; all but the world if not given.
        backend: name of an OpenGL backend; found by `find_backend` if not given.
        follow: share of the way to the body that the camera goes at each picture.

    Raises:
        UserError: nothing can be drawn here.
    """

    azimuth, elevation = 120.0, -22.0

    def __init__(
        self,
        model: mujoco.MjModel,
        width: int = 640,
        height: int = 480,
        *,
        bodies: Sequence[int] | np.ndarray | None = None,
        backend: str | None = None,
        follow: float = 0.25,
    ) -> None:
        self._gl: Any = None
        self._context: Any = None
        backend = backend or find_backend()
        self._model = _prepared(model, width, height)
        self._data = mujoco.MjData(self._model)
        everything = np.arange(min(1, model.nbody - 1), model.nbody)
        self._bodies = np.asarray(everything if bodies is None else bodies, dtype=np.int64)
        self._follow = follow
        self._radius = 0.0
        self._jump = False
        self._sky = bool(np.any(model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX))
        self._gl = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
        self._gl.make_current()
        self._context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._scene = mujoco.MjvScene(self._model, maxgeom=max(10_000, 4 * model.ngeom))
        self._option, self._camera = mujoco.MjvOption(), mujoco.MjvCamera()
        self._rectangle = mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.zeros((height, width, 3), dtype=np.uint8)
        self._depth = np.zeros((height, width), dtype=np.float32)

    def draw(self, data: mujoco.MjData) -> np.ndarray:
        """Return the picture of a state, (height, width, 3) uint8."""
        scene = self._data
        scene.qpos[:], scene.qvel[:], scene.act[:] = data.qpos, data.qvel, data.act
        scene.mocap_pos[:], scene.mocap_quat[:] = data.mocap_pos, data.mocap_quat
        mujoco.mj_kinematics(self._model, scene)  # a step leaves positions that lag its end
        mujoco.mj_comPos(self._model, scene)
        mujoco.mj_camlight(self._model, scene)
        mujoco.mj_tendon(self._model, scene)
        self._aim(scene)
        self._gl.make_current()
        mujoco.mjv_updateScene(self._model, scene, self._option, None, self._camera,
                               mujoco.mjtCatBit.mjCAT_ALL.value, self._scene)  # fmt: skip
        mujoco.mjr_render(self._rectangle, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, self._depth, self._rectangle, self._context)
        if not self._sky:
            self._pixels[self._depth >= 1.0] = np.multiply(BACKGROUND, 255).astype(np.uint8)
        return np.flipud(self._pixels).copy()

    def _aim(self, data: mujoco.MjData) -> None:
        centre, radius = body_extent(self._model, data, self._bodies)
        if not np.isfinite(centre).all() or not np.isfinite(radius):
            return
        if not self._radius:
            self._radius = radius
            self._camera.lookat[:] = centre
            self._camera.azimuth, self._camera.elevation = self.azimuth, self.elevation
            narrow = min(1.0, self._rectangle.width / self._rectangle.height)
            half_angle = np.deg2rad(self._model.vis.global_.fovy) / 2
            self._camera.distance = 1.15 * radius / np.sin(np.arctan(np.tan(half_angle) * narrow))
            # Clipping planes are shares of the extent; a model's own may be a huge floor or a tiny part.
            self._model.stat.extent = max(2 * radius, 1e-3)
        self._camera.lookat[:] += (1.0 if self._jump else self._follow) * (centre - self._camera.lookat)
        self._jump = False

    def recentre(self) -> None:
        """Let the next picture look straight at the body, wherever it is: an episode has started."""
        self._jump = True

    def close(self) -> None:
        """Free the OpenGL context."""
        if self._context is not None:
            self._gl.make_current()
            self._context.free()
            self._context = None
        if self._gl is not None:
            self._gl.free()
            self._gl = None

    def __enter__(self) -> SceneRenderer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _prepared(model: mujoco.MjModel, width: int, height: int) -> mujoco.MjModel:
    """Return a copy of a model that can be drawn in this size, with light where it has none."""
    import copy

    changed = copy.copy(model)
    changed.vis.global_.offwidth = max(changed.vis.global_.offwidth, width)
    changed.vis.global_.offheight = max(changed.vis.global_.offheight, height)
    if not model.nlight:
        changed.vis.headlight.ambient[:], changed.vis.headlight.diffuse[:] = 0.35, 0.6
    return changed
