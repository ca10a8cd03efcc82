"""Networks by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import snowflake.networks
from agents.errors import UserError
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks import (
    FlatCritic,
    GraphCritic,
    MLPActor,
    NerveNetActor,
    build_actor,
    build_critic,
    register_actor,
)


def named(**keys: str) -> PolicyConfig:
    """Return a config with names that its own check may not know."""
    config = PolicyConfig()
    for key, value in keys.items():
        object.__setattr__(config, key, value)
    return config


@pytest.mark.parametrize(
    ("build", "config", "cls"),
    [
        (build_actor, {"network": "nervenet"}, NerveNetActor),
        (build_actor, {"network": "mlp"}, MLPActor),
        (build_critic, {"critic": "flat"}, FlatCritic),
        (build_critic, {"critic": "graph"}, GraphCritic),
    ],
)
def test_names(
    build: Callable[..., object], config: dict[str, str], cls: type, graph_of: Callable[[str], MorphologyGraph]
) -> None:
    network = build([graph_of("centipede-4")], PolicyConfig(**config), torch.Generator().manual_seed(0))
    assert type(network) is cls


def test_unknown_name_gets_the_nearest(graph_of: Callable[[str], MorphologyGraph]) -> None:
    for name in ("nervnet", "base"):  # `base` is a module of the package, but no network
        with pytest.raises(UserError, match=f"policy.network = '{name}' is not a network: .*'?nervenet'?"):
            build_actor([graph_of("centipede-4")], named(network=name), torch.Generator())


def test_a_new_network_is_one_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph_of: Callable[[str], MorphologyGraph]
) -> None:
    (tmp_path / "twin.py").write_text(
        "from snowflake.networks import MLPActor, register_actor\n"
        "@register_actor('twin')\n"
        "class TwinActor(MLPActor):\n"
        "    pass\n"
    )
    monkeypatch.setattr(snowflake.networks, "__path__", [*snowflake.networks.__path__, str(tmp_path)])
    monkeypatch.setattr("snowflake.networks.registry._ACTORS", dict(snowflake.networks.registry._ACTORS))
    actor = build_actor([graph_of("centipede-4")], named(network="twin"), torch.Generator().manual_seed(0))
    assert type(actor).__name__ == "TwinActor"
    sys.modules.pop("snowflake.networks.twin")


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'mlp' is registered as MLPActor already"):

        @register_actor("mlp")
        class Other(MLPActor):
            pass
