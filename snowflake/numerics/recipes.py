"""The recipes by name. A new one is one `register_recipe` call."""

from __future__ import annotations

from dataclasses import replace

from agents.errors import UserError
from snowflake.numerics.config import DemotionConfig, MixtureConfig, OperandConfig, Recipe
from snowflake.numerics.scales import LIMIT

_RECIPES: dict[str, Recipe] = {}


def register_recipe(recipe: Recipe) -> Recipe:
    """Make a recipe available by its name, and return it."""
    if _RECIPES.setdefault(recipe.name, recipe) != recipe:
        raise ValueError(f"recipe {recipe.name!r} is registered already")
    return recipe


def find_recipe(name: str) -> Recipe:
    """Return the recipe of a name.

    Raises:
        UserError: no such recipe.
    """
    if name not in _RECIPES:
        raise UserError(f"precision = {name!r} is not a recipe: choose from {', '.join(recipe_names())}")
    return _RECIPES[name]


def recipe_names() -> tuple[str, ...]:
    """Return the names of all recipes, in the order of registration."""
    return tuple(_RECIPES)


_BF16 = OperandConfig(formats=("bf16",))
_AMAX = OperandConfig(limit=LIMIT)
# Inputs of the networks' hidden layers are means of tanh or states in (-1, 1): 2^8 fits up to 1.75 exactly, and leaves
# E5M2 gradients down to 2^-24 above its smallest number. Rows of inputs are looked at one by one for infinity and NaN.
_CONST = OperandConfig(scale="const", exponent=8)
# GAM of a tensor is amax scaling with a float32 mantissa; a row of inputs is a group by itself, so that what a policy
# does with an observation does not depend on the others in the batch.
_MOR = OperandConfig(formats=("e4m3", "e5m2", "bf16"), scale="gam")

register_recipe(Recipe("fp32", converts=False, summary="32 bits, the network as it is"))
register_recipe(Recipe("bf16", x=_BF16, w=_BF16, g=_BF16, summary="operands in BF16, sums in FP32"))
register_recipe(
    Recipe(
        "fp8-amax",
        x=replace(_AMAX, granularity="row"),
        w=_AMAX,
        g=replace(_AMAX, formats=("e5m2",)),
        summary="FP8, scales from the largest magnitude at hand (Perez et al. 2023)",
    )
)
register_recipe(
    Recipe(
        "fp8-cscale",
        x=replace(_CONST, granularity="row"),
        w=_CONST,
        g=replace(_CONST, formats=("e5m2",)),
        summary="FP8, one constant scale (Perez et al. 2023)",
    )
)
register_recipe(
    Recipe(
        "fp8-unit",
        x=replace(_CONST, exponent=4, granularity="row"),
        w=replace(_CONST, exponent=4),
        g=replace(_CONST, formats=("e5m2",), exponent=8),
        demotion=DemotionConfig(),
        parametrization="unit",
        summary="FP8, constant scales on a unit-scaled network (Blake et al. 2023, 2024)",
    )
)
register_recipe(
    Recipe(
        "fp8-mor",
        x=replace(_MOR, granularity="row", group="row"),
        w=_MOR,
        g=_MOR,
        summary="E4M3, E5M2 or BF16 for each operand by relative error (Su et al. 2025)",
    )
)
register_recipe(
    Recipe(
        "fp8-mor-blocks",
        x=replace(_MOR, granularity="block", block=(1, 128), group="row"),
        w=replace(_MOR, granularity="block"),
        g=replace(_MOR, granularity="block", block=(1, 128)),
        mixture=MixtureConfig(choice="immediate"),
        summary="the same for each block of 1 x 128 numbers, of weights 128 x 128; emulated everywhere",
    )
)
