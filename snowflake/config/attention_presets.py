"""Short names for groups of settings: published limb transformers, and the stability methods of Rybakov et al. (2024).

A name stands for its settings at the place where it is written: what is said beside it wins, and so does what comes
after it. Resolved configs hold the settings, not the name. What of a published system is left out: `docs/attention.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.errors import UserError, nearest

_PLAIN: dict[str, Any] = {
    "norm": "none",
    "pre_norm": "auto",
    "out_norm": "none",
    "softcap": "0",
    "softmax": "plain",
    "residual": "plain",
}

VARIANTS: dict[str, dict[str, Any]] = {
    name: _PLAIN | changes
    for name, changes in {
        "none": {},
        "soft_temp": {"softmax": "temp:0.5"},
        "soft_cap": {"softcap": "50"},
        "soft_clip": {"softmax": "clip:1.03,-0.03"},
        "layerscale": {"residual": "layerscale:0.1"},
        "qk": {"norm": "qk"},
        "qk_cap": {"norm": "qk", "softcap": "50"},
        "qkv": {"norm": "qkv"},
        "qk_fc": {"norm": "qk", "out_norm": "proj+fc2"},
    }.items()
}
"""Settings of `policy.attention` by the paper's name of a method; each sets all that any of them sets."""

_FREE: dict[str, Any] = {
    **_PLAIN,
    "activation": "relu",
    "norm_kind": "layernorm",
    "bias": "none",
    "mask": "none",
    "qk_source": "state",
    "position": "none",
    "decoder_skip": True,
}
_METAMORPH = _FREE | {"layers": 5, "heads": 2, "feedforward": 8}

PRESETS: dict[str, dict[str, Any]] = {
    "amorpheus": {"hidden_size": 128, "attention": _FREE | {"layers": 3, "heads": 2, "feedforward": 2}},
    "metamorph": {"hidden_size": 128, "attention": _METAMORPH | {"position": "index"}},
    "metamorph_star": {"hidden_size": 128, "attention": _METAMORPH},
    "modumorph": {"hidden_size": 128, "attention": _METAMORPH | {"qk_source": "context"}},
    "bot_hard": {"attention": _FREE | {"mask": "hard", "decoder_skip": False}},
    "bot_mix": {"attention": _FREE | {"mask": "mix", "decoder_skip": False}},
}
"""Settings of `policy` by the name of the system that they reproduce the architecture of."""


def variant(name: str) -> dict[str, Any]:
    """Return the settings of `policy.attention` that a stability method stands for.

    Raises:
        UserError: No such method.
    """
    return dict(_find("policy.attention.variant", name, VARIANTS))


def preset(name: str) -> dict[str, Any]:
    """Return the settings of `policy` that the name of a published system stands for, nested.

    Raises:
        UserError: No such system.
    """
    found = _find("policy.preset", name, PRESETS)
    return {**found, "attention": dict(found["attention"])}


def expand(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of `policy` with `preset` and `attention.variant` replaced by what they stand for.

    The variant wins over the preset, and keys that are written out win over both.

    Raises:
        UserError: No such name.
    """
    own = dict(policy)
    name = own.pop("preset", None)
    base = {} if name is None else preset(name)
    attention = own.get("attention")
    if isinstance(attention, Mapping):
        attention = {key: _text(value) if key == "softcap" else value for key, value in attention.items()}
        method = attention.pop("variant", None)
        own["attention"] = {**base.get("attention", {}), **({} if method is None else variant(method)), **attention}
    return base | own


def _text(value: Any) -> Any:
    """Return a number as text: a bound may be written 50 or auto."""
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _find(key: str, name: Any, table: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    if name not in table:
        raise UserError(f"{key} = {name!r} is not a choice: {nearest(str(name), tuple(table))}")
    return table[name]
