"""Gymnasium ids: `Snowflake/Centipede-v0`, `Snowflake/Locomotion-v0` (any robot), and one for every listed body."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import gymnasium

import agents
from agents.centipede import make_morphology
from agents.errors import UserError
from envs.locomotion_env import LocomotionEnv
from envs.vector_env import LocomotionVectorEnv

NAMESPACE = "Snowflake"
MAX_EPISODE_STEPS = 1000
CENTIPEDE_ID = f"{NAMESPACE}/Centipede-v0"
LOCOMOTION_ID = f"{NAMESPACE}/Locomotion-v0"


class RegisteredEnv(LocomotionEnv):
    """What `gymnasium.make` builds: without a limit of its own, since `make` adds a `TimeLimit`."""

    def __init__(
        self, morphology: agents.Morphology | str, *, max_episode_steps: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(morphology, max_episode_steps=max_episode_steps, **kwargs)


class CentipedeEnv(RegisteredEnv):
    """A Centipede by its number of legs.

    Args:
        legs: number of legs, 3 or more.
        crippled_legs: legs without motors.
        kwargs: see `LocomotionEnv`.
    """

    def __init__(self, legs: int = 6, crippled_legs: Sequence[int] = (), **kwargs: Any) -> None:
        super().__init__(make_morphology(legs, crippled_legs), **kwargs)


class CentipedeVectorEnv(LocomotionVectorEnv):
    """N Centipedes by their number of legs; arguments as `CentipedeEnv`, `num_envs` and those of the base class."""

    def __init__(self, num_envs: int = 1, legs: int = 6, crippled_legs: Sequence[int] = (), **kwargs: Any) -> None:
        super().__init__(make_morphology(legs, crippled_legs), num_envs, **kwargs)


class AnyRobotEnv(RegisteredEnv):
    """Any body on the general task.

    Args:
        model: a body: its name, or the path of an MJCF or URDF file.
        kwargs: see `LocomotionEnv`, `root_body` and `task_options` among them.

    Raises:
        UserError: no model is given, and as `LocomotionEnv`.
    """

    def __init__(self, model: agents.Morphology | str | os.PathLike[str] | None = None, **kwargs: Any) -> None:
        super().__init__(_body(model), **{"task": "locomotion", **kwargs})


class AnyRobotVectorEnv(LocomotionVectorEnv):
    """N times any body on the general task; arguments as `AnyRobotEnv`, `num_envs` and those of the base class."""

    def __init__(
        self, num_envs: int = 1, model: agents.Morphology | str | os.PathLike[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(_body(model), num_envs, **{"task": "locomotion", **kwargs})


def _body(model: agents.Morphology | str | os.PathLike[str] | None) -> agents.Morphology | str:
    if model is None:
        raise UserError(f"{LOCOMOTION_ID} needs a robot: give model='path/to/robot.xml', or the name of a body")
    return os.fspath(model) if isinstance(model, os.PathLike) else model


def environment_id(name: str) -> str:
    """Return the Gymnasium id of a body: `"half_cheetah"` -> `"Snowflake/HalfCheetah-v0"`, with hyphens kept."""
    parts = ("".join(word.capitalize() for word in part.split("_")) for part in name.split("-"))
    return f"{NAMESPACE}/{'-'.join(parts)}-v0"


def register_environments() -> None:
    """Register all ids with Gymnasium, once; ids that exist stay as they are."""
    entries: dict[str, tuple[str, str, dict[str, Any]]] = {
        CENTIPEDE_ID: ("envs.registration:CentipedeEnv", "envs.registration:CentipedeVectorEnv", {"legs": 6}),
        LOCOMOTION_ID: ("envs.registration:AnyRobotEnv", "envs.registration:AnyRobotVectorEnv", {}),
    }
    for name in agents.names():
        if agents.load(name).task:
            entries[environment_id(name)] = (
                "envs.registration:RegisteredEnv",
                "envs.vector_env:LocomotionVectorEnv",
                {"morphology": name},
            )
    for key, (entry_point, vector_entry_point, kwargs) in entries.items():
        if key not in gymnasium.registry:
            gymnasium.register(
                id=key,
                entry_point=entry_point,
                vector_entry_point=vector_entry_point,
                max_episode_steps=MAX_EPISODE_STEPS,
                kwargs=kwargs,
            )
