"""Networks that the tests of low precision share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

import agents
from envs.observation import paper_layout
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.networks import Actor, build_actor


@cache
def _graph(name: str) -> MorphologyGraph:
    morphology = agents.load(name)
    model = morphology.compile()
    return build_graph(model, paper_layout(model), morphology.node_class(model), name)


@pytest.fixture
def make_actor() -> Callable[..., Actor]:
    """Build a small actor of centipede-4 by network name; keywords go into the config."""

    def make(network: str = "nervenet", **config: object) -> Actor:
        options = {"hidden_size": 16, "propagation_steps": 2, **config}
        settings = PolicyConfig(network=network, **options)  # type: ignore[arg-type]
        return build_actor([_graph("centipede-4")], settings, torch.Generator().manual_seed(0))

    return make


@pytest.fixture
def observations() -> Callable[[int], Tensor]:
    """Draw observations of centipede-4."""
    return lambda rows: torch.randn(rows, _graph("centipede-4").obs_dim, generator=torch.Generator().manual_seed(0))
