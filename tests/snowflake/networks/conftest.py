"""Graphs, observations and actors that the tests of the networks share."""

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
from snowflake.networks import NerveNetActor


@cache
def _graph(name: str) -> MorphologyGraph:
    morphology = agents.load(name)
    model = morphology.compile()
    return build_graph(model, paper_layout(model), morphology.node_class(model), name)


@pytest.fixture
def graph_of() -> Callable[[str], MorphologyGraph]:
    """Return the graph of a body by name."""
    return _graph


@pytest.fixture
def make_actor() -> Callable[..., NerveNetActor]:
    """Build a graph actor of bodies by name; keywords go into the config, `seed` into the generator."""

    def make(*names: str, seed: int = 0, **config: object) -> NerveNetActor:
        generator = torch.Generator().manual_seed(seed)
        return NerveNetActor([_graph(name) for name in names], PolicyConfig(**config), generator)  # type: ignore[arg-type]

    return make


@pytest.fixture
def observations() -> Callable[..., Tensor]:
    """Draw observations (rows, D) of a body."""

    def draw(graph: MorphologyGraph, rows: int, seed: int = 0) -> Tensor:
        return torch.randn(rows, graph.obs_dim, generator=torch.Generator().manual_seed(seed))

    return draw
