"""What the layers of a limb transformer put out: the quantities that Rybakov et al. (2024) watch in diverging runs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from snowflake.networks.transformer.attention import Attention, AttentionCore
from snowflake.networks.transformer.network import TransformerNetwork
from snowflake.networks.transformer.structure import Structure

_QKV = ("q", "k", "v")


class ActivationStatistics:
    """Gathers statistics of every forward pass within its context, by hooks that exist there only.

    Args:
        network: a limb transformer.
    """

    def __init__(self, network: TransformerNetwork) -> None:
        self._network = network
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._sums: dict[str, list[float]] = {}  # sum and count
        self._squares: dict[str, list[float]] = {}  # sum of squares and count
        self._largest: dict[str, float] = {}
        self._structure: Structure | None = None

    def __enter__(self) -> ActivationStatistics:
        for i, (block, rest) in enumerate(zip(self._network.attention, self._network.feedforward, strict=True)):
            attention = cast(Attention, block)
            for name in _QKV:
                self._watch(getattr(attention, name), partial(self._part, f"act/L{i}/qkv", name))
            for name, owner in (("proj", block), ("fc1", rest), ("fc2", rest)):
                self._watch(getattr(owner, name), partial(self._linear, f"act/L{i}/{name}"))
            self._hooks.append(attention.register_forward_pre_hook(self._note_structure))
            self._hooks.append(attention.core.register_forward_pre_hook(partial(self._attend, f"attn/L{i}")))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def scalars(self) -> dict[str, float]:
        """Return all statistics so far by tag.

        For block i and each of qkv, proj, fc1, fc2, ``act/Li/NAME/``: ``x_rms`` and ``y_rms`` of the layer's input and
        output, ``y_l2`` the norm of all its outputs together; for qkv also ``q_rms``, ``k_rms``, ``v_rms``. Then
        ``attn/Li/``: ``logit_absmax`` and ``logit_std`` of the logits before cap and bias, over visible keys;
        ``capped_absmax`` and ``cap_frac``, the share beyond the cap, where there is one; ``entropy`` of the weights
        divided by the logarithm of the number of visible keys, 1 for uniform, 0 for one key (left out where no node
        sees two); ``root_mass``, the weight on the root; ``dist_mean``, the mean distance attended to, in edges.
        """
        result = {}
        for key, (total, count) in self._squares.items():
            result[f"{key}_rms"] = math.sqrt(total / count)
            if key.endswith("/y"):
                result[f"{key}_l2"] = math.sqrt(total)
        for key, (total, count) in self._sums.items():
            if count:
                result[key] = total / count
        for prefix in {key.rpartition("/")[0] for key in self._largest}:
            mean, square = result.pop(f"{prefix}/_logit"), result.pop(f"{prefix}/_logit_square")
            result[f"{prefix}/logit_std"] = math.sqrt(max(square - mean * mean, 0.0))
        return dict(sorted((result | self._largest).items()))

    def _watch(self, layer: nn.Module, hook: Any) -> None:
        self._hooks.append(layer.register_forward_hook(hook))

    def _note_structure(self, _module: nn.Module, args: tuple[Any, ...]) -> None:
        self._structure = args[1]

    @torch.no_grad()
    def _linear(self, tag: str, _layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self._add_squares(f"{tag}/x", inputs[0])
        self._add_squares(f"{tag}/y", output)

    @torch.no_grad()
    def _part(self, tag: str, name: str, _layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Note queries, keys or values; the three count as one layer, whose input is that of the values."""
        if name == "v":
            self._add_squares(f"{tag}/x", inputs[0])
        self._add_squares(f"{tag}/y", output)
        self._add_squares(f"{tag}/{name}", output)

    @torch.no_grad()
    def _attend(self, tag: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        core, (q, k, _, bias, visible) = cast(AttentionCore, module), args
        raw = core.raw_logits(q, k)
        capped = core.capped(raw)
        weights = core.probabilities(capped, bias, visible)  # (N, h, V, V)
        seen = torch.ones_like(raw, dtype=torch.bool) if visible is None else visible.expand_as(raw)
        logits = raw[seen]
        self._raise_largest(f"{tag}/logit_absmax", logits)
        self._add(f"{tag}/_logit", logits)
        self._add(f"{tag}/_logit_square", logits.square())
        if core.cap:
            self._raise_largest(f"{tag}/capped_absmax", capped[seen])
            self._add(f"{tag}/cap_frac", (logits.abs() > core.cap).float())
        keys = seen.sum(dim=-1)  # (N, h, V)
        entropy = torch.special.entr(weights).sum(dim=-1)
        self._add(f"{tag}/entropy", (entropy / keys.log())[keys > 1])
        self._add(f"{tag}/root_mass", weights[..., 0])
        if self._structure is not None:
            self._add(f"{tag}/dist_mean", (weights * self._structure.hops).sum(dim=-1))

    def _add_squares(self, key: str, x: Tensor) -> None:
        self._accumulate(self._squares, key, x.float().square())

    def _add(self, key: str, x: Tensor) -> None:
        self._accumulate(self._sums, key, x)

    @staticmethod
    def _accumulate(table: dict[str, list[float]], key: str, x: Tensor) -> None:
        entry = table.setdefault(key, [0.0, 0])
        entry[0] += float(x.double().sum())
        entry[1] += x.numel()

    def _raise_largest(self, key: str, x: Tensor) -> None:
        self._largest[key] = max(self._largest.get(key, 0.0), float(x.abs().max()))
