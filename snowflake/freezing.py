"""Freezing by component: which parts of a network stay at their initial values.

Snowflake (Blake et al. 2021) is NerveNet with `encoder`, `message` and `decoder` frozen. A frozen parameter has
`requires_grad` off, so no gradient is computed for it, and is absent from `trainable_parameters`, from which the
optimiser is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import nn

from agents.errors import UserError

NODE_TABLE = "encoder.table"


class Network(Protocol):
    """What is asked of a network here; `snowflake.networks.Network` has it."""

    components: ClassVar[tuple[str, ...]]

    def component_parameters(self, name: str) -> dict[str, nn.Parameter]:
        """Return a component's parameters by qualified name; `UserError` for a name that the class lacks."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return all parameters by qualified name."""
        ...


class Row(NamedTuple):
    """One line of the frozen/trainable table."""

    component: str
    parameters: int
    trainable: bool


def freeze(module: Network, names: Sequence[str], *, train_node_table: bool = False) -> None:
    """Freeze components of a network in place, and drop gradients that they hold.

    Args:
        module: an actor or a critic.
        names: components, as in `module.components`; none freezes nothing.
        train_node_table: leave the node-class table trainable though the encoder is frozen (the split of the official
            Snowflake code).

    Raises:
        UserError: a name that the class lacks, no parameter left to train, or `train_node_table` without a table.
    """
    frozen: dict[str, nn.Parameter] = {}
    for name in names:
        frozen |= module.component_parameters(name)
    if train_node_table:
        if NODE_TABLE not in dict(module.named_parameters()):
            raise UserError(f"train_node_table: {type(module).__name__} has no node-class table, leave it false")
        frozen.pop(NODE_TABLE, None)
    if not any(p.requires_grad and p.numel() for key, p in module.named_parameters() if key not in frozen):
        raise UserError(
            f"freezing {', '.join(names)} leaves {type(module).__name__} nothing to train: leave out one of its "
            f"components {', '.join(module.components)}"
        )
    for parameter in frozen.values():
        parameter.requires_grad_(False)
        # An optimiser built before would still apply a gradient that is left here.
        parameter.grad = None


def trainable_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that an optimiser may hold, in the order of `named_parameters`."""
    return [p for p in module.parameters() if p.requires_grad]


def rows(module: Network) -> list[Row]:
    """Return (component, number of parameters, trainable) for every component.

    A component that is frozen in part takes two rows, each naming the parts that it counts.
    """
    result = []
    for component in module.components:
        parameters = module.component_parameters(component)
        states = {p.requires_grad for p in parameters.values()}
        for trainable in sorted(states):
            part = {key: p for key, p in parameters.items() if p.requires_grad == trainable}
            label = component
            if len(states) > 1:
                pieces = dict.fromkeys(key.split(".")[1] for key in part)
                label = f"{component} ({', '.join(pieces)})"
            result.append(Row(label, sum(p.numel() for p in part.values()), trainable))
    return result


def table(module: Network) -> str:
    """Return the frozen/trainable table as text, totals last."""
    lines = [(row.component, f"{row.parameters:,}", "trainable" if row.trainable else "frozen") for row in rows(module)]
    for trainable in (True, False):
        total = sum(row.parameters for row in rows(module) if row.trainable == trainable)
        lines.append(("total", f"{total:,}", "trainable" if trainable else "frozen"))
    lines.insert(0, ("component", "parameters", "state"))
    first, second = (max(len(line[i]) for line in lines) for i in (0, 1))
    return "\n".join(f"{name:<{first}}  {count:>{second}}  {state}" for name, count, state in lines)


class FrozenBytes:
    """A snapshot of a module's frozen parameters, to hold them to their bytes later.

    Args:
        module: snapshot of its parameters with `requires_grad` off is taken now.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._bytes = {name: _raw(p) for name, p in module.named_parameters() if not p.requires_grad}

    def changed(self) -> list[str]:
        """Return the names of parameters whose bytes are no longer those of the snapshot."""
        now = dict(self._module.named_parameters())
        return [name for name, raw in self._bytes.items() if _raw(now[name]) != raw]

    def assert_unchanged(self) -> None:
        """Raise `RuntimeError` naming the frozen parameters that moved, if any did."""
        moved = self.changed()
        if moved:
            raise RuntimeError(f"frozen parameters have changed: {', '.join(moved)}")


def _raw(parameter: torch.Tensor) -> bytes:
    return parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
