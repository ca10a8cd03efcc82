"""What one step of attention to a cache costs: time, and what it moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from snowflake.networks.memory.sparq import SparqSettings, dense_attention, sparq_attention
from snowflake.networks.memory.traffic import dense_traffic, sparq_traffic

WARM_UP = 5


def measure_cost(
    rows: int, size: int, windows: Sequence[int], *, shares: tuple[int, int] = (4, 8), repeats: int = 50
) -> list[dict[str, Any]]:
    """Time attention of one query each of ``rows`` heads to caches of several lengths, in float32, on the CPU.

    Modes: ``dense`` (matrix products), ``sdpa`` (`torch.nn.functional.scaled_dot_product_attention`), ``sparq`` and
    ``sparq single`` (keys in both layouts, and by step alone), ``window`` (dense attention to the last steps only, as
    many as move no more elements than SparQ does).

    Args:
        rows: environments times histories times heads.
        size: features of a head, d.
        windows: lengths S of the cache.
        shares: SparQ takes r = d / the first components and k = S / the second positions.
        repeats: timed calls, after some to warm up, each with a new query.

    Returns:
        One dict a mode and length: ``window``, ``mode``, ``r``, ``k``, ``elements`` and ``sectors`` of 32 bytes moved
        by one query, ``bytes`` of the dense cache, ``median_us``, ``low_us`` and ``high_us`` (quartiles).
    """
    found = []
    for count in windows:
        r, k = max(1, size // shares[0]), max(1, count // shares[1])
        generator = torch.Generator().manual_seed(count)
        keys, values = (torch.randn(rows, count, size, generator=generator) for _ in range(2))
        valid, columns, mean = torch.ones(1, count, dtype=torch.bool), keys.mT.contiguous(), values.mean(1)
        settings = SparqSettings(r, k)
        sparse, single = (sparq_traffic(size, count, 4, r, k, both_layouts=both) for both in (True, False))
        short = max(1, min(count, (sparse[0] - 2 * size) // (2 * size)))

        def both(q: Tensor, data: Any = (keys, values, valid, mean, settings, columns)) -> Tensor:
            return sparq_attention(q, *data[:5], keys_by_component=data[5]).output

        def one(q: Tensor, data: Any = (keys, values, valid, mean, settings)) -> Tensor:
            return sparq_attention(q, *data).output

        def dense(q: Tensor, data: Any = (keys, values, valid[:, None])) -> Tensor:
            return dense_attention(q, *data)

        def sdpa(q: Tensor, data: Any = (keys, values)) -> Tensor:
            return F.scaled_dot_product_attention(q, *data)

        def window(q: Tensor, data: Any = (keys[:, -short:], values[:, -short:], valid[:, None, -short:])) -> Tensor:
            return dense_attention(q, *data)

        modes: list[tuple[str, Callable[[Tensor], Tensor], tuple[float, float]]] = [
            ("dense", dense, dense_traffic(size, count, 4)),
            ("sdpa", sdpa, dense_traffic(size, count, 4)),
            ("sparq", both, sparse),
            ("sparq single", one, single),
            ("window", window, dense_traffic(size, short, 4)),
        ]
        for name, call, (elements, sectors) in modes:
            row = {"window": count, "mode": name, "r": r, "k": short if name == "window" else k}
            row |= {"elements": elements, "sectors": sectors, "bytes": 2 * rows * count * size * 4}
            found.append(row | _time(call, (rows, 1, size), repeats))
    return found


@torch.no_grad()
def _time(call: Callable[[Tensor], Tensor], shape: tuple[int, ...], repeats: int) -> dict[str, float]:
    generator, seconds = torch.Generator().manual_seed(0), []
    for i in range(WARM_UP + repeats):
        query = torch.randn(shape, generator=generator)
        clock = time.perf_counter()
        call(query)
        if i >= WARM_UP:
            seconds.append(time.perf_counter() - clock)
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75]) * 1e6
    return {"median_us": float(median), "low_us": float(low), "high_us": float(high)}
