"""Frozen config dataclasses, the only place of a training default, and the YAML loader.

``loader.resolve`` puts a config together: dataclass defaults < method < YAML < command line.
"""

from snowflake.config.env import EnvConfig
from snowflake.config.evaluation import EvaluationConfig
from snowflake.config.policy import PolicyConfig
from snowflake.config.ppo import PPOConfig
from snowflake.config.task import TaskOptions
from snowflake.config.train import TrainConfig

__all__ = ["EnvConfig", "EvaluationConfig", "PPOConfig", "PolicyConfig", "TaskOptions", "TrainConfig"]
