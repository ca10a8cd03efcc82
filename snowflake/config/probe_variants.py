"""The ways to write attention that `snowflake probe stability` compares, by name."""

from __future__ import annotations

from typing import Any

from agents.errors import UserError, nearest
from snowflake.config.attention_presets import VARIANTS

BASELINE = "none"
"""What every other variant is compared with."""

FACTORS: dict[str, dict[str, Any]] = {
    "qk_bare": VARIANTS["qk"] | {"pre_norm": "off"},
    "qkv_pre": VARIANTS["qkv"] | {"pre_norm": "on"},
    "fc": VARIANTS["none"] | {"out_norm": "proj+fc2"},
}
"""What the paper does not tell apart: with `qk` and `qkv` they are two by two (which norm, with or without the one
before the projection), and `fc` is `qk_fc` without the norm of queries and keys."""


PAPER: dict[str, tuple[float, float]] = {
    "none": (6e-3, 8e-3),
    "soft_temp": (8e-3, 20e-3),
    "soft_clip": (8e-3, 20e-3),
    "layerscale": (20e-3, 40e-3),
    "soft_cap": (40e-3, 60e-3),
    "qk": (40e-3, 60e-3),
    "qk_fc": (40e-3, 60e-3),
    "qkv": (60e-3, 80e-3),
    "qk_cap": (60e-3, 80e-3),
}
"""Rybakov et al. (2024), 830 million parameters, one seed: last rate that converged and first that diverged, by
variant. Accounts disagree on whether `qk_cap` diverged at 80e-3."""

NAMES = (*VARIANTS, *FACTORS)
"""Every variant, the paper's first."""


def settings(name: str) -> dict[str, Any]:
    """Settings of `policy.attention` of a variant; ``NAME:C`` is the variant with the logits bounded by C.

    Raises:
        UserError: No such variant.
    """
    base, colon, cap = name.partition(":")
    table = VARIANTS | FACTORS
    if base not in table:
        raise UserError(f"variants names {name!r}, which is none: {nearest(base, NAMES)}")
    return table[base] | ({"softcap": cap} if colon else {})
