"""A study that takes seconds."""

from __future__ import annotations

from pathlib import Path

from snowflake.config.study import StudyConfig, read_study

TINY = """\
name: tiny
total_timesteps: 512
agents: [centipede-4]
seeds: [0, 1]
variants:
  graph:
    method: snowflake
    env: {n_envs: 4}
    ppo: {n_steps: 32, batch_size: 64, n_epochs: 1}
    policy: {hidden_size: 8, propagation_steps: 1}
    evaluation: {eval_episodes: 1, eval_freq: 256, checkpoint_freq: 128}
  flat:
    method: mlp
    env: {n_envs: 4}
    ppo: {n_steps: 32, batch_size: 64, n_epochs: 1}
    policy: {hidden_size: 8}
    evaluation: {eval_episodes: 1, eval_freq: 256}
transfer: [centipede-6]
episodes: 2
"""


def write(folder: Path, text: str = TINY) -> Path:
    """Write a study and return its path."""
    path = folder / "tiny.yaml"
    path.write_text(text)
    return path


def read(folder: Path, text: str = TINY) -> StudyConfig:
    """Write and read a study."""
    return read_study(write(folder, text))
