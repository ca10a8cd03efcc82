"""Attention over the nodes of a body, with the stability methods of Rybakov et al. (2024)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snowflake.config.attention import AttentionConfig
from snowflake.networks.activation import tanh
from snowflake.networks.base import linear
from snowflake.networks.init import Initializer
from snowflake.networks.transformer.norms import at_least_fp32, make_norm, make_scale
from snowflake.networks.transformer.structure import Structure


class AttentionCore(nn.Module):
    """Weights over keys, and their mean of the values: softmax(beta (cap(q k / sqrt(d)) + bias)), masked.

    The cap comes before bias and mask, cap(x) = c tanh(x / c) (Gemma Team 2024); a clipped softmax stretches the
    weights w to (zeta - gamma) w + gamma, cut to [0, 1] (Bondarenko et al. 2023). Cap, bias and softmax are computed in
    float32 at least.

    Args:
        config: of the attention.
        head_width: d.

    Shapes:
        q (N or 1, h, V, d), k likewise, v (N, h, V, d); bias and visible (bool, True for a key that takes part) to be
        broadcast with (N, h, V, V), or None -> (N, h, V, d)
    """

    def __init__(self, config: AttentionConfig, head_width: int) -> None:
        super().__init__()
        self.scale = 1.0 / math.sqrt(head_width)
        self.cap, self.temperature, self.clip = config.cap(head_width), config.temperature, config.clip
        self.eager = False
        """Compute step by step where PyTorch's own operation would serve too."""

    def raw_logits(self, q: Tensor, k: Tensor) -> Tensor:
        """Return q k / sqrt(d), (N or 1, h, V, V)."""
        return at_least_fp32(q @ k.transpose(-2, -1)) * self.scale

    def capped(self, logits: Tensor) -> Tensor:
        """Return the logits within (-c, c), or as they are without a cap."""
        return self.cap * tanh(logits / self.cap) if self.cap else logits

    def probabilities(self, logits: Tensor, bias: Tensor | None, visible: Tensor | None) -> Tensor:
        """Return the softmax over keys, (N or 1, h, V, V), of capped logits; a key that is not visible has 0."""
        if bias is not None:
            logits = logits + bias
        if self.temperature != 1.0:
            logits = logits * self.temperature
        if visible is not None:
            logits = logits.masked_fill(~visible, -torch.inf)
        return torch.softmax(logits, dim=-1)

    def stretched(self, weights: Tensor) -> Tensor:
        """Return the weights of a clipped softmax, or the weights as they are."""
        if self.clip is None:
            return weights
        zeta, gamma = self.clip
        return ((zeta - gamma) * weights + gamma).clamp(0.0, 1.0)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, visible: Tensor | None) -> Tensor:
        """Attend."""
        if self.fits_fused(q, v, bias):
            return F.scaled_dot_product_attention(q, k, v, visible, scale=self.scale * self.temperature)
        weights = self.stretched(self.probabilities(self.capped(self.raw_logits(q, k)), bias, visible))
        return weights.to(v.dtype) @ v

    def fits_fused(self, q: Tensor, v: Tensor, bias: Tensor | None) -> bool:
        """Return whether `torch.nn.functional.scaled_dot_product_attention` computes the same."""
        return not self.eager and not self.cap and self.clip is None and bias is None and len(q) == len(v)


class Attention(nn.Module):
    """Multi-head self-attention over the nodes of a body, with what it adds to: x + scale(norm(proj(attend(...)))).

    The linear layers are `q`, `k`, `v` and `proj`. Norms of queries, keys and values act on the features of a head,
    their gains shared by the heads. With queries and keys from the context, every observation has the same weights.

    Args:
        width: H.
        config: of the attention.
        masked: a node attends to itself and its neighbours only.
        init: fills the weights.

    Shapes:
        x (N, V, H) -> (N, V, H)
    """

    def __init__(self, width: int, config: AttentionConfig, masked: bool, init: Initializer) -> None:
        super().__init__()
        self.heads, self.masked, head_width = config.heads, masked, width // config.heads
        self.q, self.k, self.v, self.proj = (linear(width, width) for _ in range(4))
        for layer in (self.q, self.k, self.v, self.proj):
            init.orthogonal(layer, bias=0.0)
        kind = config.norm_kind
        self.norm = make_norm(kind, width, config.normalises_input)
        self.q_norm = make_norm(kind, head_width, config.norm != "none")
        self.k_norm = make_norm(kind, head_width, config.norm != "none")
        self.v_norm = make_norm(kind, head_width, config.norm == "qkv")
        self.out_norm = make_norm(kind, width, "proj" in config.out_norm)
        self.scale = make_scale(width, config.layer_scale)
        self.core = AttentionCore(config, head_width)
        self.hop_bias = nn.Parameter(torch.zeros(self.heads, config.max_hops + 1)) if config.bias == "hop" else None

    def forward(self, x: Tensor, structure: Structure) -> Tensor:
        """Return the new states."""
        y = self.norm(x)
        context = structure.context
        source = y if context is None else context if context.dim() == 3 else context[None]
        q, k = self.q_norm(self._heads(self.q(source))), self.k_norm(self._heads(self.k(source)))
        v = self.v_norm(self._heads(self.v(y)))
        attended = self.core(q, k, v, self.bias(structure), structure.keys(self.masked)).transpose(1, 2).flatten(2)
        return x + self.scale(self.out_norm(self.proj(attended)))  # type: ignore[no-any-return]

    def bias(self, structure: Structure) -> Tensor | None:
        """Return what is added to the logits, (h, V, V) or (N, h, V, V), or None."""
        if self.hop_bias is None:
            return None
        bias = self.hop_bias[:, structure.hops].transpose(0, -3)  # (h, V, V), or (K, h, V, V) of K bodies
        return bias if structure.body is None else bias.index_select(0, structure.body)

    def _heads(self, x: Tensor) -> Tensor:
        """Split features among the heads. (N, V, H) -> (N, h, V, d)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
