"""SparQ attention (Ribar et al. 2024, arXiv:2312.04985): attend to a cache while reading only part of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from snowflake.networks.memory.traffic import Traffic


@dataclass(frozen=True)
class SparqSettings:
    """Constants of SparQ attention.

    Attributes:
        r: components of the query that the approximate scores read.
        k: positions that are attended to.
        reallocate: give what is left out to the mean value.
        softcap: bound c of the logits, c tanh(logit / c); 0 for none.
    """

    r: int
    k: int
    reallocate: bool = True
    softcap: float = 0.0


class SparqResult(NamedTuple):
    """What SparQ attention gives.

    Attributes:
        output: (..., G, d).
        alpha: share of the approximate attention on the chosen positions. (..., G)
        coverage: share of the query's L1 norm that its chosen components hold. (..., G)
        chosen: the positions. (..., k) int64
        used: which of them exist. (..., k) bool
    """

    output: Tensor
    alpha: Tensor
    coverage: Tensor
    chosen: Tensor
    used: Tensor


def capped(logits: Tensor, softcap: float) -> Tensor:
    """Return c tanh(logits / c), or the logits where c is 0."""
    return softcap * torch.tanh(logits / softcap) if softcap else logits


def dense_attention(query: Tensor, keys: Tensor, values: Tensor, valid: Tensor, softcap: float = 0.0) -> Tensor:
    """Scaled dot-product attention over a cache; what is not valid has weight 0.

    Args:
        query: (..., G, d), G queries for one head of keys.
        keys: (..., S, d).
        values: (..., S, d), finite.
        valid: (..., 1 or G, S) bool, at least one True a query.
        softcap: bound of the logits, before the mask; 0 for none.

    Returns:
        (..., G, d).
    """
    logits = capped(query @ keys.mT / math.sqrt(query.shape[-1]), softcap)
    return logits.masked_fill(~valid, -torch.inf).softmax(dim=-1) @ values


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Return the rows of an index (..., k) of x (..., S, d): (..., k, d)."""
    count, size = x.shape[-2:]
    if not x.is_contiguous() or x.shape[:-2] != index.shape[:-1]:
        return torch.take_along_dim(x, index[..., None], dim=-2)
    flat = index.reshape(-1, index.shape[-1])  # whole rows at once take a fraction of the time of single numbers
    flat = flat + count * torch.arange(len(flat), device=x.device)[:, None]
    return x.view(-1, size).index_select(0, flat.flatten()).view(*index.shape, size)


def sparq_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    valid: Tensor,
    mean_value: Tensor,
    settings: SparqSettings,
    *,
    forced: Tensor | None = None,
    keys_by_component: Tensor | None = None,
    traffic: Traffic | None = None,
) -> SparqResult:
    """Attend to the positions whose approximate scores are the largest.

    1. The r components where the sum of \\|q\\| over the group is largest give approximate scores
       s = softmax(q_r K_r^T / tau), tau = sqrt(d \\|q_r\\|_1 / \\|q\\|_1).
    2. The k positions of the largest s, summed over the group, are attended to exactly.
    3. The output is alpha y + (1 - alpha) v, alpha the sum of s over them, v the mean value.

    Args:
        query: (..., G, d), G query heads for one head of keys.
        keys: (..., S, d); what lies where nothing is valid has no effect, not even NaN.
        values: (..., S, d), likewise.
        valid: (..., S) bool, at least one True.
        mean_value: mean of the valid values. (..., d)
        settings: r, k and the rest; r above d and k above S count as d and S.
        forced: positions that are always chosen, (..., S) bool, at most k; none if not given.
        keys_by_component: the keys once more, (..., d, S); read in step 1 if given.
        traffic: counts what is read and written.
    """
    size, count = query.shape[-1], keys.shape[-2]
    r, k = min(settings.r, size), min(settings.k, count)
    components = query.abs().sum(dim=-2).topk(r, dim=-1).indices  # (..., r)
    short = query.gather(-1, components[..., None, :].expand(*query.shape[:-1], r))  # (..., G, r)
    if keys_by_component is not None:
        columns = _rows(keys_by_component, components)  # (..., r, S)
    else:
        columns = torch.take_along_dim(keys, components[..., None, :], dim=-1).mT
    columns = torch.where(valid[..., None, :], columns, 0.0)
    norm = query.abs().sum(dim=-1)
    coverage = torch.where(norm > 0, short.abs().sum(dim=-1) / norm.clamp_min(1e-30), 1.0)
    logits = capped(short @ columns / (size * coverage).sqrt()[..., None], settings.softcap)
    approximate = logits.masked_fill(~valid[..., None, :], -torch.inf).softmax(dim=-1)  # (..., G, S)
    score = approximate.detach().sum(dim=-2)
    if forced is not None:
        score = score.masked_fill(forced, 2.0 * query.shape[-2])  # above any sum of probabilities
    chosen = score.masked_fill(~valid, -1.0).topk(k, dim=-1).indices  # (..., k)
    used = valid.expand(score.shape).gather(-1, chosen)
    some_keys, some_values = (torch.where(used[..., None], _rows(all_, chosen), 0.0) for all_ in (keys, values))
    output = dense_attention(query, some_keys, some_values, used[..., None, :], settings.softcap)
    picked = approximate.gather(-1, chosen[..., None, :].expand(*approximate.shape[:-1], k))
    alpha = torch.where(used[..., None, :], picked, 0.0).sum(dim=-1)
    if settings.reallocate:
        output = alpha[..., None] * output + (1.0 - alpha)[..., None] * mean_value[..., None, :]
    if traffic is not None:
        traffic.sparq(keys, components, chosen, settings.reallocate, keys_by_component is not None)
    return SparqResult(output, alpha, coverage, chosen, used)
