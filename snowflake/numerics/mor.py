"""Mixture of representations: which format an operand, or each of its blocks, takes by its relative error.

Su et al. (2025), arXiv 2512.22804, of which the abstract and introduction were at hand: thresholds, metric and
hysteresis are this package's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snowflake.numerics.config import MixtureConfig, OperandConfig
from snowflake.numerics.scales import expand_blocks


def relative_errors(x: Tensor, values: Tensor, granularity: str, block: tuple[int, int]) -> Tensor:
    """Return the mean of |q - x| / |x| over the nonzero numbers of every group, 0 where all are zero.

    Args:
        x: (R, C).
        values: (R, C), x quantised, with the scale divided out.
        granularity: tensor, row or block.
        block: rows and columns of a block.

    Returns:
        float32, of the shape that `scales.amax` has. NaN for a group that holds infinity or NaN.
    """
    nonzero = x != 0
    error = torch.where(nonzero, (values - x).abs() / torch.where(nonzero, x, 1.0).abs(), 0.0)
    if granularity == "tensor":
        return error.sum() / nonzero.sum().clamp(min=1)
    if granularity == "row":
        return error.sum(1, keepdim=True) / nonzero.sum(1, keepdim=True).clamp(min=1)
    return _block_sums(error, block) / _block_sums(nonzero.to(error.dtype), block).clamp(min=1)


def _block_sums(x: Tensor, block: tuple[int, int]) -> Tensor:
    rows, columns = -(-x.shape[0] // block[0]), -(-x.shape[1] // block[1])
    padded = torch.nn.functional.pad(x, (0, columns * block[1] - x.shape[1], 0, rows * block[0] - x.shape[0]))
    return padded.reshape(rows, block[0], columns, block[1]).sum((1, 3))


def select(errors: Sequence[Tensor], thresholds: Sequence[float]) -> Tensor:
    """Return which format each group takes: the first whose error is within its threshold, else the last.

    Args:
        errors: of every format but the last, one shape.
        thresholds: as many or more.

    Returns:
        int64, the shape of an error. A NaN error is within no threshold.
    """
    choice = torch.full_like(errors[0], len(errors), dtype=torch.int64)
    for i in reversed(range(len(errors))):
        choice = torch.where(errors[i] <= thresholds[i], i, choice)
    return choice


def over_matrix(choice: Tensor, config: OperandConfig, shape: tuple[int, int]) -> Tensor:
    """Return a value per group so that it broadcasts against the matrix."""
    return expand_blocks(choice, config.block, shape) if config.granularity == "block" else choice


class CachedChoice:
    """The format of one operand between updates, with hysteresis.

    Worse formats are taken at once, better ones after several good checks, so that what a policy computes does not
    change back and forth.

    Args:
        config: the operand's; its thresholds.
        mixture: when to go back.

    Attributes:
        index: of the format in `config.formats`.
        changes: how often it has changed.
    """

    def __init__(self, config: OperandConfig, mixture: MixtureConfig) -> None:
        self.config = config
        self.mixture = mixture
        self.index = 0
        self.changes = 0
        self._good = 0

    def check(self, errors: Sequence[float]) -> bool:
        """Take the errors of every format but the last into account; return whether the format has changed."""
        limits = self.config.thresholds
        wanted = next((i for i, error in enumerate(errors) if error <= limits[i]), len(errors))
        if wanted > self.index:
            self.index, self._good = wanted, 0
            self.changes += 1
            return True
        better = next((i for i in range(self.index) if errors[i] <= self.mixture.promote_below * limits[i]), None)
        self._good = self._good + 1 if better is not None else 0
        if better is None or self._good < self.mixture.promote_after:
            return False
        self.index, self._good = better, 0
        self.changes += 1
        return True

    def state(self) -> Tensor:
        """Return index, good checks and changes as int64 (3,)."""
        return torch.tensor([self.index, self._good, self.changes])

    def load(self, state: Tensor) -> None:
        """Take over what `state` returned."""
        self.index, self._good, self.changes = (int(v) for v in state)


def sample_rows(x: Tensor, rows: int) -> Tensor:
    """Return at most so many rows, evenly spread."""
    if len(x) <= rows:
        return x
    return x[:: -(-len(x) // rows)]
