"""Pictures, where OpenGL works without a display."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import agents
import envs
from envs import LocomotionVectorEnv

SCRIPT = """
import sys; sys.path.insert(0, {root!r})
import numpy as np
from envs import LocomotionEnv, LocomotionVectorEnv
env = LocomotionEnv("centipede-6", render_mode="rgb_array")
env.reset(seed=0)
first = env.render()
state = env.get_state()
for _ in range(15):
    env.step(np.full(16, 0.5))
later = env.render()
env.set_state(state)
again = env.render()
print(first.shape, first.dtype, first.std() > 10, np.array_equal(first, later), np.array_equal(first, again))
env.close()
batch = LocomotionVectorEnv("centipede-3", 2, render_mode="rgb_array")
batch.reset(seed=0)
images = batch.render()
print(len(images), np.array_equal(*images))
batch.close()
"""


def test_pictures(tmp_path: Path) -> None:
    script = SCRIPT.format(root=str(Path(envs.__file__).parent.parent))
    for backend in ("egl", "osmesa"):
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True,
                              check=False, env={"MUJOCO_GL": backend, "PATH": ""})  # fmt: skip
        if done.returncode == 0:
            break
    else:
        pytest.skip(f"no OpenGL without a display here: {done.stderr.strip().splitlines()[-1]}")
    assert done.stdout.splitlines() == ["(480, 640, 3) uint8 True False True", "2 False"]


def test_a_window_shows_one_environment() -> None:
    with pytest.raises(agents.UserError, match="one environment, not 2"):
        LocomotionVectorEnv("centipede-3", 2, render_mode="human")
