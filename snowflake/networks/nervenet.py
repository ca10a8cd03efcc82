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
from snowflake.networks.base import Actor, Network, Prepared, block_rows, check_same_space, linear
from snowflake.networks.body import BodyIndices
from snowflake.networks.general_body import GeneralBodyIndices
from snowflake.networks.gru import ResetAfterUpdate
from snowflake.networks.init import Initializer
from snowflake.networks.log_std import initial_log_std
from snowflake.networks.mlp import MLP
from snowflake.networks.native.library import library_for
from snowflake.networks.native.rounds import NativeRounds
from snowflake.networks.normalizer import RunningNorm, SlotNorm
from snowflake.networks.registry import register_actor
from snowflake.networks.rounds import GRUWeights, Rounds, run_rounds
from snowflake.networks.workspace import Pool


class NodeNormalizer(nn.Module):
    """Normaliser of node inputs: statistics per node class and feature, so that they fit every body of a vocabulary.

    Shapes:
        (N, F_root), (N, V - 1, F_joint) -> the same
    """

    def __init__(self, num_classes: int, root_features: int, joint_features: int) -> None:
        super().__init__()
        self.root = RunningNorm(1, root_features)
        self.joint = RunningNorm(num_classes, joint_features)

    def forward(self, root: Tensor, joint: Tensor, body: BodyIndices) -> tuple[Tensor, Tensor]:
        """Normalise the inputs of a body's nodes."""
        return self.root(root), self.joint(joint, body.joint_class)

    def update(self, root: Tensor, joint: Tensor, body: BodyIndices) -> None:
        """Add inputs of a body's nodes to the statistics."""
        self.root.update(root)
        self.joint.update(joint, body.joint_class)


class SlotNormalizer(nn.Module):
    """The same for the feature set `general`, where a body may lack slots: see `SlotNorm`."""

    def __init__(self, num_classes: int, root_slots: int, joint_slots: int) -> None:
        super().__init__()
        self.root = SlotNorm(1, root_slots)
        self.joint = SlotNorm(num_classes, joint_slots)

    def forward(self, root: Tensor, joint: Tensor, body: BodyIndices) -> tuple[Tensor, Tensor]:
        """Normalise the slots of a body's nodes."""
        slots = cast(GeneralBodyIndices, body)
        root = self.root(root[:, None], slots.root_class, slots.root_mask[None])[:, 0]
        return root, self.joint(joint, slots.joint_class, slots.joint_mask)

    def update(self, root: Tensor, joint: Tensor, body: BodyIndices) -> None:
        """Add slots of a body's nodes to the statistics."""
        slots = cast(GeneralBodyIndices, body)
        self.root.update(root[:, None], slots.root_class, slots.root_mask[None])
        self.joint.update(joint, slots.joint_class, slots.joint_mask)


class Encoder(nn.Module):
    """First node states, [row of the node-class table; tanh of a linear map of the inputs, one map per node type].

    Args:
        num_classes: rows of the table.
        root_features: inputs of the root, F_root.
        joint_features: inputs of a joint, F_joint.
        hidden_size: H; the table takes the first H // 2 features.
        init: fills the weights.

    Shapes:
        (N, F_root), (V - 1, N, F_joint), (V,) -> (V, N, H)
    """

    def __init__(
        self, num_classes: int, root_features: int, joint_features: int, hidden_size: int, init: Initializer
    ) -> None:
        super().__init__()
        table_width = hidden_size // 2
        self.table = nn.Parameter(torch.empty(num_classes, table_width))
        self.root = linear(root_features, hidden_size - table_width)
        self.joint = linear(joint_features, hidden_size - table_width)
        init.table(self.table)
        init.orthogonal(self.root)
        init.orthogonal(self.joint)

    def forward(self, root: Tensor, joint: Tensor, node_class: Tensor) -> Tensor:
        """Encode normalised inputs."""
        inputs = tanh(torch.cat([self.root(root)[None], self.joint(joint)]))  # (V, N, H - H // 2)
        rows = self.table.index_select(0, node_class)[:, None, :].expand(-1, len(root), -1)  # (V, N, H // 2)
        return torch.cat([rows, inputs], dim=-1)


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


class GraphNetwork(Network):
    """Encoder, messages and updates: everything before the read-out, which actor and critic add.

    Args:
        graphs: the bodies; they share the weights, so feature set and vocabulary must be the same.
        config: the policy section of the config.
        init: fills the weights.

    Raises:
        UserError: bodies that cannot share weights.
    """

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, init: Initializer) -> None:
        super().__init__(graphs, config)
        first, size = check_same_space(self.graphs), config.hidden_size
        num_classes, root, joint = len(first.vocabulary), len(first.root_columns), first.joint_columns.shape[1]
        general = first.feature_set == "general"
        indices, normalizer = (GeneralBodyIndices, SlotNormalizer) if general else (BodyIndices, NodeNormalizer)
        self._workspaces = Pool()
        self.bodies = nn.ModuleList(indices(graph, config) for graph in self.graphs)
        self.normalizer = normalizer(num_classes, root, joint)
        root_inputs, joint_inputs = root + len(first.root_static), joint + first.joint_static.shape[1]
        self.encoder = Encoder(num_classes, root_inputs, joint_inputs, size, init)
        self.message = (
            MLP((size,) * 4, final_tanh=True, kernels=config.kernels)
            if config.message_layer == "mlp"
            else self._convolution(init)
        )
        self.update = NodeUpdate(size, init, config.gru)
        self.decoder = MLP((self.decoder_inputs(first), size, size, 1), final_tanh=False, kernels=config.kernels)
        for part in (self.message, self.decoder):
            for layer in part.linears() if isinstance(part, MLP) else ():
                init.orthogonal(layer)

    def _convolution(self, init: Initializer) -> nn.Module:
        """Return the convolution that takes the place of the message MLP and the aggregation."""
        from snowflake.networks.message_layer import ConvMessage  # here, since it imports PyTorch Geometric

        config = self.config
        return ConvMessage(config.message_layer, config.hidden_size, config.message_layer_args, init.seed())

    def decoder_inputs(self, graph: MorphologyGraph) -> int:
        """Return how many features the decoder reads; the same for all bodies that share weights."""
        return self.config.hidden_size

    def body(self, k: int) -> BodyIndices:
        """Return the index arrays of body k."""
        return cast(BodyIndices, self.bodies[k])

    def rows_at_once(self) -> int:
        """See `Network.rows_at_once`."""
        return block_rows(max(graph.num_nodes for graph in self.graphs) * self.config.hidden_size)

    def prepare(self, obs: Tensor, k: int = 0) -> Prepared:
        """See `Network.prepare`.

        Returns:
            As far as the parts that do not train reach: the normalised inputs, root (N, F_root) and joints
            (V - 1, N, F_joint); or, under a frozen encoder, the first states (V, N, H); and, under a frozen message
            function too, what the nodes receive in the first round (V, N, H). Last the activations of the controls,
            (A, N, 1), of a body that has such.
        """
        body = self.body(k)
        root, joint = self.normalizer(*body.gather(obs), body)
        activations = body.activations(obs)
        rest = () if activations is None else (activations,)
        joint = joint.transpose(0, 1)
        if not self.is_frozen("encoder"):
            return (root, joint, *rest)
        states = self.encoder(*body.add_static(root, joint), body.node_class)
        if self.config.propagation_steps == 0 or not self.is_frozen("message"):
            return (states, *rest)
        return (states, self.receive(states, body), *rest)

    def final_states(self, prepared: Prepared, k: int) -> Tensor:
        """Return the states (V, N, H) of body k after all rounds of messages.

        A message depends on its sender only, so it is computed once per node, not once per edge.

        Args:
            prepared: from `prepare`.
            k: which of `graphs`.
        """
        body = self.body(k)
        states, received = self.first_states(prepared, k)
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
            and config.message_layer == "mlp"
            and config.aggregation != "max"
            and config.propagation_steps > 0
            and not torch.compiler.is_compiling()
            and self._is_plain()
        )

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
            own = NativeRounds(native, body.links())
            rounds = Rounds(self.config.propagation_steps, None, None, len(message), self._workspaces, own)
        weights = tuple(p for layer in message for p in (layer.weight, layer.bias))
        root, joint = (cast(GRUUpdate, unit).weights() for unit in (self.update.root, self.update.joint))
        return run_rounds(rounds, states, received, weights, root, joint)

    def first_states(self, prepared: Prepared, k: int) -> tuple[Tensor, Tensor | None]:
        """Return the first states (V, N, H), and what the nodes receive in the first round where that is prepared."""
        first = prepared[0]
        if first.dim() == 2:  # the root's inputs
            body = self.body(k)
            return self.encoder(*body.add_static(first, prepared[1]), body.node_class), None
        received = prepared[1] if len(prepared) > 1 and prepared[1].shape == first.shape else None
        return first, received

    def receive(self, states: Tensor, body: BodyIndices) -> Tensor:
        """Return the aggregated messages (V, N, H) that the nodes of a body get in one round."""
        if self.config.message_layer == "mlp":
            return body.aggregate(self.message(states))
        return cast(Tensor, self.message(states, body.edge_index))

    def update_normalizer(self, obs: Tensor, k: int = 0) -> None:
        """See `Network.update_normalizer`."""
        body = self.body(k)
        self.normalizer.update(*body.gather(obs), body)


@register_actor("nervenet")
class NerveNetActor(GraphNetwork, Actor):
    """The graph policy: the decoder turns the last state of every actuated joint into the mean of its action.

    Under `general` a control may act on several nodes: its decoder reads the mean of their states, the mean weighted by
    the signed moment on each (which tells a flexor from an extensor), the control's static features and activation.

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

    components: ClassVar[tuple[str, ...]] = ("encoder", "message", "update", "decoder", "log_std")

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, generator: torch.Generator) -> None:
        super().__init__(graphs, config, Initializer(config.init, generator))
        self.log_std = nn.Parameter(initial_log_std(self.graphs, config))

    def decoder_inputs(self, graph: MorphologyGraph) -> int:
        """See `GraphNetwork.decoder_inputs`."""
        if graph.feature_set != "general":
            return self.config.hidden_size
        return 2 * self.config.hidden_size + graph.actuator_static.shape[1] + 1

    def distribution_of(self, prepared: Prepared, k: int = 0) -> tuple[Tensor, Tensor]:
        """See `Actor.distribution_of`."""
        body = self.body(k)
        states = self.final_states(prepared, k)
        if body.outputs_are_nodes:  # decoding some nodes for nothing takes less time than copying the others' states
            outputs = self.decoder(states).squeeze(-1).index_select(0, body.output_node)
        else:
            activations = prepared[-1] if body.has_activations else None
            outputs = self.decoder(body.read_out(states, activations)).squeeze(-1)  # of (A, N, inputs of the decoder)
        mean = outputs.t().contiguous()  # (N, A)
        if self.config.log_std == "per_actuator":
            return mean, self.log_std
        return mean, self.log_std.index_select(0, body.output_class)
