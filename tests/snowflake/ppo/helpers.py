"""Small configs and runs that the tests of the algorithm share."""

from __future__ import annotations

import dataclasses
from typing import Any

from snowflake.config import EnvConfig, EvaluationConfig, PolicyConfig, PPOConfig, TrainConfig

METHODS: dict[str, dict[str, Any]] = {
    "snowflake": {"network": "nervenet", "freeze": ("encoder", "message", "decoder")},
    "nervenet": {"network": "nervenet"},
    "mlp": {"network": "mlp"},
}


def tiny_config(method: str = "snowflake", agents: tuple[str, ...] = ("centipede-4",), **changes: Any) -> TrainConfig:
    """A config that trains in a second: 4 environments, 16 steps, 2 epochs; ``changes`` by section."""
    policy = METHODS[method] | changes.pop("policy", {})
    return TrainConfig(
        agents=agents,
        method=method,
        total_timesteps=changes.pop("total_timesteps", 128),
        torch_threads=1,
        env=EnvConfig(**({"n_envs": 4, "num_threads": 1} | changes.pop("env", {}))),
        policy=PolicyConfig(**policy),
        ppo=PPOConfig(**({"n_steps": 16, "batch_size": 32, "n_epochs": 2} | changes.pop("ppo", {}))),
        evaluation=EvaluationConfig(
            **({"eval_freq": 0, "checkpoint_freq": 10**9, "eval_episodes": 2} | changes.pop("evaluation", {}))
        ),
        **changes,
    )


def replace_section(config: TrainConfig, section: str, **changes: Any) -> TrainConfig:
    """The config with some keys of one section changed."""
    return dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **changes)})
