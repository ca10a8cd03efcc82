"""A fixed regression set that needs attention: no simulator, the same numbers from one seed everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

TRAIN, TEST = 4096, 512
"""Samples to train on, and to measure the error on."""

TOKENS, FEATURES, OUTPUTS = 12, 12, 2
"""Tokens per sample, features and targets per token."""


@dataclass(frozen=True)
class RegressionSet:
    """Inputs and targets; both are float32.

    Attributes:
        inputs: (4096, tokens, features), standard normal.
        targets: (4096, tokens, 2).
        test_inputs: (512, tokens, features).
        test_targets: (512, tokens, 2).
    """

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor

    @property
    def target_variance(self) -> float:
        """Mean squared error on the test of the best constant: one number per target, the same for every token."""
        return float((self.test_targets - self.test_targets.mean((0, 1))).square().mean())


def regression_set(seed: int, tokens: int = TOKENS, features: int = FEATURES) -> RegressionSet:
    """Draw a teacher, and samples of it.

    Each token attends to all, by content: ``A = softmax(2 x W1 x^T / sqrt(features))``. The target is
    ``tanh(A x W2) + 0.5 sin(2 x[:2])``, with ``W1``, ``W2`` standard normal, ``W1`` divided by ``sqrt(features)`` so
    that the logits do not grow with the number of features.

    Args:
        seed: Of the teacher and the samples.
        tokens: Tokens per sample.
        features: Features per token, 2 or more.
    """
    draw = torch.Generator().manual_seed(seed)
    w1 = torch.randn(features, features, generator=draw) / math.sqrt(features)
    w2 = torch.randn(features, OUTPUTS, generator=draw)
    x = torch.randn(TRAIN + TEST, tokens, features, generator=draw)
    attention = torch.softmax(2.0 * (x @ w1) @ x.mT / math.sqrt(features), -1)
    y = torch.tanh(attention @ x @ w2) + 0.5 * torch.sin(2.0 * x[..., :OUTPUTS])
    return RegressionSet(x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:])
