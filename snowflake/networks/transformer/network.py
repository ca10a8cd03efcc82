"""Actor and critic that attend over the nodes of a body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks.base import Prepared
from snowflake.networks.init import Initializer
from snowflake.networks.mlp import MLP
from snowflake.networks.nodes import NodeActor, NodeCritic, NodeNetwork
from snowflake.networks.registry import register_actor, register_critic
from snowflake.networks.transformer.attention import Attention
from snowflake.networks.transformer.encoder import TokenEncoder
from snowflake.networks.transformer.feedforward import FeedForward
from snowflake.networks.transformer.norms import make_norm
from snowflake.networks.transformer.structure import BodyStructures, Structure

OUTPUT_NORM = 0.01
"""Length of the initial weights of the last layer. With length 1, as in the graph networks, the first steps of Adam
move the policy far out of PPO's clip range (`docs/attention.md`)."""
MAX_PADDED_ROWS = 4
"""Observations of a body, on average, up to which the CPU is faster with several bodies in one padded pass."""


class TokenDecoder(nn.Module):
    """Last norm of the states, and the layers that read them out.

    Args:
        kind: of the norm.
        width: H.
        inputs: features that the layers read.
        init: fills the weights.

    Shapes:
        (..., inputs) -> (..., 1)
    """

    def __init__(self, kind: str, width: int, inputs: int, init: Initializer) -> None:
        super().__init__()
        self.norm = make_norm(kind, width)
        self.readout = MLP((inputs, width, width, 1), final_tanh=False)
        *hidden, last = self.readout.linears()
        for layer in hidden:
            init.orthogonal(layer)
        init.normc(last, OUTPUT_NORM)

    def forward(self, x: Tensor) -> Tensor:
        """Read out."""
        return self.readout(x)  # type: ignore[no-any-return]


class TransformerNetwork(NodeNetwork):
    """Encoder, and blocks of attention and feed-forward over the nodes; the decoder may read the first states too.

    Args:
        graphs: the bodies; they share the weights, so feature set and vocabulary must be the same.
        config: the policy section of the config.
        init: fills the weights.

    Raises:
        UserError: bodies that cannot share weights, or that are longer than the table of positions.
    """

    encoder: TokenEncoder

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, init: Initializer) -> None:
        super().__init__(graphs, config, init)
        attention, width = config.attention, config.hidden_size
        self.structures = BodyStructures(self.graphs, attention.max_hops)
        masked = {"none": (), "hard": range(attention.layers), "mix": range(0, attention.layers, 2)}[attention.mask]
        self.attention = nn.ModuleList(Attention(width, attention, i in masked, init) for i in range(attention.layers))
        self.feedforward = nn.ModuleList(FeedForward(width, attention, init) for _ in range(attention.layers))
        self.decoder = TokenDecoder(attention.norm_kind, width, self.decoder_inputs(), init)

    def make_encoder(self, root_inputs: int, joint_inputs: int, init: Initializer) -> TokenEncoder:
        """See `NodeNetwork.make_encoder`."""
        return TokenEncoder(self.graphs, root_inputs, joint_inputs, self.config, init)

    @property
    def state_size(self) -> int:
        """See `NodeNetwork.state_size`."""
        return self.config.hidden_size * (2 if self.config.attention.decoder_skip else 1)

    def context(self, k: int) -> Tensor | None:
        """Return the context of body k's nodes (V, H); None where queries and keys come from the state."""
        encoder = self.encoder.context
        if encoder is None:
            return None
        body = self.body(k)
        root = encoder.root.weight.new_zeros(1, 0)
        return encoder(*body.add_static(root, root.expand(body.num_joints, 1, 0)), body.node_class)[:, 0]

    def final_states(self, prepared: Prepared, k: int) -> Tensor:
        """See `NodeNetwork.final_states`: the normalised last states, and the first ones if the decoder reads them."""
        first = self.first_states(prepared, k)  # (V, N, H)
        last = self.blocks(first.transpose(0, 1), self.structures.one(k, self.context(k)))
        return self._outputs(first, last.transpose(0, 1))

    def final_states_of(self, prepared: Sequence[Prepared], bodies: Sequence[int]) -> list[Tensor]:
        """See `NodeNetwork.final_states_of`: together off the CPU, and on it where single passes would be short."""
        rows = sum(part[0].shape[-2] for part in prepared)
        if len(bodies) > 1 and (prepared[0][0].device.type != "cpu" or rows <= MAX_PADDED_ROWS * len(bodies)):
            return self.final_states_together(prepared, bodies)
        return super().final_states_of(prepared, bodies)

    def final_states_together(self, prepared: Sequence[Prepared], bodies: Sequence[int]) -> list[Tensor]:
        """Return `final_states` of several bodies from one pass over tokens that are padded to the longest body."""
        firsts = [self.first_states(part, k) for part, k in zip(prepared, bodies, strict=True)]
        rows = [first.shape[1] for first in firsts]
        structure = self.structures.padded(bodies, rows, [self.context(k) for k in bodies])
        tokens = torch.cat([self.structures.pad(first.transpose(0, 1)) for first in firsts])
        lasts = self.blocks(tokens, structure).split(rows)
        return [
            self._outputs(first, last[:, : len(first)].transpose(0, 1))
            for first, last in zip(firsts, lasts, strict=True)
        ]

    def _outputs(self, first: Tensor, last: Tensor) -> Tensor:
        last = self.decoder.norm(last)
        return torch.cat([last, first], dim=-1) if self.config.attention.decoder_skip else last

    def blocks(self, tokens: Tensor, structure: Structure) -> Tensor:
        """Return the tokens (N, V, H) after all blocks."""
        for attention, feedforward in zip(self.attention, self.feedforward, strict=True):
            tokens = feedforward(attention(tokens, structure))
        return tokens


@register_actor("transformer")
class TransformerActor(TransformerNetwork, NodeActor):
    """The limb transformer as a policy: see `NodeActor` for what its decoder reads.

    Its state dict does not depend on the body (unless `log_std` is `per_actuator`), so it loads into the actor of any
    other body of the same feature set and vocabulary.

    Args:
        graphs: the bodies.
        config: the policy section of the config.
        generator: source of the initial weights.

    Raises:
        UserError: as for `TransformerNetwork`; `per_actuator` log-std with several bodies.
    """

    components: ClassVar[tuple[str, ...]] = ("encoder", "memory", "attention", "feedforward", "decoder", "log_std")

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, generator: torch.Generator) -> None:
        init = Initializer(config.init, generator)
        super().__init__(graphs, config, init)
        self.add_memory(init)


@register_critic("transformer")
class TransformerCritic(TransformerNetwork, NodeCritic):
    """A limb transformer of its own whose last states are pooled into one value.

    Args:
        graphs: the bodies.
        config: the policy section of the config.
        generator: source of the initial weights.

    Raises:
        UserError: as for `TransformerNetwork`.
    """

    components: ClassVar[tuple[str, ...]] = ("encoder", "attention", "feedforward", "decoder")

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, generator: torch.Generator) -> None:
        super().__init__(graphs, config, Initializer(config.init, generator))
