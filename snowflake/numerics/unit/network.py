"""The parametrisation `unit` of a network: its layers in their unit-scaled form, weights drawn anew.

Works by the names of the parts, on actors and critics of both kinds, so that it needs none of their classes:

| part | form |
|---|---|
| `encoder` | table rows of RMS 1; inputs K^-1/2, tanh |
| `message` | any number of layers, K^-1/2 and tanh |
| `bodies.*.adjacency` | sum over neighbours / sqrt(degree), in place of the mean or the sum; a maximum stays |
| `update.root`, `update.joint` | `UnitGRU` |
| `decoder` | hidden layers K^-1/2 and tanh; the last K^-1 |
| `hidden`, `output` | of flat networks, the same as a decoder |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from agents.errors import UserError
from snowflake.numerics.unit.modules import UnitEncoder, UnitGRU, UnitLinear, UnitMLP


def to_unit(network: Any, batch_size: int, generator: torch.Generator) -> None:
    """Give a freshly built actor or critic the unit-scaled form, in place, before parameters are frozen or optimised.

    Names and shapes of parameters stay, so its state dict has the same form, but not the same meaning: a state dict is
    at home in its own parametrisation only. Factors come from shapes alone: the batch size, the mean number of nodes
    and of actuators of the bodies, the rounds of messages. Since they are constants, several bodies' gradients stay in
    proportion. The log standard deviation is left alone.

    Args:
        network: has `graphs`, `config.propagation_steps` and the parts named above.
        batch_size: B, rows of a minibatch.
        generator: source of the weights.

    Raises:
        UserError: the network has a part that has no unit-scaled form.
    """
    if hasattr(network, "hidden") and hasattr(network, "output"):
        network.hidden = _mlp(network.hidden, batch_size)
        network.output = UnitLinear(network.output, batch_size, "readout")
    elif all(hasattr(network, part) for part in ("encoder", "message", "update", "decoder")):
        _graph_network(network, batch_size)
    else:
        raise UserError(
            f"policy.parametrization = 'unit' has no form for {type(network).__name__}: set it to 'standard'"
        )
    _initialize(network, generator)


def _graph_network(network: Any, batch_size: int) -> None:
    layers = getattr(network.message, "layers", None)
    if layers is None:
        raise UserError(
            "policy.parametrization = 'unit' scales the message function mlp, not a convolution: set "
            "policy.message_layer to 'mlp', or policy.parametrization to 'standard'"
        )
    nodes = _mean([graph.num_nodes for graph in network.graphs])
    rounds = max(network.config.propagation_steps, 1)
    acts = "log_std" in network.components
    # The gradient of a value reaches all nodes alike, so that their shares of a weight's gradient do not average out.
    alike = 1.0 if acts else nodes**0.5
    roots, joints = batch_size, batch_size * (nodes - 1.0) * alike
    encoder = network.encoder
    network.encoder = UnitEncoder(
        encoder.table,
        UnitLinear(encoder.root, roots, "input"),
        UnitLinear(encoder.joint, joints, "input"),
        roots + joints,
    )
    network.message = _mlp(network.message, (roots + joints) * rounds)
    network.update.root = _gru(network.update.root, roots * rounds)
    network.update.joint = _gru(network.update.joint, joints * rounds)
    rows = batch_size * _mean([len(graph.output_node) for graph in network.graphs]) if acts else batch_size
    pool = (1.0, 1.0) if acts else _pool(network.config.critic_readout, nodes)
    network.decoder = _mlp(network.decoder, rows, readout=True, pool=pool)
    for body in network.bodies:
        matrix = getattr(body, "adjacency", None)
        if matrix is not None:
            matrix.div_(matrix.norm(dim=1, keepdim=True).clamp_min(torch.finfo(matrix.dtype).tiny))


def _pool(readout: str, nodes: float) -> tuple[float, float]:
    """Return the factors of the pooled state of V nodes, which is a cut edge.

    The states of a body's nodes are neither equal nor independent, and their mean has about half the RMS of a state.
    The gradient of the mean reaches every state 1 / V strong, and then all of them alike, so it adds up in every round.
    """
    match readout:
        case "mean":
            return 2.0, 0.8 * nodes
        case "sum":
            return 2.0 / nodes, 0.8
    return 1.0, 1.0


def _mlp(mlp: Any, rows: float, *, readout: bool = False, pool: tuple[float, float] = (1.0, 1.0)) -> UnitMLP:
    layers = [UnitLinear(layer, rows) for layer in mlp.layers]
    if readout:
        layers[-1].kind = "readout"
    return UnitMLP(layers, final_tanh=mlp.final_tanh, pool=pool)


def _gru(update: Any, rows: float) -> UnitGRU:
    return UnitGRU(*(UnitLinear(getattr(update, name), rows) for name in ("message", "gates", "candidate")))


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / len(numbers)


@torch.no_grad()
def _initialize(network: nn.Module, generator: torch.Generator) -> None:
    for module in network.modules():
        if isinstance(module, UnitEncoder):
            module.table.normal_(generator=generator)
        elif isinstance(module, UnitLinear):
            module.weight.normal_(generator=generator)
            if module.bias is not None:
                module.bias.zero_()
