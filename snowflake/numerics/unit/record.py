"""Measures the RMS of what flows through a network, forward and backward, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass
class StageRMS:
    """One output of one stage in one pass.

    Attributes:
        stage: qualified name of the module; `aggregate` for what the update function receives.
        call: how often the stage had run before in this pass, the round of messages.
        forward: RMS of the output.
        gradient: RMS of its gradient; nan if none arrived.
    """

    stage: str
    call: int
    forward: float
    gradient: float = float("nan")


def rms(x: Tensor) -> float:
    """Return the root of the mean square, 0 of an empty tensor."""
    return float(x.detach().double().square().mean().sqrt()) if x.numel() else 0.0


@contextmanager
def record(network: nn.Module) -> Iterator[list[StageRMS]]:
    """Record all linear layers and all named parts of a network while the block runs, in the order of running.

    Works on the standard and the unit parametrisation alike; backward must run inside the block.

    Raises:
        ValueError: a part ran without being called, as the hand-written rounds of messages do: nothing is seen of them.
            `kernels: reference` calls it.
    """
    rows: list[StageRMS] = []
    calls: dict[str, int] = {}

    def note(stage: str, x: Tensor) -> None:
        row = StageRMS(stage, calls.get(stage, 0), rms(x))
        calls[stage] = row.call + 1
        rows.append(row)
        if x.requires_grad:
            x.register_hook(lambda grad: setattr(row, "gradient", rms(grad)))

    def after(stage: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: note(stage, output)

    handles: list[Any] = []
    hooked: list[str] = []
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear) or name in ("encoder", "message", "update", "decoder", "hidden"):
            handles.append(module.register_forward_hook(after(name)))
            hooked.append(name)
        if name == "update":
            handles.append(module.register_forward_pre_hook(lambda _module, inputs: note("aggregate", inputs[0])))
    try:
        yield rows
    finally:
        for handle in handles:
            handle.remove()
    if silent := [name for name in hooked if rows and name not in calls]:
        raise ValueError(f"not called: {', '.join(silent)}; build the network with kernels: reference to see them")


def weight_gradients(network: nn.Module) -> dict[str, float]:
    """Return the RMS of the gradient of every parameter that has one, by qualified name."""
    return {name: rms(p.grad) for name, p in network.named_parameters() if p.grad is not None}
