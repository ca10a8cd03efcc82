"""Which networks there are, read off their sources: importing them takes torch, and seconds."""

from __future__ import annotations

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

from agents.errors import UserError, nearest
from snowflake.config.checks import check_choice
from snowflake.config.policy import PolicyConfig
from snowflake.config.ppo import PPOConfig

_DECORATORS = {"register_actor": "actor", "register_critic": "critic"}


@cache
def _networks() -> dict[tuple[str, str], tuple[str, ...]]:
    """Components by kind and name, of all networks that the modules of ``snowflake.networks`` register."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for file in (Path(__file__).resolve().parent.parent / "networks").rglob("*.py"):
        classes = [n for n in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(n, ast.ClassDef)]
        for node in classes:
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _DECORATORS:
                    name = ast.literal_eval(call.args[0])
                    found[_DECORATORS[call.func.id], name] = _components(node)
    return found


def _components(node: ast.ClassDef) -> tuple[str, ...]:
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id == "components":
            return tuple(ast.literal_eval(line.value)) if isinstance(line.value, ast.Tuple) else ()
    return ()


def network_names(kind: str) -> tuple[str, ...]:
    """Return the names under which the modules of ``snowflake.networks`` register an ``"actor"`` or ``"critic"``.

    Where the registry is loaded already, those of networks that others registered too.
    """
    return tuple(sorted({name for of, name in _networks() if of == kind} | set(_registered(kind))))


def component_names(kind: str, name: str) -> tuple[str, ...]:
    """Return the components of an ``"actor"`` or ``"critic"``; none where they cannot be told without loading it."""
    known = _registered(kind)
    return tuple(known[name].components) if name in known else _networks().get((kind, name), ())


def _registered(kind: str) -> dict[str, Any]:
    registry = sys.modules.get("snowflake.networks.registry")
    return {} if registry is None else {"actor": registry._ACTORS, "critic": registry._CRITICS}[kind]


@cache
def convolution_names() -> tuple[str, ...]:
    """Return the convolutions of ``torch_geometric.nn``; none where the package is missing."""
    package = importlib.util.find_spec("torch_geometric")
    if package is None or package.origin is None:
        return ()
    file = Path(package.origin).parent / "nn" / "conv" / "__init__.py"
    for node in ast.parse(file.read_text(encoding="utf-8")).body if file.is_file() else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and _is_all(node.targets[0]):
            return tuple(ast.literal_eval(node.value))
    return ()


def _is_all(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == "__all__"


def check_networks(policy: PolicyConfig, ppo: PPOConfig | None = None) -> None:
    """Require that actor, critic, message layer, and the components that are named, exist.

    Args:
        policy: The policy section.
        ppo: The PPO section, which names components too.

    Raises:
        UserError: One does not; the message names the nearest.
    """
    check_choice("policy", "network", policy.network, network_names("actor"))
    check_choice("policy", "critic", policy.critic, ("auto", *network_names("critic")))
    if policy.parametrization == "unit" and "transformer" in (policy.network, policy.critic):
        raise UserError("policy.parametrization = 'unit' has no form of the transformer: choose standard")
    convolutions = convolution_names()
    if convolutions and policy.message_layer not in ("mlp", *convolutions):
        raise UserError(
            f"policy.message_layer = {policy.message_layer!r} is not a convolution of torch_geometric.nn: "
            f"{nearest(policy.message_layer, ('mlp', *convolutions))}"
        )
    named = [("actor", policy.network, "policy.freeze", policy.freeze)]
    if policy.critic != "auto":
        named.append(("critic", policy.critic, "policy.freeze_critic", policy.freeze_critic))
    if ppo is not None:
        named.append(("actor", policy.network, "ppo.weight_decay_components", ppo.weight_decay_components))
        rates = tuple(ppo.component_learning_rates)
        named.append(("actor", policy.network, "ppo.component_learning_rates", rates))
    for kind, network, key, names in named:
        components = component_names(kind, network)
        for name in names if components else ():
            if name not in components:
                raise UserError(f"{key} names {name!r}, which {network} has not: {nearest(name, components)}")
