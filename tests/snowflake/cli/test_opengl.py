"""Commands that draw nothing run whatever MUJOCO_GL says; training loads no OpenGL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import snowflake
from snowflake.ppo.train import train
from tests.snowflake.ppo.helpers import tiny_config

ROOT = str(Path(snowflake.__file__).parent.parent)
# As where the library is not installed: its Python binding dies of an AttributeError when it is imported.
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "OpenGL":
            raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")
sys.meta_path.insert(0, Missing())
"""


def run(script: str, backend: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": ROOT, "MUJOCO_GL": backend}
    environment.pop("SNOWFLAKE_GL", None)
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + script], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("backend", ["egl", "osmesa", "nonsense"])
def test_a_broken_backend_stops_no_command_that_draws_nothing(backend: str) -> None:
    done = run("from snowflake.cli import main; import mujoco; sys.exit(main(['agents', '--help']))", backend)
    assert (done.returncode, done.stderr) == (0, "")
    assert run("import mujoco", backend).returncode != 0  # what would have happened
    asked = run("import snowflake.cli; from snowflake import rendering; print(rendering.wanted_backend())", backend)
    assert asked.stdout == f"{backend}\n"


def test_training_loads_no_opengl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = ("OpenGL", "gymnasium.envs.mujoco.mujoco_rendering", "snowflake.rendering", "imageio")
    for name in [name for name in sys.modules if name.startswith((*drawing, "mujoco.egl", "mujoco.osmesa"))]:
        monkeypatch.delitem(sys.modules, name)
    train(tiny_config(total_timesteps=64), tmp_path / "run", progress=False)
    assert [name for name in sys.modules if name.startswith((*drawing, "mujoco.egl", "mujoco.osmesa"))] == []
