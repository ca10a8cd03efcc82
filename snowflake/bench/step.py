"""One training step of a config, whole and in parts."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch

import snowflake.networks.native.library as native
import snowflake.ppo.update as update
from envs.physics import available_cores
from snowflake.bench.clock import REST, PartClock, ThreadClock, wrapped
from snowflake.bench.gemms import Gemm, record
from snowflake.bench.physics_floor import PhysicsFloor
from snowflake.config import TrainConfig
from snowflake.ppo.logger import make_logger
from snowflake.ppo.train import build
from snowflake.ppo.vec_env import LocomotionVecEnv

PARTS = (
    "physics",
    "environment",
    "inference",
    "collection",
    "advantage",
    "preparation",
    "forward",
    "backward",
    "optimiser",
    "minibatches",
    "statistics",
    "logging",
    REST,
)
"""Parts of a training step, in the order of a table; together they are all of it."""
ROLLOUT = ("physics", "environment", "inference", "collection")
UPDATE = ("preparation", "forward", "backward", "optimiser", "minibatches")


class TrainingStep:
    """Trains step by step and tells how long that takes. A step is a rollout, an update and the logging of both.

    Args:
        config: what to train. The learning rate is held, so that the last measured update is like the first.
        folder: where TensorBoard files go.

    Raises:
        UserError: as in `snowflake.ppo.train.build`.
    """

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        ppo = dataclasses.replace(config.ppo, learning_rate_schedule="constant", collection="fixed")
        self.config = dataclasses.replace(config, ppo=ppo)
        self.algorithm = build(self.config)
        self.env = cast(LocomotionVecEnv, self.algorithm.env)
        self.algorithm.set_logger(make_logger(folder))
        self.threads = config.torch_threads or available_cores()
        self.device = self.algorithm.device.type
        self.batch = config.ppo.n_steps * config.env.n_envs
        self._settle: Callable[[], None] | None = torch.cuda.synchronize if self.device == "cuda" else None
        self._floors: list[PhysicsFloor] = []

    def run(self) -> float:
        """Train one step, unobserved; returns its seconds."""
        start = self._read()
        self._learn()
        return self._read() - start

    def split(self) -> dict[str, float]:
        """Train one step and return the seconds of its `PARTS`, which add up to it.

        Forward and backward passes are those of the busiest thread of an update; where it waits for others, that is in
        `minibatches`, with the rest of the loop.
        """
        clock, passes = PartClock(settle=self._settle), ThreadClock(settle=self._settle)
        with wrapped([*self._parts(clock), *self._passes(passes)]):
            clock.start()
            self._learn()
            clock.stop()
        seconds = dict.fromkeys(PARTS, 0.0) | clock.seconds
        for name, value in passes.busiest().items():
            if name in ("forward", "backward"):
                seconds[name] = value
                seconds["minibatches"] -= value
        return seconds

    def record_update(self) -> Counter[Gemm]:
        """Train, and return the GEMMs of one update.

        With one body all epochs have the same GEMMs, so that two short updates tell what is done once and what in every
        epoch: of a long update the profiler's notes would fill the memory.
        """
        epochs = self.config.ppo.n_epochs
        if len(self.config.agents) > 1 or self.config.ppo.target_kl is not None or epochs < 3:
            return self._record_update(epochs)
        one, two = self._record_update(1), self._record_update(2)
        return Counter({gemm: one[gemm] + (epochs - 1) * (two[gemm] - one[gemm]) for gemm in two})

    def _record_update(self, epochs: int) -> Counter[Gemm]:
        found: list[Counter[Gemm]] = []
        run = update.PPOUpdate.run

        def recorded(*args: Any) -> Any:
            result: list[Any] = []
            found.append(record(lambda: result.append(run(*args)), self.device))
            return result[0]

        # The compiled library makes the same products as the rounds in PyTorch, but the profiler does not see them.
        library, native.library = native.library, lambda: "its products are recorded"  # type: ignore[assignment]
        update.PPOUpdate.run = recorded  # type: ignore[method-assign]
        self.algorithm.n_epochs = epochs
        try:
            self._learn()
        finally:
            update.PPOUpdate.run = run  # type: ignore[method-assign]
            native.library = library
            self.algorithm.n_epochs = self.config.ppo.n_epochs
        return found[0]

    def physics_floor(self) -> float:
        """Return the seconds that MuJoCo alone takes for the physics of a step, from the present states."""
        threads = self.config.env.num_threads
        if not self._floors:
            self._floors = [
                PhysicsFloor(body.model, body.physics.data, round(body.dt / body.model.opt.timestep), threads)
                for body in self.env.vector_env.body_envs
            ]
        return sum(floor.seconds(self.config.ppo.n_steps) for floor in self._floors)

    def memory(self) -> dict[str, int]:
        """Return bytes: `peak` of the process so far, and `tensors` that are alive, each storage once."""
        sizes = {}
        for thing in gc.get_objects():
            if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.layout == torch.strided:
                storage = thing.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        result = {"peak": peak, "tensors": sum(sizes.values())}
        return result | ({"device_peak": torch.cuda.max_memory_allocated()} if self.device == "cuda" else {})

    def close(self) -> None:
        """End threads and the log."""
        self.algorithm.logger.close()
        self.env.close()

    def _learn(self) -> None:
        self.algorithm.learn(self.batch, reset_num_timesteps=False)

    def _read(self) -> float:
        if self._settle is not None:
            self._settle()
        return time.perf_counter()

    def _parts(self, clock: PartClock) -> list[tuple[Any, str, Callable[[], Any]]]:
        """Return the calls that are parts, or hold parts, in the thread that trains."""
        algorithm = self.algorithm
        policy, buffer = algorithm.policy, algorithm.rollout_buffer
        bodies = self.env.vector_env.body_envs
        calls = [(body.physics, "step", "physics") for body in bodies]
        calls += [
            (algorithm, "collect_rollouts", "collection"),
            (self.env, "step_batch", "environment"),
            (policy, "act", "inference"),
            (buffer, "compute_returns_and_advantage", "advantage"),
            (buffer, "standardize_advantages", "advantage"),
            (update.PPOUpdate, "run", "minibatches"),
            (policy.optimizer, "step", "optimiser"),
            (policy.optimizer, "zero_grad", "optimiser"),
            (policy.critic_optimizer, "step", "optimiser"),
            (policy.critic_optimizer, "zero_grad", "optimiser"),
            (policy, "update_normalizers", "statistics"),
            (algorithm, "_log_iteration", "logging"),
        ]
        named = [(owner, name, lambda part=part: clock.part(part)) for owner, name, part in calls]
        inner = [
            (policy, "predict_values", lambda: clock.part("inference", within="collection")),
            (policy, "prepare", lambda: clock.part("preparation", within="minibatches")),
        ]
        return [*named, *inner]

    def _passes(self, clock: ThreadClock) -> list[tuple[Any, str, Callable[[], Any]]]:
        """Return the calls of an update that are forward or backward passes, in whatever thread."""
        policy = self.algorithm.policy
        updating = [False]

        @contextlib.contextmanager
        def inside() -> Iterator[None]:
            updating[0] = True
            try:
                yield
            finally:
                updating[0] = False

        def forward() -> contextlib.AbstractContextManager[None]:
            return clock.part("forward") if updating[0] else contextlib.nullcontext()

        def backward() -> contextlib.AbstractContextManager[None]:
            return clock.part("backward") if updating[0] else contextlib.nullcontext()

        return [
            (update.PPOUpdate, "run", inside),
            (update, "actor_loss", forward),
            (update, "critic_loss", forward),
            (policy, "action_log_prob_of", forward),
            (policy, "value_of", forward),
            (torch.autograd, "backward", backward),
            (torch.autograd, "grad", backward),
        ]
