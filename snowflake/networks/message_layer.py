"""A convolution of PyTorch Geometric in place of the message function and the aggregation.

PyTorch Geometric is imported here only, so only where `policy.message_layer` names one of its convolutions.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from agents.errors import UserError, nearest
from snowflake.networks.message_checks import check_layer

_WIDTHS = ("in_channels", "out_channels", "channels")
_CACHED_SIZES = 8


class ConvMessage(nn.Module):
    """The message component as a `torch_geometric.nn` convolution, which sends and aggregates in one.

    Its parameters do not depend on a body: edges come with every call, so one module serves several bodies.

    Args:
        name: class in `torch_geometric.nn`.
        size: H, width of node states.
        arguments: of the constructor, besides the widths, which are H unless given.
        seed: of the initial weights; the global generators are left as they were.

    Shapes:
        (V, N, H), edge_index (2, E) -> (V, N, H)

    Raises:
        UserError: no such convolution, arguments that it does not take, or one that cannot serve: see `check_layer`.
    """

    def __init__(self, name: str, size: int, arguments: Mapping[str, Any], seed: int) -> None:
        super().__init__()
        cls = find_convolution(name)

        def make() -> nn.Module:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                return construct(cls, size, arguments)

        check_layer(make, name, size)
        self.conv = make()
        self._batches: OrderedDict[tuple[Any, ...], tuple[Tensor, Tensor]] = OrderedDict()

    def forward(self, states: Tensor, edge_index: Tensor) -> Tensor:
        """Return what every node receives."""
        nodes, rows = states.shape[:2]
        received = self.conv(states.reshape(nodes * rows, -1), self._batch_edges(edge_index, rows))
        return cast(Tensor, received).view_as(states)

    def _batch_edges(self, edge_index: Tensor, rows: int) -> Tensor:
        """Return the edges (2, E * N) of N copies of a body, whose node v of copy n has number v * N + n."""
        key = (id(edge_index), rows)
        kept = self._batches.pop(key, None)
        if kept is None or kept[0] is not edge_index:
            copies = torch.arange(rows, device=edge_index.device)
            kept = (edge_index, (edge_index[:, :, None] * rows + copies).flatten(1))
        self._batches[key] = kept  # the newest last
        if len(self._batches) > _CACHED_SIZES:
            self._batches.popitem(last=False)
        return kept[1]


def find_convolution(name: str) -> type[nn.Module]:
    """Return the class in `torch_geometric.nn` of a name.

    Raises:
        UserError: there is none; the message names the nearest.
    """
    import torch_geometric.nn.conv as convolutions

    cls = getattr(convolutions, name, None) if name in convolutions.classes else None
    if cls is None:
        raise UserError(
            f"policy.message_layer = {name!r} is not a convolution of torch_geometric.nn: "
            f"{nearest(name, ('mlp', *convolutions.classes))}"
        )
    return cast(type[nn.Module], cls)


def construct(cls: Callable[..., nn.Module], size: int, arguments: Mapping[str, Any]) -> nn.Module:
    """Construct a convolution from H to H features.

    Raises:
        UserError: it needs an argument that is not there, or refuses one.
    """
    parameters = inspect.signature(cls).parameters
    name = getattr(cls, "__name__", str(cls))
    given = {key: size for key in _WIDTHS if key in parameters} | dict(arguments)
    needed = [
        key
        for key, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    missing = [key for key in needed if key not in given]
    if missing:
        raise UserError(
            f"policy.message_layer = {name!r} needs {', '.join(missing)}: give it in policy.message_layer_args, or "
            "choose another convolution where it is no plain value"
        )
    try:
        return cls(**given)
    except Exception as error:  # whatever a constructor raises for its arguments
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"policy.message_layer = {name!r} cannot be made with policy.message_layer_args {dict(arguments)}: {reason}"
        ) from error
