"""Flat networks: the MLP layers that every network uses, the baseline actor, and the flat critic."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks.activation import tanh
from snowflake.networks.base import Actor, Critic, Prepared, linear, single_graph
from snowflake.networks.init import Initializer
from snowflake.networks.native.library import COMPILED, MAX_WIDTH, library_for
from snowflake.networks.native.mlp import mlp
from snowflake.networks.normalizer import RunningNorm
from snowflake.networks.registry import register_actor, register_critic
from snowflake.networks.workspace import Pool

_OUTPUT_NORM = 0.01  # small first outputs: means near 0, values near 0


class MLP(nn.Module):
    """Linear layers with tanh between them.

    Args:
        sizes: widths from input to output, at least two.
        final_tanh: whether tanh follows the last layer too.
        kernels: `PolicyConfig.kernels`: by the compiled library on the CPU if that says so.

    Weights are uninitialised: see `Initializer`.

    Attributes:
        bf16: whether the compiled library rounds operands to bfloat16: see `snowflake.networks.operands`.

    Shapes:
        (..., sizes[0]) -> (..., sizes[-1])
    """

    def __init__(self, sizes: Sequence[int], *, final_tanh: bool, kernels: str = "reference") -> None:
        super().__init__()
        self.layers = nn.ModuleList(linear(a, b) for a, b in pairwise(sizes))
        self.final_tanh, self.kernels = final_tanh, kernels
        self.bf16 = False
        self._memory = Pool()

    def has_kernels(self) -> bool:
        """Return whether the compiled library is to compute the layers, where there is one, on the CPU."""
        plain = all(type(layer) is nn.Linear for layer in self.layers)  # none was swapped
        return self.kernels in COMPILED and plain and self._widest() <= MAX_WIDTH

    def _widest(self) -> int:
        return max(max(layer.weight.shape) for layer in self.linears())

    def linears(self) -> list[nn.Linear]:
        """Return the layers, first to last."""
        return [cast(nn.Linear, layer) for layer in self.layers]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers."""
        native = library_for(self.kernels, x, self._widest())
        if native is not None and all(type(layer) is nn.Linear for layer in self.layers):  # none was swapped
            layers = [(layer.weight, layer.bias) for layer in self.linears()]
            return mlp(native, self._memory, x, layers, final_tanh=self.final_tanh, bf16=self.bf16)
        *hidden, last = self.layers
        for layer in hidden:
            x = tanh(layer(x))
        x = last(x)
        return tanh(x) if self.final_tanh else x


@register_actor("mlp")
class MLPActor(Actor):
    """The flat baseline: two tanh layers over the whole normalised observation; a log-std for every actuator.

    Serves one body. Hidden weights have unit length per unit, output weights 0.01, biases 0, as in the official code.

    Raises:
        UserError: several bodies.
    """

    components: ClassVar[tuple[str, ...]] = ("hidden", "output", "log_std")

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, generator: torch.Generator) -> None:
        super().__init__(graphs, config)
        graph = single_graph(graphs, "the flat actor (policy.network = 'mlp')", "set policy.network to 'nervenet'")
        self.obs_dim = graph.obs_dim
        self.normalizer = RunningNorm(1, graph.obs_dim)
        self.hidden, self.output = _flat_layers(graph.obs_dim, graph.act_dim, config, generator)
        self.log_std = nn.Parameter(torch.full((graph.act_dim,), config.log_std_init))

    def prepare(self, obs: Tensor, k: int = 0) -> Prepared:
        """See `Network.prepare`."""
        return (self.normalizer(obs[:, : self.obs_dim]),)

    def distribution_of(self, prepared: Prepared, k: int = 0) -> tuple[Tensor, Tensor]:
        """See `Actor.distribution_of`."""
        return self.output(self.hidden(prepared[0])), self.log_std

    def update_normalizer(self, obs: Tensor, k: int = 0) -> None:
        """See `Network.update_normalizer`."""
        self.normalizer.update(obs[:, : self.obs_dim])


@register_critic("flat")
class FlatCritic(Critic):
    """Two tanh layers over the whole normalised observation. Serves one body; initialised like `MLPActor`.

    Raises:
        UserError: several bodies.
    """

    components: ClassVar[tuple[str, ...]] = ("hidden", "output")

    def __init__(self, graphs: Sequence[MorphologyGraph], config: PolicyConfig, generator: torch.Generator) -> None:
        super().__init__(graphs, config)
        graph = single_graph(graphs, "the flat critic (policy.critic = 'flat')", "set policy.critic to 'graph'")
        self.obs_dim = graph.obs_dim
        self.normalizer = RunningNorm(1, graph.obs_dim)
        self.hidden, self.output = _flat_layers(graph.obs_dim, 1, config, generator)

    def prepare(self, obs: Tensor, k: int = 0) -> Prepared:
        """See `Network.prepare`."""
        return (self.normalizer(obs[:, : self.obs_dim]),)

    def value_of(self, prepared: Prepared, k: int = 0) -> Tensor:
        """See `Critic.value_of`."""
        return self.output(self.hidden(prepared[0])).squeeze(-1)

    def update_normalizer(self, obs: Tensor, k: int = 0) -> None:
        """See `Network.update_normalizer`."""
        self.normalizer.update(obs[:, : self.obs_dim])


def _flat_layers(obs_dim: int, out_dim: int, config: PolicyConfig, generator: torch.Generator) -> tuple[MLP, nn.Linear]:
    hidden = MLP((obs_dim, config.hidden_size, config.hidden_size), final_tanh=True, kernels=config.kernels)
    output = linear(config.hidden_size, out_dim)
    init = Initializer(config.init, generator)
    for layer in hidden.linears():
        init.normc(layer, 1.0)
    init.normc(output, _OUTPUT_NORM)
    return hidden, output
