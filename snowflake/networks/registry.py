"""Which name in a config means which network. A new network is one module of this package, named like the network."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from agents.errors import UserError, nearest
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks.base import Actor, Critic

_Class = TypeVar("_Class", bound=type)

_ACTORS: dict[str, type[Actor]] = {}
_CRITICS: dict[str, type[Critic]] = {}


def register_actor(name: str) -> Callable[[_Class], _Class]:
    """Class decorator: make an actor available as `policy.network: NAME`."""
    return _register(_ACTORS, name)


def register_critic(name: str) -> Callable[[_Class], _Class]:
    """Class decorator: make a critic available as `policy.critic: NAME`."""
    return _register(_CRITICS, name)


def build_actor(graphs: Sequence[MorphologyGraph], config: PolicyConfig, generator: torch.Generator) -> Actor:
    """Build the actor that a config names, without freezing anything.

    Args:
        graphs: the bodies that it serves.
        config: the policy section of the config.
        generator: source of all initial weights; the global generator is not touched.

    Raises:
        UserError: no such network, or one that cannot serve these bodies.
    """
    return _find(_ACTORS, "network", config.network)(graphs, config, generator)


def build_critic(graphs: Sequence[MorphologyGraph], config: PolicyConfig, generator: torch.Generator) -> Critic:
    """Build the critic that a config names (`auto`: flat for one body, graph for several); see `build_actor`."""
    name = config.critic
    if name == "auto":
        name = "flat" if len(graphs) == 1 else "graph"
    return _find(_CRITICS, "critic", name)(graphs, config, generator)


def _register(table: dict[str, Any], name: str) -> Callable[[_Class], _Class]:
    def decorator(cls: _Class) -> _Class:
        if table.setdefault(name, cls).__qualname__ != cls.__qualname__:
            raise ValueError(f"{name!r} is registered as {table[name].__qualname__} already")
        return cls

    return decorator


def _find(table: dict[str, Any], key: str, name: str) -> Any:
    if name not in table:
        package = importlib.import_module("snowflake.networks")
        if name in {module.name for module in pkgutil.iter_modules(package.__path__)}:
            importlib.import_module(f"snowflake.networks.{name}")
    if name not in table:
        raise UserError(f"policy.{key} = {name!r} is not a network: {nearest(name, tuple(sorted(table)))}")
    return table[name]
