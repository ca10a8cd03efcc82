"""What networks over a body's nodes share: gather, normaliser, encoder per node type, observations by body."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks.activation import tanh
from snowflake.networks.base import Actor, Critic, Network, Prepared, block_rows, check_same_space, linear
from snowflake.networks.body import BodyIndices
from snowflake.networks.general_body import GeneralBodyIndices
from snowflake.networks.init import Initializer
from snowflake.networks.log_std import initial_log_std
from snowflake.networks.memory import NodeMemory, Past
from snowflake.networks.normalizer import RunningNorm, SlotNorm


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


class NodeNetwork(Network):
    """A state for every node from the observation, then a decoder: base of graph networks and transformers.

    Args:
        graphs: the bodies; they share the weights, so feature set and vocabulary must be the same.
        config: the policy section of the config.
        init: fills the weights.

    Raises:
        UserError: bodies that cannot share weights.
    """

    decoder: Any

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, init: Initializer) -> None:
        super().__init__(graphs, config)
        first = check_same_space(self.graphs)
        num_classes, root, joint = len(first.vocabulary), len(first.root_columns), first.joint_columns.shape[1]
        general = first.feature_set == "general"
        indices, normalizer = (GeneralBodyIndices, SlotNormalizer) if general else (BodyIndices, NodeNormalizer)
        self.bodies = nn.ModuleList(indices(graph, config) for graph in self.graphs)
        self.normalizer = normalizer(num_classes, root, joint)
        root_inputs, joint_inputs = root + len(first.root_static), joint + first.joint_static.shape[1]
        self.encoder = self.make_encoder(root_inputs, joint_inputs, init)

    def make_encoder(self, root_inputs: int, joint_inputs: int, init: Initializer) -> Encoder:
        """Return the encoder of inputs of these widths; called once, when graphs and config are there."""
        return Encoder(len(self.graphs[0].vocabulary), root_inputs, joint_inputs, self.config.hidden_size, init)

    @abstractmethod
    def final_states(self, prepared: Prepared, k: int) -> Tensor:
        """Return the last states (V, N, S) of body k's nodes, S being `state_size`, from `prepare`."""

    def final_states_of(self, prepared: Sequence[Prepared], bodies: Sequence[int]) -> list[Tensor]:
        """Return `final_states` for the observations of several bodies; a network may compute them together."""
        return [self.final_states(part, k) for part, k in zip(prepared, bodies, strict=True)]

    @property
    def state_size(self) -> int:
        """Features of a last state, which the decoder reads."""
        return self.config.hidden_size

    def decoder_inputs(self) -> int:
        """Return how many features the decoder reads; the same for all bodies that share weights."""
        return self.state_size

    def body(self, k: int) -> BodyIndices:
        """Return the index arrays of body k."""
        return cast(BodyIndices, self.bodies[k])

    def rows_at_once(self) -> int:
        """See `Network.rows_at_once`."""
        return block_rows(max(graph.num_nodes for graph in self.graphs) * self.config.hidden_size)

    def prepare(self, obs: Tensor, k: int = 0) -> Prepared:
        """See `Network.prepare`.

        Returns:
            The normalised inputs, root (N, F_root) and joints (V - 1, N, F_joint); or, under a frozen encoder, the
            first states (V, N, H), with a memory followed by the inputs. Last the activations of the controls,
            (A, N, 1), of a body that has such.
        """
        body = self.body(k)
        root, joint = self.normalizer(*body.gather(obs), body)
        activations = body.activations(obs)
        rest = () if activations is None else (activations,)
        joint = joint.transpose(0, 1)
        if not self.is_frozen("encoder"):
            return (root, joint, *rest)
        inputs = () if self.memory is None else (root, joint)  # which the memory reads
        return (self.encode(root, joint, k), *inputs, *rest)

    def encode(self, root: Tensor, joint: Tensor, k: int) -> Tensor:
        """Return the first states (V, N, H) of body k from normalised inputs (N, F_root), (V - 1, N, F_joint)."""
        body = self.body(k)
        return self.encoder(*body.add_static(root, joint), body.node_class)  # type: ignore[no-any-return]

    def first_states(self, prepared: Prepared, k: int) -> Tensor:
        """Return the first states (V, N, H) of body k, from `prepare`."""
        first = prepared[0]
        return self.encode(first, prepared[1], k) if first.dim() == 2 else first  # two axes: the root's inputs

    def update_normalizer(self, obs: Tensor, k: int = 0) -> None:
        """See `Network.update_normalizer`."""
        body = self.body(k)
        self.normalizer.update(*body.gather(obs), body)


class NodeActor(NodeNetwork, Actor):
    """The decoder turns the last state of every actuated joint into the mean of its action.

    Under `general` a control may act on several nodes: its decoder reads the mean of their states, the mean weighted by
    the signed moment on each (which tells a flexor from an extensor), the control's static features and activation.

    Raises:
        UserError: bodies that cannot share weights; `per_actuator` log-std with several bodies.
    """

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, init: Initializer) -> None:
        super().__init__(graphs, config, init)
        self.log_std = nn.Parameter(initial_log_std(self.graphs, config))
        if config.memory == "none":
            own = tuple(name for name in type(self).components if name != "memory")
            self.components = own  # type: ignore[misc]  # of this object, since its class may have one

    def add_memory(self, init: Initializer) -> None:
        """Build the memory that the config names; last, so that the other initial weights do not depend on it."""
        if self.config.memory != "none":
            first = self.graphs[0]
            features = len(first.root_columns), first.joint_columns.shape[1]
            self.memory = NodeMemory(self.graphs, self.config, *features, init)

    def decoder_inputs(self) -> int:
        """See `NodeNetwork.decoder_inputs`."""
        graph = self.graphs[0]
        return (
            self.state_size
            if graph.feature_set != "general"
            else 2 * self.state_size + graph.actuator_static.shape[1] + 1
        )

    def recall(self, prepared: Prepared, past: Past, k: int = 0) -> Prepared:
        """See `Actor.recall`."""
        assert self.memory is not None
        root, joint, *rest = prepared[1:] if self.is_frozen("encoder") else prepared
        return (self.first_states(prepared, k) + self.memory(root, joint, past, k), *rest)

    def distribution_of(self, prepared: Prepared, k: int = 0) -> tuple[Tensor, Tensor]:
        """See `Actor.distribution_of`."""
        return self.read_out(self.final_states(prepared, k), prepared, k)

    def distributions_of(self, prepared: Sequence[Prepared], bodies: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """See `Actor.distributions_of`."""
        states = self.final_states_of(prepared, bodies)
        return [self.read_out(*columns) for columns in zip(states, prepared, bodies, strict=True)]

    def read_out(self, states: Tensor, prepared: Prepared, k: int) -> tuple[Tensor, Tensor]:
        """Return the distribution of actions that last states (V, N, S) of body k are decoded into."""
        body = self.body(k)
        if body.outputs_are_nodes:  # decoding some nodes for nothing takes less time than copying the others' states
            outputs = self.decoder(states).squeeze(-1).index_select(0, body.output_node)
        else:
            activations = prepared[-1] if body.has_activations else None
            outputs = self.decoder(body.read_out(states, activations)).squeeze(-1)  # of (A, N, inputs of the decoder)
        mean = outputs.t().contiguous()  # (N, A)
        if self.config.log_std == "per_actuator":
            return mean, self.log_std
        return mean, self.log_std.index_select(0, body.output_class)


class NodeCritic(NodeNetwork, Critic):
    """Decodes the mean or the sum of all node states, or the root's, into the value."""

    def value_of(self, prepared: Prepared, k: int = 0) -> Tensor:
        """See `Critic.value_of`."""
        return self.read_out(self.final_states(prepared, k))

    def values_of(self, prepared: Sequence[Prepared], bodies: Sequence[int]) -> list[Tensor]:
        """See `Critic.values_of`."""
        return [self.read_out(states) for states in self.final_states_of(prepared, bodies)]

    def read_out(self, states: Tensor) -> Tensor:
        """Return the value (N,) that last states (V, N, S) are decoded into."""
        match self.config.critic_readout:
            case "mean":
                pooled = states.mean(dim=0)
            case "sum":
                pooled = states.sum(dim=0)
            case _:
                pooled = states[0]
        return self.decoder(pooled).squeeze(-1)  # type: ignore[no-any-return]
