"""A critic for any body: a graph network of its own whose node states are pooled into one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks.init import Initializer
from snowflake.networks.nervenet import GraphNetwork
from snowflake.networks.nodes import NodeCritic
from snowflake.networks.registry import register_critic


@register_critic("graph")
class GraphCritic(GraphNetwork, NodeCritic):
    """Decodes the mean or the sum of all node states, or the root's, into the value.

    Args:
        graphs: the bodies.
        config: the policy section of the config.
        generator: source of the initial weights.

    Raises:
        UserError: bodies that cannot share weights.
    """

    components: ClassVar[tuple[str, ...]] = ("encoder", "message", "update", "decoder")

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, generator: torch.Generator) -> None:
        super().__init__(graphs, config, Initializer(config.init, generator))
