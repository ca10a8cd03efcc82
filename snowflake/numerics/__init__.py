"""Low precision: number formats, scales, recipes by name, and the swap that makes any module compute by one."""

from snowflake.numerics.config import DemotionConfig, GemmConfig, MixtureConfig, OperandConfig, Recipe, Rule
from snowflake.numerics.convert import Conversion, Reading, convert, is_converted
from snowflake.numerics.formats import BF16, E4M3, E5M2, FORMATS, Format, quantise
from snowflake.numerics.recipes import find_recipe, recipe_names, register_recipe

__all__ = [
    "BF16",
    "E4M3",
    "E5M2",
    "FORMATS",
    "Conversion",
    "DemotionConfig",
    "Format",
    "GemmConfig",
    "MixtureConfig",
    "OperandConfig",
    "Reading",
    "Recipe",
    "Rule",
    "convert",
    "find_recipe",
    "is_converted",
    "quantise",
    "recipe_names",
    "register_recipe",
]
