"""Products whose operands the compiled library rounds to bfloat16: where that can be, and how to have it so."""

from __future__ import annotations

from torch import nn

import snowflake.networks.native.library as native
from snowflake.networks.base import Network
from snowflake.networks.mlp import MLP, FlatCritic, MLPActor
from snowflake.networks.nervenet import GraphNetwork
from snowflake.numerics.convert import Row


def refusal(network: Network) -> str:
    """Say in half a sentence why the library cannot compute most of a network like this; empty if it can."""
    config, device = network.config, next(network.parameters()).device
    if device.type != "cpu":
        return f"it is on {device}"
    if config.kernels not in native.COMPILED:
        return f"policy.kernels is {config.kernels}"
    if not _has_kernels(network):
        return "its layers have no compiled form"
    found = native.library()
    if isinstance(found, str):
        return found
    return "" if found.multiplies_bf16 else "this CPU multiplies no bfloat16 numbers"


def round_operands(network: Network) -> list[Row]:
    """Have the library round operands to bfloat16 from now on, where it computes; parameters stay in 32 bits.

    Returns:
        A line for every weight matrix: of parts of a network that the library does not compute too, which stay as they
        are.
    """
    rounds = isinstance(network, GraphNetwork) and _has_kernels(network)
    if isinstance(network, GraphNetwork):
        network.bf16 = rounds
    stacks = {name: module for name, module in network.named_modules() if isinstance(module, MLP)}
    for stack in stacks.values():
        stack.bf16 = stack.has_kernels()
    inside = {f"{name}." for name, stack in stacks.items() if stack.bf16}
    if rounds:
        inside |= {"message.", "update."}
    sums = {f"{name}.layers.{len(stack.layers) - 1}" for name, stack in stacks.items() if _ends_in_sums(stack)}
    rows = []
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Linear):
            shape = layer.out_features, layer.in_features
            if name in sums:
                rows.append(Row(name, shape, "fp32", "one output"))
            elif name.startswith(tuple(inside)):
                rows.append(Row(name, shape, "bf16", "compiled"))
            else:
                rows.append(Row(name, shape, "fp32", "not compiled"))
    return rows


def _has_kernels(network: Network) -> bool:
    """Return whether the library has the rounds of a graph network, or the hidden layers of a flat one."""
    if isinstance(network, GraphNetwork):
        config = network.config
        return network.has_kernels() and config.propagation_steps > 0 and config.hidden_size <= native.MAX_WIDTH
    if not isinstance(network, MLPActor | FlatCritic):
        return False
    return isinstance(network.hidden, MLP) and network.hidden.has_kernels()


def _ends_in_sums(stack: MLP) -> bool:
    """Return whether the library computes the last layer as sums over rows, in 32 bits."""
    return not stack.final_tanh and stack.linears()[-1].out_features == 1
