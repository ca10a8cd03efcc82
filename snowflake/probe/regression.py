"""Objective ``bc``: regression with a network's own blocks and its optimiser, without a simulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snowflake.networks.transformer.network import TransformerNetwork
from snowflake.networks.transformer.statistics import ActivationStatistics
from snowflake.probe.cells import MEASUREMENTS
from snowflake.probe.data import RegressionSet
from snowflake.probe.health import health_name
from snowflake.probe.network import TokenRegression
from snowflake.probe.row import ProbeRow, thinned
from snowflake.probe.rules import SMOOTHING, judge_regression, running_mean

WARMUP = 0.05
"""Share of the updates over which the learning rate rises linearly; then it is constant."""

BETAS = (0.9, 0.95)
"""Adam's."""

MAX_GRAD_NORM = 1.0
"""Bound on the norm of the gradient."""


@dataclass(frozen=True)
class RegressionRun:
    """What a run left behind; arrays are as long as the updates that were made.

    Attributes:
        loss: (updates,) mean squared error of each minibatch.
        grad_norm: (updates,) norm of the gradient before clipping.
        weight_norm: (updates,) norm of all parameters after the update.
        initial_error: Error on the test before training.
        final_error: Error on the test at the end; NaN where training was not finite.
        health: Measurements by name, see `snowflake.probe.health`, one number each time; ``update`` says when.
    """

    loss: np.ndarray
    grad_norm: np.ndarray
    weight_norm: np.ndarray
    initial_error: float
    final_error: float
    health: dict[str, list[float]] = field(default_factory=dict)


def warmup(update: int, updates: int) -> float:
    """Factor of the learning rate in update number ``update``, counted from 1."""
    return min(1.0, update / max(1, round(WARMUP * updates)))


def train_regression(
    model: nn.Module, data: RegressionSet, *, rate: float, updates: int, batch_size: int, seed: int
) -> RegressionRun:
    """Train with Adam until the end, or until a loss, a gradient or a parameter is not finite.

    Args:
        model: Maps (B, tokens, features) to (B, tokens, 2); trained in place.
        data: What to fit.
        rate: Learning rate after the warm-up.
        updates: Number of updates.
        batch_size: Samples per update.
        seed: Of the order of the samples.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=rate, betas=BETAS, fused=True)
    draw = torch.Generator().manual_seed(seed)
    health: dict[str, list[float]] = {}
    initial = _error(model, data)
    series: list[list[float]] = []
    for update in range(1, updates + 1):
        index = torch.randint(len(data.inputs), (batch_size,), generator=draw)
        optimizer.param_groups[0]["lr"] = rate * warmup(update, updates)
        optimizer.zero_grad()
        loss = F.mse_loss(model(data.inputs[index]), data.targets[index])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
        optimizer.step()
        weights = nn.utils.get_total_norm([p.detach() for p in parameters])
        series.append([float(loss.detach()), float(norm), float(weights)])
        if not np.isfinite(series[-1]).all():
            break
        if update % max(1, updates // MEASUREMENTS) == 0:
            _measure(model, data.test_inputs[:batch_size], update, health)
    loss, grad_norm, weight_norm = np.array(series).T
    final = _error(model, data) if np.isfinite(series[-1]).all() else float("nan")
    return RegressionRun(loss, grad_norm, weight_norm, initial, final, health)


@torch.no_grad()
def _measure(model: nn.Module, inputs: Tensor, update: int, health: dict[str, list[float]]) -> None:
    """Add what the blocks put out for ``inputs``; nothing of a network that has none."""
    if not isinstance(model, TokenRegression):
        return
    with ActivationStatistics(cast(TransformerNetwork, model)) as statistics:  # it reads the blocks alone
        model(inputs)
    named = {name: value for tag, value in statistics.scalars().items() if (name := health_name(tag))}
    for name, value in ({"update": float(update)} | named).items():
        health.setdefault(name, []).append(value)


def row_of(run: RegressionRun, data: RegressionSet, *, variant: str, rate: float, seed: int) -> ProbeRow:
    """Judge a run, and return its row."""
    verdict = judge_regression(run.loss, run.grad_norm, run.weight_norm, run.final_error, data.target_variance)
    return ProbeRow.of(
        verdict,
        variant=variant,
        rate=rate,
        seed=seed,
        score=run.final_error,
        initial=run.initial_error,
        trivial=data.target_variance,
        curve=thinned(running_mean(run.loss, SMOOTHING * len(run.loss))),
        health=run.health,
    )


@torch.no_grad()
def _error(model: nn.Module, data: RegressionSet) -> float:
    outputs: Tensor = model(data.test_inputs)
    return float(F.mse_loss(outputs, data.test_targets))
