"""Which convolutions can be the message layer: found out by constructing one and running it on a small graph."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from agents.errors import UserError

# A star whose centre has a tail, each edge in both directions: nodes of degree 1, 2 and 3.
_EDGES = torch.tensor([[0, 1, 0, 2, 0, 3, 3, 4, 4, 5], [1, 0, 2, 0, 3, 0, 4, 3, 5, 4]])
_NODES = 6


def check_layer(make: Callable[[], nn.Module], name: str, size: int) -> None:
    """Require a function of one graph's node states (V, H) and edges to states (V, H), the same at every call.

    Args:
        make: constructs the convolution; its weights must be the same every time.
        name: for the messages.
        size: H.

    Raises:
        UserError: the convolution takes other inputs, returns another width, drops out, keeps batch statistics, mixes
            the graphs of a batch, is lazy, random or shares parameters. The line says which.
    """
    layer = make()
    reason = _refusal(layer, make, size)
    if reason:
        raise UserError(f"policy.message_layer = {name!r} cannot be the message layer: it {reason}")


def _refusal(layer: nn.Module, make: Callable[[], nn.Module], size: int) -> str | None:
    for check in (_inputs, _parts):
        if reason := check(layer):
            return reason
    other = make()
    pairs = zip(layer.state_dict().values(), other.state_dict().values(), strict=True)
    if any(not _equal(a, b) for a, b in pairs):
        return "starts from weights that no seed decides"
    return _behaviour(layer, size)


def _inputs(layer: nn.Module) -> str | None:
    parameters = list(inspect.signature(layer.forward).parameters.values())
    names = [p.name for p in parameters]
    if names[:2] != ["x", "edge_index"]:
        return f"takes ({', '.join(names)}), not (x, edge_index)"
    more = [
        p.name for p in parameters[2:] if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    return f"also needs {', '.join(more)}, which a body's graph does not have" if more else None


def _parts(layer: nn.Module) -> str | None:
    for module in layer.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) or getattr(module, "track_running_stats", False):
            return f"keeps statistics of batches ({type(module).__name__})"
        rate = module.p if isinstance(module, nn.modules.dropout._DropoutNd) else getattr(module, "dropout", 0.0)
        if isinstance(rate, (int, float)) and rate > 0.0:
            return f"drops out (dropout = {rate}): give dropout: 0.0"
    if any(is_lazy(tensor) for tensor in (*layer.parameters(), *layer.buffers())):
        return "has parameters whose size is not known yet: give its widths"
    places = [tensor.data_ptr() for tensor in layer.state_dict().values() if torch.is_tensor(tensor) and tensor.numel()]
    if len(set(places)) < len(places):
        return "holds one parameter under two names, which a checkpoint cannot keep"
    return None


def _behaviour(layer: nn.Module, size: int) -> str | None:
    """Run copies of the layer, as in training, on one graph, on it again, and beside another graph."""
    generator = torch.Generator().manual_seed(0)
    x, other = (torch.randn(_NODES, size, generator=generator) for _ in range(2))
    used = copy.deepcopy(layer).train()
    before = {name: tensor.clone() for name, tensor in used.state_dict().items() if torch.is_tensor(tensor)}
    # Draws are of the global generators: put back whatever they did.
    kept = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            generators = _generators()
            alone = used(x, _EDGES)
            drew = _generators() != generators
            if not torch.is_tensor(alone):
                return f"returns a {type(alone).__name__}, not the states of the nodes"
            again, second = used(x, _EDGES), used(other, _EDGES)
            both = used(torch.cat([x, other]), torch.cat([_EDGES, _EDGES + _NODES], 1))
    except Exception as error:  # whatever the forward pass raises
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        return f"fails on states (V, {size}) and edge_index (2, E): {reason}"
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
    if alone.shape != x.shape:
        return f"returns {tuple(alone.shape[1:])} features per node, not ({size},): give out_channels that fit"
    if drew or not torch.equal(alone, again):
        return "draws random numbers, or remembers earlier calls, in its forward pass"
    if any(not _equal(tensor, before[name]) for name, tensor in used.state_dict().items() if name in before):
        return "changes its own state in its forward pass"
    wanted = torch.cat([alone, second])
    if both.shape != wanted.shape or not torch.allclose(both, wanted, rtol=1e-4, atol=1e-5):
        return "gives a graph another result when a second graph is in the batch"
    return None


def _equal(a: object, b: object) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b


def _generators() -> tuple[object, ...]:
    _, keys, position, *_ = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), bytes(np.asarray(keys)), position
