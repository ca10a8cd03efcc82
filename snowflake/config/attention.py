"""Attention section of the policy: sizes, structure and stability methods of the limb transformer."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from agents.errors import UserError
from snowflake.config.checks import check_choice, check_range

_SECTION = "policy.attention"
_TEMPERATURE = re.compile(r"temp:([^,]+)")
_CLIP = re.compile(r"clip:([^,]+),([^,]+)")
_LAYER_SCALE = re.compile(r"layerscale:(.+)")


@dataclass(frozen=True)
class AttentionConfig:
    """Blocks of the limb transformer (policy.network or policy.critic transformer). The stability methods are those
    that Rybakov et al. (2024) compare; `variant` names them in a YAML, `--attn-variant` on the command line."""

    layers: Annotated[int, arg(name="attn-layers")] = 3
    """Blocks, each attention and feed-forward."""
    heads: Annotated[int, arg(name="attn-heads")] = 2
    """Attention heads; they share hidden_size evenly."""
    feedforward: Annotated[int, arg(name="attn-feedforward")] = 4
    """Width of the feed-forward layers, in hidden_size."""
    activation: Annotated[str, arg(name="attn-activation")] = "gelu"
    """Activation between the feed-forward layers: gelu or relu."""
    norm: Annotated[str, arg(name="attn-norm")] = "qk"
    """What is normalised per head after the projection: none, qk or qkv."""
    pre_norm: Annotated[str, arg(name="attn-pre-norm")] = "auto"
    """Norm before queries, keys and values: on, off, or auto: off if norm is qkv (the feed-forward's stays)."""
    out_norm: Annotated[str, arg(name="attn-out-norm")] = "none"
    """Norm before the residual sum: none, proj (attention), fc2 (feed-forward) or proj+fc2."""
    norm_kind: Annotated[str, arg(name="attn-norm-kind")] = "layernorm"
    """Every norm of the blocks: layernorm or rmsnorm."""
    softcap: Annotated[str, arg(name="attn-softcap")] = "0"
    """Bound c of the logits, c tanh(logit / c): 0 (none), a number (50 in the paper), or auto: 2 sqrt(head width)."""
    softmax: Annotated[str, arg(name="attn-softmax")] = "plain"
    """plain; temp:B multiplies the logits by B; clip:Z,G takes (Z - G) p + G, cut to [0, 1], for a weight p."""
    residual: Annotated[str, arg(name="attn-residual")] = "plain"
    """plain, or layerscale:E: a learned factor per feature on what is added, E at the start."""
    bias: Annotated[str, arg(name="attn-bias")] = "hop"
    """Learned addition to the logits, per head: none, or hop: one number for each distance along the body's graph."""
    max_hops: Annotated[int, arg(name="attn-max-hops")] = 8
    """Distance from which on all share one number of the hop bias."""
    mask: Annotated[str, arg(name="attn-mask")] = "none"
    """What a node attends to: none (all), hard (itself and its neighbours), mix (hard in every other block)."""
    qk_source: Annotated[str, arg(name="attn-qk-source")] = "state"
    """Queries and keys from the state, or from the context: the node's class and static features only."""
    position: Annotated[str, arg(name="attn-position")] = "none"
    """Place of a node in joint order: none (the order does not matter) or index (a learned vector each)."""
    max_positions: Annotated[int, arg(name="attn-max-positions")] = 64
    """Rows of the table of positions (position index)."""
    decoder_skip: Annotated[bool, arg(name="attn-decoder-skip")] = True
    """The decoder also reads the first state of the node, beside the last."""

    def __post_init__(self) -> None:
        check_range(_SECTION, "layers", self.layers, 1, 64)
        check_range(_SECTION, "heads", self.heads, 1, 64)
        check_range(_SECTION, "feedforward", self.feedforward, 1, 32)
        check_choice(_SECTION, "activation", self.activation, ("gelu", "relu"))
        check_choice(_SECTION, "norm", self.norm, ("none", "qk", "qkv"))
        check_choice(_SECTION, "pre_norm", self.pre_norm, ("auto", "on", "off"))
        check_choice(_SECTION, "out_norm", self.out_norm, ("none", "proj", "fc2", "proj+fc2"))
        check_choice(_SECTION, "norm_kind", self.norm_kind, ("layernorm", "rmsnorm"))
        check_choice(_SECTION, "bias", self.bias, ("none", "hop"))
        check_range(_SECTION, "max_hops", self.max_hops, 1, 1024)
        check_choice(_SECTION, "mask", self.mask, ("none", "hard", "mix"))
        check_choice(_SECTION, "qk_source", self.qk_source, ("state", "context"))
        check_choice(_SECTION, "position", self.position, ("none", "index"))
        check_range(_SECTION, "max_positions", self.max_positions, 1, 65_536)
        # Reading them checks them.
        _ = self.cap(1), self.temperature, self.clip, self.layer_scale

    def check_width(self, hidden_size: int) -> None:
        """Require that the heads share the width evenly.

        Raises:
            UserError: They do not.
        """
        if hidden_size % self.heads:
            raise UserError(
                f"{_SECTION}.heads = {self.heads} does not divide policy.hidden_size = {hidden_size}: change one"
            )

    @property
    def normalises_input(self) -> bool:
        """Whether a norm stands before queries, keys and values."""
        return self.norm != "qkv" if self.pre_norm == "auto" else self.pre_norm == "on"

    def cap(self, head_width: int) -> float:
        """Return the bound of the logits for heads of ``head_width`` features; 0 for none."""
        if self.softcap == "auto":
            return 2.0 * math.sqrt(head_width)
        return _number("softcap", self.softcap, self.softcap, 0.0, 1e6, "0, a number or auto")

    @property
    def temperature(self) -> float:
        """Factor of the logits; 1 for none."""
        if found := _TEMPERATURE.fullmatch(self.softmax):
            return _number(
                "softmax", self.softmax, found[1], 0.0, 1e6, "temp:NUMBER, for instance temp:0.5", open_=True
            )
        return 1.0

    @property
    def clip(self) -> tuple[float, float] | None:
        """Stretch (zeta, gamma) of the attention weights, or None."""
        found = _CLIP.fullmatch(self.softmax)
        if found is None:
            if self.softmax != "plain" and not _TEMPERATURE.fullmatch(self.softmax):
                raise UserError(
                    f"{_SECTION}.softmax = {self.softmax!r} is not a choice: plain, temp:NUMBER or clip:NUMBER,NUMBER"
                )
            return None
        form = "clip:ZETA,GAMMA with ZETA >= 1 and GAMMA <= 0, for instance clip:1.03,-0.03"
        zeta = _number("softmax", self.softmax, found[1], 1.0, 100.0, form)
        return zeta, _number("softmax", self.softmax, found[2], -100.0, 0.0, form)

    @property
    def layer_scale(self) -> float | None:
        """Initial factor of what a block adds, or None for a plain sum."""
        if self.residual == "plain":
            return None
        form = "plain, or layerscale:NUMBER, for instance layerscale:0.1"
        found = _LAYER_SCALE.fullmatch(self.residual)
        return _number("residual", self.residual, found[1] if found else "", 0.0, 100.0, form, open_=True)


def _number(key: str, value: str, text: str, low: float, high: float, form: str, *, open_: bool = False) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (low <= number <= high) or (open_ and number == low):
        raise UserError(f"{_SECTION}.{key} = {value!r} is not a choice: write {form}")
    return number
