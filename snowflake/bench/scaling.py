"""How the cost of the networks grows with the number of nodes of a body."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from snowflake.bench.step import TrainingStep
from snowflake.config import TrainConfig
from snowflake.ppo.update import PPOUpdate, UpdateSettings


class NetworkCost:
    """Times the networks of a config on random observations, without physics.

    Args:
        config: of one body.
        folder: where TensorBoard files would go.
    """

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        self.step = TrainingStep(config, folder)
        policy, buffer = self.step.algorithm.policy, self.step.algorithm.rollout_buffer
        self.nodes = len(policy.graphs[0].node_type)
        generator = torch.Generator(buffer.obs.device).manual_seed(0)
        for tensor in (buffer.obs, buffer.actions, buffer.advantages, buffer.returns):
            tensor.normal_(generator=generator)
        self._obs = buffer.obs[0].clone()
        with torch.no_grad():
            for t in range(len(buffer.obs)):
                buffer.log_probs[t] = policy.action_log_prob(buffer.obs[t], buffer.actions[t])[0]
        self.update()
        self.act()

    def update(self) -> float:
        """Return the seconds of an update of one epoch."""
        algorithm, ppo = self.step.algorithm, self.step.config.ppo
        settings = UpdateSettings(ppo.batch_size, 1, ppo.clip_range, ppo.ent_coef, ppo.max_grad_norm, None)
        update = PPOUpdate(algorithm.policy, settings, algorithm.minibatch_generator, algorithm.workers)
        return self._time(lambda: update.run(algorithm.rollout_buffer))

    def act(self, calls: int = 20) -> float:
        """Return the seconds of one inference call for all environments, mean of several."""

        def run() -> None:
            with torch.no_grad():
                for _ in range(calls):
                    self.step.algorithm.policy.act(self._obs, generator=self.step.algorithm.action_generator)

        return self._time(run) / calls

    def memory(self) -> dict[str, Any]:
        """See `TrainingStep.memory`."""
        return self.step.memory()

    def _time(self, program: Any) -> float:
        settle = torch.cuda.synchronize if self.step.device == "cuda" else (lambda: None)
        settle()
        start = time.perf_counter()
        program()
        settle()
        return time.perf_counter() - start


def exponent(nodes: Sequence[float], cost: Sequence[float]) -> float:
    """Return b of the fit cost = a nodes^b, by least squares on the logarithms."""
    return float(np.polyfit(np.log(nodes), np.log(cost), 1)[0])
