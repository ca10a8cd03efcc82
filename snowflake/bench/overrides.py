"""Settings of a measurement as overrides of a config. Loads no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from agents.errors import UserError
from snowflake.config import TrainConfig
from snowflake.config.env import EnvConfig
from snowflake.config.policy import PolicyConfig
from snowflake.config.ppo import PPOConfig

LONG_RUN = 100_000_000
"""Steps of the run that a measurement speaks for, so that what pays in long runs only is on."""
_SECTIONS = {"": TrainConfig, "env": EnvConfig, "policy": PolicyConfig, "ppo": PPOConfig}


def section_of(name: str) -> str | None:
    """Return the section of the config that has a field, "" for the top; None if no section has it."""
    for section, cls in _SECTIONS.items():
        if any(field.name == name for field in dataclasses.fields(cls)):
            return section
    return None


def overrides(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by field name, nested as in a YAML: ``{"n_envs": 8}`` becomes ``{"env": {"n_envs": 8}}``.

    Raises:
        UserError: the config has no such field.
    """
    nested: dict[str, Any] = {}
    for name, value in settings.items():
        section = section_of(name)
        if section is None:
            raise UserError(f"there is no setting {name!r}: snowflake train --help lists them")
        target = nested.setdefault(section, {}) if section else nested
        target[name] = value
    return nested


def overrides_for(
    agents: Sequence[str], *, device: str, precision: str | None = None, threads: int = 0
) -> dict[str, Any]:
    """Return the overrides of a measurement of the defaults.

    Args:
        agents: bodies.
        device: where to train.
        precision: one that the config knows; its default if None.
        threads: of torch and of physics, 0 for one a core.
    """
    chosen: dict[str, Any] = {"agents": tuple(agents), "device": device, "total_timesteps": LONG_RUN}
    chosen |= {"torch_threads": threads, "num_threads": threads}
    return overrides(chosen if precision is None else chosen | {"precision": precision})
