"""From a body's inputs to tokens: the encoder of the graph networks, and what is told of position and context."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from agents.errors import UserError
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks.init import Initializer
from snowflake.networks.nodes import Encoder


class PositionTable(nn.Module):
    """A learned vector for each place in joint order, added to the tokens.

    Rows beyond the longest body that the table was trained with hold noise, so a longer body is refused.

    Args:
        rows: size of the table.
        width: H.
        nodes: nodes of the longest body.
        generator: source of the initial rows, N(0, 0.02^2).

    Attributes:
        trained: nodes of the longest body that it was trained with. () int64, in the state dict

    Raises:
        UserError: a body longer than the table, or, on loading a state dict, than what that was trained with.
    """

    trained: Tensor

    def __init__(self, rows: int, width: int, nodes: int, generator: torch.Generator) -> None:
        super().__init__()
        if nodes > rows:
            raise UserError(
                f"a body has {nodes} nodes, more than policy.attention.max_positions = {rows}: raise that, or set "
                "policy.attention.position to 'none'"
            )
        self.nodes = nodes
        self.rows = nn.Parameter(0.02 * torch.randn(rows, width, generator=generator))
        self.register_buffer("trained", torch.tensor(nodes))
        self.register_load_state_dict_post_hook(_refuse_longer)

    def forward(self, states: Tensor) -> Tensor:
        """Add the vectors. (V, N, H) -> the same."""
        return states + self.rows[: len(states), None, :]


def _refuse_longer(module: Any, _incompatible_keys: Any) -> None:
    trained = int(module.trained)
    if module.nodes > trained:
        raise UserError(
            f"the policy knows the positions of {trained} nodes (policy.attention.position = 'index'), and a body has "
            f"{module.nodes}: choose a smaller body, or train with position 'none'"
        )


class TokenEncoder(Encoder):
    """The encoder of the graph networks, with a table of positions and an encoder of the context where they are used.

    The context of a node is what no observation changes: its class and static features, encoded like its inputs. Under
    the feature set `paper` there are no static features, and the class is all of it.

    Args:
        graphs: the bodies.
        root_features: inputs of the root.
        joint_features: inputs of a joint.
        config: the policy section of the config.
        init: fills the weights.

    Shapes:
        (N, F_root), (V - 1, N, F_joint), (V,) -> (V, N, H)
    """

    def __init__(
        self,
        graphs: tuple[MorphologyGraph, ...],
        root_features: int,
        joint_features: int,
        config: PolicyConfig,
        init: Initializer,
    ) -> None:
        first, attention = graphs[0], config.attention
        classes, width = len(first.vocabulary), config.hidden_size
        super().__init__(classes, root_features, joint_features, width, init)
        self.position: PositionTable | None = None
        if attention.position == "index":
            longest = max(graph.num_nodes for graph in graphs)
            generator = torch.Generator().manual_seed(init.seed())
            self.position = PositionTable(attention.max_positions, width, longest, generator)
        self.context: Encoder | None = None
        if attention.qk_source == "context":
            self.context = Encoder(classes, len(first.root_static), first.joint_static.shape[1], width, init)

    def forward(self, root: Tensor, joint: Tensor, node_class: Tensor) -> Tensor:
        """Encode normalised inputs."""
        states = super().forward(root, joint, node_class)
        return states if self.position is None else self.position(states)  # type: ignore[no-any-return]
