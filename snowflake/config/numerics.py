"""Numerics section of the training config, and the recipes of `precision`, read off their source: they take torch."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agents.errors import UserError
from snowflake.config.checks import check_choice, check_range

BACKENDS = ("auto", "emulate", "scaled_mm", "triton", "native")


@dataclass(frozen=True)
class NumericsConfig:
    """How the recipe that `precision` names is computed and logged; without effect under fp32."""

    backend: str = "auto"
    """Products: emulate, scaled_mm, triton, native (bf16 by the compiled kernels, where the CPU multiplies such), or
    auto: on CUDA scaled_mm, on the CPU native, where they work, else emulate."""
    statistics_every: int = 10
    """Updates between readings of every layer's statistics (tags numerics/NETWORK/LAYER/OPERAND/...); 0 = never."""

    def __post_init__(self) -> None:
        check_choice("numerics", "backend", self.backend, BACKENDS)
        check_range("numerics", "statistics_every", self.statistics_every, 0, 10**9)


@cache
def _shipped() -> dict[str, str]:
    """Return the parametrisation that each recipe of the package asks for, by name."""
    file = Path(__file__).resolve().parent.parent / "numerics" / "recipes.py"
    found = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Recipe":
            words = {word.arg: word.value for word in node.keywords}
            asked = words.get("parametrization")
            found[ast.literal_eval(node.args[0])] = "any" if asked is None else ast.literal_eval(asked)
    return found


def recipes() -> dict[str, str]:
    """Return the parametrisation (any or unit) that each recipe is for, by name; registered ones of users too."""
    module = sys.modules.get("snowflake.numerics.recipes")
    registered = {} if module is None else {name: recipe.parametrization for name, recipe in module._RECIPES.items()}
    return {**_shipped(), **registered}


def check_precision(precision: str, parametrization: str) -> None:
    """Require that there is such a recipe, and that it suits the networks.

    Args:
        precision: name of a recipe.
        parametrization: of the networks, standard or unit.

    Raises:
        UserError: it does not.
    """
    known = recipes()
    check_choice("", "precision", precision, known)
    if known[precision] == "unit" and parametrization != "unit":
        raise UserError(
            f"precision = {precision!r} is for unit-scaled networks, and policy.parametrization is "
            f"{parametrization!r}: train with --config unit, or choose another precision"
        )
