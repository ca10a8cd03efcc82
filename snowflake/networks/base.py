"""What every network is: a module in named components that serves one or several bodies."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import torch
from torch import Tensor, nn

from agents.errors import UserError, nearest
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph

if TYPE_CHECKING:
    from snowflake.networks.memory import NodeMemory, Past

Prepared = tuple[Tensor, ...]
"""What a network makes of observations before the first parameter that trains; the batch is the second to last axis of
each tensor. During an update, in which statistics stand still, it does not change."""


BLOCK = 2**17
"""Numbers in an array that is computed at once on the CPU: half a megabyte in float32."""


def block_rows(width: int) -> int:
    """Return how many observations are best computed at once, if an array has ``width`` numbers for each.

    The power of two, 8 or more, whose arrays come closest to `BLOCK`: they are read several times, and should stay in a
    core's own cache in between.
    """
    return int(2 ** max(3, round(math.log2(BLOCK / width))))


class Network(nn.Module, ABC):
    """Base of actors and critics.

    A component is an attribute of the same name, a module or a parameter; every parameter belongs to exactly one.
    What a network learned or counted is in its `state_dict`; index arrays of the bodies are buffers outside it.

    Args:
        graphs: the bodies that it serves.
        config: the policy section of the config.
    """

    components: ClassVar[tuple[str, ...]] = ()

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig) -> None:
        super().__init__()
        self.graphs = tuple(graphs)
        self.config = config
        self.memory: NodeMemory | None = None

    def component_parameters(self, name: str) -> dict[str, nn.Parameter]:
        """Return the parameters of a component by qualified name, in the order of `named_parameters`.

        Raises:
            UserError: no such component.
        """
        if name not in self.components:
            raise UserError(f"{type(self).__name__} has no component {name!r}: {nearest(name, self.components)}")
        return {key: p for key, p in self.named_parameters() if key == name or key.startswith(f"{name}.")}

    def is_frozen(self, name: str) -> bool:
        """Return whether no parameter of a component trains."""
        part = getattr(self, name)
        return not any(p.requires_grad for p in (part.parameters() if isinstance(part, nn.Module) else (part,)))

    def rows_at_once(self) -> int:
        """Return how many observations the CPU best computes at once: see `block_rows`."""
        return block_rows(self.config.hidden_size)

    @abstractmethod
    def prepare(self, obs: Tensor, k: int = 0) -> Prepared:
        """Return what does not depend on parameters that train.

        Args:
            obs: (N, D_k or wider) float32; extra columns on the right are ignored.
            k: which of `graphs` they come from.
        """

    @abstractmethod
    def update_normalizer(self, obs: Tensor, k: int) -> None:
        """Add observations to the running statistics of the inputs.

        Args:
            obs: (M, D_k or wider) float32; extra columns on the right are ignored.
            k: which of `graphs` they come from.
        """


class Actor(Network):
    """Maps observations to a diagonal Gaussian over actions.

    Attributes:
        memory: what it keeps of past steps; None for an actor without memory. See `NodeMemory`.
    """

    def recall(self, prepared: Prepared, past: Past, k: int = 0) -> Prepared:
        """Add the memory's part to what was prepared, for `distribution_of`; only of an actor that has a memory.

        Args:
            prepared: from `prepare`, for T steps of E environments, step after step.
            past: of these environments.
            k: which of `graphs` they come from.
        """
        raise NotImplementedError(f"{type(self).__name__} has no memory")

    log_std: nn.Parameter

    @abstractmethod
    def distribution_of(self, prepared: Prepared, k: int = 0) -> tuple[Tensor, Tensor]:
        """Return the distribution of actions.

        Args:
            prepared: from `prepare`, for N observations.
            k: which of `graphs` they come from.

        Returns:
            Mean (N, A_k) and log standard deviation (A_k,), in actuator order, in units of the action space [-1, 1].
        """

    def distributions_of(self, prepared: Sequence[Prepared], bodies: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Return `distribution_of` for the observations of several bodies; a network may compute them together."""
        return [self.distribution_of(part, k) for part, k in zip(prepared, bodies, strict=True)]

    def distribution(self, obs: Tensor, k: int = 0) -> tuple[Tensor, Tensor]:
        """Return the distribution of actions for observations: `distribution_of` what `prepare` makes of them."""
        return self.distribution_of(self.prepare(obs, k), k)


class Critic(Network):
    """Maps observations to state values."""

    @abstractmethod
    def value_of(self, prepared: Prepared, k: int = 0) -> Tensor:
        """Return the expected discounted return (N,) of N observations of body k, from `prepare`."""

    def values_of(self, prepared: Sequence[Prepared], bodies: Sequence[int]) -> list[Tensor]:
        """Return `value_of` for the observations of several bodies; a network may compute them together."""
        return [self.value_of(part, k) for part, k in zip(prepared, bodies, strict=True)]

    def value(self, obs: Tensor, k: int = 0) -> Tensor:
        """Return the expected discounted return (N,) of observations (N, D_k or wider) of body k."""
        return self.value_of(self.prepare(obs, k), k)


def single_graph(graphs: Sequence[MorphologyGraph], what: str, instead: str) -> MorphologyGraph:
    """Return the only graph.

    Raises:
        UserError: there are several, which `what` cannot serve; `instead` tells what can.
    """
    if len(graphs) != 1:
        raise UserError(f"{what} serves one body, not {', '.join(graph.name for graph in graphs)}: {instead}")
    return graphs[0]


def check_same_space(graphs: Sequence[MorphologyGraph]) -> MorphologyGraph:
    """Return the first graph, after checking that one set of weights fits all.

    Raises:
        UserError: feature sets, node classes or input widths differ.
    """
    first = graphs[0]
    for other in graphs[1:]:
        for what, mine, theirs in (
            ("feature sets", first.feature_set, other.feature_set),
            ("node classes", first.vocabulary, other.vocabulary),
            ("root input widths", len(first.root_columns), len(other.root_columns)),
            ("joint input widths", first.joint_columns.shape[1], other.joint_columns.shape[1]),
        ):
            if mine != theirs:
                raise UserError(
                    f"{first.name} and {other.name} cannot share a policy, their {what} differ ({mine} and {theirs}): "
                    "train them separately"
                )
    return first


def linear(in_features: int, out_features: int, bias: bool = True) -> nn.Linear:
    """Return an `nn.Linear` with uninitialised weights: the usual constructor would draw from the global generator."""
    if in_features == 0:  # nothing but a bias; PyTorch warns that it cannot initialise such a weight
        layer = linear(1, out_features, bias)
        layer.in_features, layer.weight = 0, nn.Parameter(layer.weight.detach()[:, :0])
        return layer
    return cast(nn.Linear, torch.nn.utils.skip_init(nn.Linear, in_features, out_features, bias=bias))
