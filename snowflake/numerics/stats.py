"""What quantisation did to the operands: totals kept on the device, read in one transfer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snowflake.numerics.formats import Format

SUMS = (
    "tensors", "numel", "nonzero", "saturated", "flushed", "subnormal", "relative", "error2", "square",
    "groups", "log2_scale", "nonfinite", "e4m3", "e5m2", "bf16",
)  # fmt: skip
"""Totals that add up; the last three count numbers per chosen format."""
MAXIMA = ("amax", "log2_scale_max", "log2_scale_negmin")
FIELDS = SUMS + MAXIMA
_NONFINITE = FIELDS.index("nonfinite")


@dataclass(frozen=True)
class OperandStatistics:
    """What was seen of one operand of one layer since the last reading.

    Attributes:
        tensors: how many tensors were looked at.
        amax: largest finite magnitude.
        log2_scale: mean over groups of log2 of the scale; its smallest and largest are beside it.
        sat_frac: share of numbers beyond the format's largest, after scaling.
        flush_frac: share of numbers that became zero without being zero.
        subnormal_frac: share of numbers below the smallest normal number, after scaling.
        mean_rel: mean of |q - x| / |x| over numbers other than zero.
        rms_rel: ||q - x|| / ||x||.
        rms: root mean square.
        nonfinite: groups (tensors, rows, blocks) that held infinity or NaN, of all tensors, looked at or not.
        formats: share of numbers in e4m3, e5m2 and bf16.
    """

    tensors: int
    amax: float
    log2_scale: float
    log2_scale_min: float
    log2_scale_max: float
    sat_frac: float
    flush_frac: float
    subnormal_frac: float
    mean_rel: float
    rms_rel: float
    rms: float
    nonfinite: int
    formats: dict[str, float]


class Statistics:
    """Totals of several operands.

    Args:
        keys: names of the operands, like `update.joint.gates/x`.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = tuple(keys)
        self._rows = {key: i for i, key in enumerate(self.keys)}
        self._totals = self._empty(torch.device("cpu"))

    def _empty(self, device: torch.device) -> Tensor:
        # Not an inference tensor, even if rollouts come first: training adds to it in place.
        with torch.inference_mode(False):
            totals = torch.zeros(len(self.keys), len(FIELDS), dtype=torch.float64, device=device)
            totals[:, len(SUMS) :] = -math.inf
        return totals

    def _row(self, key: str, device: torch.device) -> Tensor:
        if self._totals.device != device:
            self._totals = self._empty(device).copy_(self._totals)
        return self._totals[self._rows[key]]

    def count_nonfinite(self, key: str, groups: Tensor | int, device: torch.device) -> None:
        """Add a number of groups with infinity or NaN."""
        self._row(key, device)[_NONFINITE] += groups

    def add(self, key: str, x: Tensor, values: Tensor, scale: Tensor, formats: Sequence[tuple[Format, Tensor]]) -> None:
        """Add one tensor.

        Args:
            key: which operand.
            x: (R, C) before.
            values: (R, C) after, scale divided out again.
            scale: float32, broadcasts against them; 1 for BF16.
            formats: formats with the mask of what took them, which broadcasts against x.
        """
        row = self._row(key, x.device)
        finite = torch.isfinite(x)
        x, values = (torch.where(finite, t, 0.0).to(torch.float64) for t in (x, values))
        size, error = x.abs(), (values - x).abs()
        nonzero, scaled = size > 0, size * scale
        exponent = torch.log2(scale.to(torch.float64))
        zero = x.new_zeros(())
        shares, saturated, subnormal = {"e4m3": zero, "e5m2": zero, "bf16": zero}, zero, zero
        for fmt, chosen in formats:
            shares[fmt.name] = chosen.expand_as(x).sum()
            # A scale that is no power of two is itself rounded, and may lift the largest number by so much.
            saturated = saturated + (chosen & (scaled > fmt.max * (1 + 2.0**-23))).sum()
            subnormal = subnormal + (chosen & nonzero & (scaled < fmt.min_normal)).sum()
        sums = {
            "tensors": 1, "numel": x.numel(), "nonzero": nonzero.sum(), "saturated": saturated,
            "flushed": (nonzero & (values == 0)).sum(), "subnormal": subnormal,
            "relative": torch.where(nonzero, error / size.clamp(min=1e-300), 0.0).sum(),
            "error2": error.square().sum(), "square": size.square().sum(),
            "groups": exponent.numel(), "log2_scale": exponent.sum(), "nonfinite": 0, **shares,
        }  # fmt: skip
        row[: len(SUMS)] += _stack([sums[name] for name in SUMS], x)
        if x.numel():
            maxima = _stack([size.max(), exponent.max(), exponent.neg().max()], x)
            row[len(SUMS) :] = torch.maximum(row[len(SUMS) :], maxima)

    def read(self) -> dict[str, OperandStatistics]:
        """Return what was seen since the last reading, and start anew. One transfer from the device."""
        totals, self._totals = self._totals.cpu(), self._empty(self._totals.device)
        return {
            key: _summary(dict(zip(FIELDS, row, strict=True)))
            for key, row in zip(self.keys, totals.tolist(), strict=True)
            if row[0] or row[_NONFINITE]
        }


def _stack(numbers: Sequence[Tensor | float], like: Tensor) -> Tensor:
    """Return numbers of host and device as one float64 vector, without a copy from the host, which would wait."""
    kind = {"dtype": torch.float64, "device": like.device}
    return torch.stack([n.to(torch.float64) if isinstance(n, Tensor) else torch.full((), n, **kind) for n in numbers])


def _summary(total: dict[str, float]) -> OperandStatistics:
    numel, groups = max(total["numel"], 1.0), max(total["groups"], 1.0)
    seen = total["amax"] > -math.inf
    return OperandStatistics(
        tensors=int(total["tensors"]),
        amax=total["amax"] if seen else 0.0,
        log2_scale=total["log2_scale"] / groups,
        log2_scale_min=-total["log2_scale_negmin"] if seen else 0.0,
        log2_scale_max=total["log2_scale_max"] if seen else 0.0,
        sat_frac=total["saturated"] / numel,
        flush_frac=total["flushed"] / numel,
        subnormal_frac=total["subnormal"] / numel,
        mean_rel=total["relative"] / max(total["nonzero"], 1.0),
        rms_rel=math.sqrt(total["error2"] / total["square"]) if total["square"] else 0.0,
        rms=math.sqrt(total["square"] / numel),
        nonfinite=int(total["nonfinite"]),
        formats={name: total[name] / numel for name in ("e4m3", "e5m2", "bf16")},
    )
