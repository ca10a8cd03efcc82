"""The memory of a graph actor: from inputs of its nodes, over time, to a term of its first node states."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks.base import linear
from snowflake.networks.init import Initializer
from snowflake.networks.memory.gru import GRUMemory
from snowflake.networks.memory.past import Past, State
from snowflake.networks.memory.tokens import NodeTokens
from snowflake.networks.memory.window import WindowMemory


class NodeMemory(nn.Module):
    """Remembers the history of every node, or of the body, and adds what it makes of it to the node states.

    The last linear map starts at zero: with memory or without, an actor starts as the same policy. No parameter
    depends on the body.

    An actor uses it in two places: `prepare` appends the normalised inputs to what it prepares, and `recall` adds
    this module's output to the first node states.

    Args:
        graphs: the bodies.
        config: the policy section of the config.
        root_features: normalised inputs of the root, F_root.
        joint_features: normalised inputs of a joint, F_joint.
        init: fills the weights.
    """

    def __init__(
        self,
        graphs: Sequence[MorphologyGraph],
        config: PolicyConfig,
        root_features: int,
        joint_features: int,
        init: Initializer,
    ) -> None:
        super().__init__()
        self.config = config
        self.num_actions = max(graph.act_dim for graph in graphs)
        limb = config.memory_scope == "limb"
        self.streams = max(graph.num_nodes for graph in graphs) if limb else 1
        width = config.memory_width
        self.tokens = NodeTokens(tuple(graphs), root_features, joint_features, width, config.memory_scope, init)
        self.core = WindowMemory(config, init) if config.memory == "window" else GRUMemory(config, init)
        self.output = linear(width, config.hidden_size)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self._fallback_told = False

    def initial_state(self, n: int, deployed: bool = False) -> State:
        """Return the memory of ``n`` environments before their first step.

        Args:
            n: environments.
            deployed: for acting outside of training, where SparQ's `eval` applies.
        """
        core = self.core
        if isinstance(core, WindowMemory) and core.config.sparq != "off" and not self._fallback_told:
            size = core.dense_bytes(n, self.streams)
            if size < core.config.sparq_min_bytes and (deployed or core.config.sparq == "rollout"):
                self._fallback_told = True
                print(
                    f"SparQ is not used: a dense call reads {size / 1e6:.3g} MB of keys and values, less than "
                    f"policy.sparq_min_bytes ({core.config.sparq_min_bytes / 1e6:.3g} MB), below which it loses time",
                    file=sys.stderr,
                )
        device, dtype = self.output.weight.device, self.output.weight.dtype
        return {
            "clock": torch.zeros(n, dtype=torch.long, device=device),
            "action": torch.zeros(n, self.num_actions, dtype=dtype, device=device),
            **core.initial_state(n, self.streams, deployed),
        }

    def forward(self, root: Tensor, joint: Tensor, past: Past, k: int) -> Tensor:
        """Return what is added to the node states.

        Args:
            root: (T * E, F_root), step after step.
            joint: (V - 1, T * E, F_joint).
            past: of the E environments; its state is brought up to date if it acts.
            k: which of the bodies.

        Returns:
            (V, T * E, H), or (1, T * E, H) with one history for the body.
        """
        tokens = self.tokens(root, joint, past.actions.flatten(0, 1), k)  # (S, T * E, D)
        if past.acting:
            memory = self.core.step(tokens.transpose(0, 1), past.state).transpose(0, 1)
        else:
            steps = tokens.unflatten(1, past.starts.shape).permute(1, 2, 0, 3)
            memory = self.core.sequence(steps, past).permute(2, 0, 1, 3).flatten(1, 2)
        return self.output(memory)
