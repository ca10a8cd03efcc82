"""Size of activations and state of attention during a run: what is reported of a run and decides nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

_TAG = re.compile(r"(?:act|attn)/(?:actor/)?(L\d+/(?:(?:qkv|proj|fc1|fc2)/y_rms|logit_absmax|cap_frac|entropy))")


def health_name(tag: str) -> str | None:
    """Name under which a measurement is kept, ``L0/fc2/y_rms`` or ``L0/entropy``; None for those that are not.

    Args:
        tag: As `snowflake.networks.transformer.statistics` names it, or as it is logged of an actor.
    """
    found = _TAG.fullmatch(tag)
    return found[1] if found else None


def layer_kind(name: str) -> str | None:
    """Kind of the layer whose outputs were measured under a name: qkv, proj, fc1 or fc2; None for other names."""
    parts = name.split("/")
    return parts[1] if parts[-1] == "y_rms" else None


def peaks(health: Mapping[str, list[float]]) -> dict[str, float]:
    """Largest value over run and blocks of each kind of measurement, ``y_rms/fc2``; of the entropy the smallest."""
    found: dict[str, float] = {}
    for name, values in health.items():
        known = [value for value in values if value == value]
        if name == "update" or not known:
            continue
        kind = layer_kind(name)
        key = f"y_rms/{kind}" if kind else name.rpartition("/")[2]
        best = min if key == "entropy" else max
        found[key] = best(found.get(key, known[0]), *known)
    return found
