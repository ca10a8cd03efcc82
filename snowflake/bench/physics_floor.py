"""How fast MuJoCo alone steps a body: the floor of a rollout."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import mujoco
import numpy as np

from envs.physics import available_cores


class PhysicsFloor:
    """Bare `mj_step` of the simulations of a batch in threads, each on its own share without waiting for the others.

    The model, the substeps of a control step and the starting states are those of the training environment; the
    controls are uniform between their limits. No observation, no reward, no contact forces, no reset.

    Args:
        model: the body with its task.
        data: the simulations to start from, which stay as they are.
        frame_skip: substeps of a control step.
        num_threads: threads, 0 for one a core.
    """

    def __init__(
        self, model: mujoco.MjModel, data: Sequence[mujoco.MjData], frame_skip: int, num_threads: int = 0
    ) -> None:
        self._model, self._start, self._frame_skip = model, data, frame_skip
        self._data = [mujoco.MjData(model) for _ in data]
        self._threads = min(num_threads or available_cores(), len(data))
        self._random = np.random.default_rng(0)

    def seconds(self, steps: int) -> float:
        """Return how long `steps` control steps of every simulation take."""
        low, high = self._model.actuator_ctrlrange.T
        unlimited = self._model.actuator_ctrllimited == 0
        low, high = np.where(unlimited, -1.0, low), np.where(unlimited, 1.0, high)
        controls = self._random.uniform(low, high, (len(self._data), steps, self._model.nu))
        for copy, data in zip(self._data, self._start, strict=True):
            mujoco.mj_copyData(copy, self._model, data)
        queue = iter(range(len(self._data)))

        def work() -> None:
            for i in queue:
                data, ctrl = self._data[i], self._data[i].ctrl
                for row in controls[i]:
                    ctrl[:] = row
                    mujoco.mj_step(self._model, data, self._frame_skip)

        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(lambda _: None, range(self._threads)))  # the threads exist before the clock starts
            start = time.perf_counter()
            for future in [pool.submit(work) for _ in range(self._threads)]:
                future.result()
            return time.perf_counter() - start
