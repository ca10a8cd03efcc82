"""The bodies. A body is a `Morphology`; a family of bodies is one module of this package that registers itself."""

from agents.errors import UserError
from agents.morphology import Morphology, model_hash
from agents.registry import Family, families, from_source, load, names, register_family

__all__ = [
    "Family",
    "Morphology",
    "UserError",
    "families",
    "from_source",
    "load",
    "model_hash",
    "names",
    "register_family",
]
