"""Which networks there are, read off their sources: importing them takes torch, and seconds."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

from snowflake.config.checks import check_choice
from snowflake.config.policy import PolicyConfig

_REGISTERED = re.compile(r"""^@register_(actor|critic)\(["']([^"']+)["']\)""", re.MULTILINE)


@cache
def network_names(kind: str) -> tuple[str, ...]:
    """Return the names under which the modules of ``snowflake.networks`` register an ``"actor"`` or ``"critic"``."""
    folder = Path(__file__).resolve().parent.parent / "networks"
    found = (pair for file in folder.glob("*.py") for pair in _REGISTERED.findall(file.read_text(encoding="utf-8")))
    return tuple(sorted(name for of, name in found if of == kind))


def check_networks(policy: PolicyConfig) -> None:
    """Require that actor and critic exist; left to the registry where that is loaded, as it may know more.

    Raises:
        UserError: One does not; the message names the nearest.
    """
    if "snowflake.networks.registry" in sys.modules:
        return
    check_choice("policy", "network", policy.network, network_names("actor"))
    check_choice("policy", "critic", policy.critic, ("auto", *network_names("critic")))
