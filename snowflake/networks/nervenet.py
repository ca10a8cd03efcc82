"""NerveNet (Wang et al. 2018): encoder, rounds of messages along the body's graph, decoder at the actuated joints.

Snowflake (Blake et al. 2021) is this network with encoder, message and decoder frozen. Node states are dense tensors
(V, N, H) of V nodes, N observations, H features: node-major, so that the root and the joints, which have weights of
their own, are contiguous slices, and the mean over neighbours is one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks.activation import tanh
from snowflake.networks.base import Prepared, linear
from snowflake.networks.body import BodyIndices
from snowflake.networks.gru import ResetAfterUpdate
from snowflake.networks.init import Initializer
from snowflake.networks.mlp import MLP
from snowflake.networks.native.library import library_for
from snowflake.networks.native.rounds import NativeRounds
from snowflake.networks.nodes import NodeActor, NodeNetwork
from snowflake.networks.registry import register_actor
from snowflake.networks.rounds import GRUWeights, Rounds, run_rounds
from snowflake.networks.workspace import Pool


class GRUUpdate(nn.Module):
    """Gated recurrent update of a state h by a message m, in the form of Cho et al. (2014).

    z = sigmoid(Wz m + Uz h + bz), r = sigmoid(Wr m + Ur h + br), u = tanh(Wu m + Uu (r * h) + bu),
    h' = z * h + (1 - z) * u: the reset gate acts before the product, which `torch.nn.GRUCell` does after.

    Args:
        size: H, of states and of messages.
        init: fills the weights; every one of the six matrices is orthogonal.

    Shapes:
        (..., H), (..., H) -> (..., H)
    """

    def __init__(self, size: int, init: Initializer) -> None:
        super().__init__()
        self.message = linear(size, 3 * size)  # Wz, Wr, Wu and the biases
        self.gates = linear(size, 2 * size, bias=False)  # Uz, Ur
        self.candidate = linear(size, size, bias=False)  # Uu
        for layer, blocks in ((self.message, 3), (self.gates, 2), (self.candidate, 1)):
            init.orthogonal(layer, blocks=blocks, bias=0.0)

    def weights(self) -> GRUWeights:
        """Return the parameters, for the hand-written form."""
        return GRUWeights(self.message.weight, self.message.bias, self.gates.weight, self.candidate.weight)

    def forward(self, message: Tensor, state: Tensor) -> Tensor:
        """Return the new state."""
        size = state.shape[-1]
        # `split`, not slices: its backward is one concatenation, that of two slices two zero fills and a sum.
        gates, candidate = self.message(message).split([2 * size, size], dim=-1)
        keep, reset = torch.sigmoid(gates + self.gates(state)).chunk(2, dim=-1)
        candidate = tanh(candidate + self.candidate(reset * state))
        return torch.lerp(candidate, state, keep)


class NodeUpdate(nn.Module):
    """The update functions, one for the root and one for all joints, shared by all rounds.

    Args:
        size: H.
        init: fills the weights.
        gru: reset_before or reset_after.

    Shapes:
        (V, N, H), (V, N, H) -> (V, N, H)
    """

    def __init__(self, size: int, init: Initializer, gru: str = "reset_before") -> None:
        super().__init__()
        update = GRUUpdate if gru == "reset_before" else ResetAfterUpdate
        self.root = update(size, init)
        self.joint = update(size, init)

    def forward(self, message: Tensor, state: Tensor) -> Tensor:
        """Return the new states."""
        sections = [1, len(state) - 1]
        root_message, joint_message = message.split(sections)
        root_state, joint_state = state.split(sections)
        return torch.cat([self.root(root_message, root_state), self.joint(joint_message, joint_state)])


class GraphNetwork(NodeNetwork):
    """Encoder, messages and updates: everything before the read-out, which actor and critic add.

    Args:
        graphs: the bodies; they share the weights, so feature set and vocabulary must be the same.
        config: the policy section of the config.
        init: fills the weights.

    Attributes:
        bf16: whether the compiled rounds round operands to bfloat16: see `snowflake.networks.operands`.

    Raises:
        UserError: bodies that cannot share weights.
    """

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, init: Initializer) -> None:
        super().__init__(graphs, config, init)
        self.bf16 = False
        self._workspaces, size, kernels = Pool(), config.hidden_size, config.kernels
        if config.message_layer == "mlp":
            self.message = MLP((size,) * 4, final_tanh=True, kernels=kernels)
        else:
            self.message = self._convolution(init)
        self.update = NodeUpdate(size, init, config.gru)
        self.decoder = MLP((self.decoder_inputs(), size, size, 1), final_tanh=False, kernels=kernels)
        for part in (self.message, self.decoder):
            for layer in part.linears() if isinstance(part, MLP) else ():
                init.orthogonal(layer)

    def _convolution(self, init: Initializer) -> nn.Module:
        """Return the convolution that takes the place of the message MLP and the aggregation."""
        from snowflake.networks.message_layer import ConvMessage  # here, since it imports PyTorch Geometric

        config = self.config
        return ConvMessage(config.message_layer, config.hidden_size, config.message_layer_args, init.seed())

    def prepare(self, obs: Tensor, k: int = 0) -> Prepared:
        """See `Network.prepare`.

        Returns:
            As far as the parts that do not train reach: the normalised inputs, root (N, F_root) and joints
            (V - 1, N, F_joint); or, under a frozen encoder, the first states (V, N, H); and, under a frozen message
            function too, what the nodes receive in the first round (V, N, H). Last the activations of the controls,
            (A, N, 1), of a body that has such.
        """
        prepared = super().prepare(obs, k)
        frozen = self.is_frozen("encoder") and self.is_frozen("message")
        changed = self.memory is not None  # which adds to the first states
        if self.config.propagation_steps == 0 or changed or not frozen:
            return prepared
        return (prepared[0], self.receive(prepared[0], self.body(k)), *prepared[1:])

    def final_states(self, prepared: Prepared, k: int) -> Tensor:
        """Return the states (V, N, H) of body k after all rounds of messages.

        A message depends on its sender only, so it is computed once per node, not once per edge.

        Args:
            prepared: from `prepare`.
            k: which of `graphs`.
        """
        body = self.body(k)
        states, received = self.first_round(prepared, k)
        if self.fused(states):
            return self._fused_states(states, received, k)
        for _ in range(self.config.propagation_steps):
            states = self.update(self.receive(states, body) if received is None else received, states)
            received = None
        return states

    def fused(self, states: Tensor) -> bool:
        """Return whether the rounds run as one hand-written operation: see `snowflake.networks.rounds`."""
        config = self.config
        return (
            config.kernels != "reference"
            and states.device.type == "cpu"
            and config.propagation_steps > 0
            and not torch.compiler.is_compiling()
            and self.has_kernels()
        )

    def has_kernels(self) -> bool:
        """Return whether there is a hand-written form of these rounds."""
        return self.config.message_layer == "mlp" and self.config.aggregation != "max" and self._is_plain()

    def _is_plain(self) -> bool:
        """Return whether messages and updates are as built: where a layer was swapped, it is to be called."""
        gru = (self.update.root, self.update.joint)
        parts = (*(layer for unit in gru for layer in unit.children()), *cast(MLP, self.message).layers)
        return (
            type(self.message) is MLP
            and all(type(unit) is GRUUpdate for unit in gru)
            and all(type(layer) is nn.Linear for layer in parts)
        )

    def _fused_states(self, states: Tensor, received: Tensor | None, k: int) -> Tensor:
        body = self.body(k)
        message = cast(MLP, self.message).linears()
        native = library_for(self.config.kernels, states, states.shape[-1])
        if native is None:
            forth, back = body.sparse()
            rounds = Rounds(self.config.propagation_steps, forth, back, len(message), self._workspaces)
        else:
            own = NativeRounds(native, body.links(), self.bf16)
            rounds = Rounds(self.config.propagation_steps, None, None, len(message), self._workspaces, own)
        weights = tuple(p for layer in message for p in (layer.weight, layer.bias))
        root, joint = (cast(GRUUpdate, unit).weights() for unit in (self.update.root, self.update.joint))
        return run_rounds(rounds, states, received, weights, root, joint)

    def first_round(self, prepared: Prepared, k: int) -> tuple[Tensor, Tensor | None]:
        """Return the first states (V, N, H), and what the nodes receive in the first round where that is prepared."""
        states = self.first_states(prepared, k)
        received = prepared[1] if len(prepared) > 1 and prepared[1].shape == prepared[0].shape else None
        return states, received

    def receive(self, states: Tensor, body: BodyIndices) -> Tensor:
        """Return the aggregated messages (V, N, H) that the nodes of a body get in one round."""
        if self.config.message_layer == "mlp":
            return body.aggregate(self.message(states))
        return cast(Tensor, self.message(states, body.edge_index))


@register_actor("nervenet")
class NerveNetActor(GraphNetwork, NodeActor):
    """The graph policy: see `NodeActor` for what its decoder reads.

    Its state dict does not depend on the body (unless `log_std` is `per_actuator`), so it loads into the actor of any
    other body of the same feature set and vocabulary. Parameters at hidden size 64: encoder, message, update, decoder,
    log-std have 1,056 + 12,480 + 49,536 + 8,385 + 6 = 71,463 under `paper`, 3,040 + 12,480 + 49,536 + 15,681 + 8 =
    80,745 under `general`.

    Args:
        graphs: the bodies.
        config: the policy section of the config.
        generator: source of the initial weights.

    Raises:
        UserError: bodies that cannot share weights; `per_actuator` log-std with several bodies.
    """

    components: ClassVar[tuple[str, ...]] = ("encoder", "memory", "message", "update", "decoder", "log_std")

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, generator: torch.Generator) -> None:
        init = Initializer(config.init, generator)
        super().__init__(graphs, config, init)
        self.add_memory(init)
