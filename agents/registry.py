"""The families of bodies. Every module of this package may register one; nothing else has to know of it."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco

import agents
from agents.errors import UserError, nearest

if TYPE_CHECKING:
    from agents.morphology import Morphology

_FAMILIES: dict[str, Family] = {}


def _no_class(model: mujoco.MjModel, **arguments: Any) -> None:
    return None


@dataclass(frozen=True)
class Family:
    """How to make the bodies of one family.

    Attributes:
        name: key in `Morphology.source["family"]`.
        ready_made: names worth listing; `parse` may accept more.
        grammar: the names that `parse` accepts, in one line for users.
        parse: turns a name into a morphology, `None` when the name is of another family; raises `UserError` when the
            name is of this family but cannot be built.
        morphology: makes the morphology from `Morphology.source["arguments"]`, given as keywords.
        spec: builds the `MjSpec` from the same arguments.
        node_class: see `Morphology.node_class`; gets the model and the arguments.
        relocate: for bodies made of files: returns the arguments with relative paths taken from a folder.
    """

    name: str
    ready_made: tuple[str, ...]
    parse: Callable[[str], Morphology | None]
    morphology: Callable[..., Morphology]
    spec: Callable[..., mujoco.MjSpec]
    node_class: Callable[..., tuple[str, ...] | None] = _no_class
    relocate: Callable[[dict[str, Any], str | os.PathLike[str]], dict[str, Any]] | None = None
    grammar: str = ""


def register_family(new: Family) -> None:
    """Make a family known to `load`, `names` and `from_source`.

    Args:
        new: the family. A module of the package `agents` calls this when it is imported and is found by itself.

    Raises:
        ValueError: another family has the name.
    """
    if new.name in _FAMILIES:
        raise ValueError(f"agents: the family {new.name!r} is registered already")
    _FAMILIES[new.name] = new


@functools.cache
def _discover() -> None:
    """Import every module of this package once, so that each registers its family."""
    for module in pkgutil.iter_modules(agents.__path__):
        importlib.import_module(f"agents.{module.name}")


def family(name: str) -> Family:
    """Return a family by its name.

    Raises:
        UserError: there is none of this name.
    """
    _discover()
    if name not in _FAMILIES:
        raise UserError(f"unknown family of bodies {name!r}: {nearest(name, tuple(_FAMILIES))}")
    return _FAMILIES[name]


def load(name: str | os.PathLike[str], root_body: str | None = None) -> Morphology:
    """Return the morphology of a name such as `"centipede-6"`, `"centipede-8-crippled-2-3"` or `"ant"`, or of a file.

    Args:
        name: the name (`names()` lists ready-made ones), or the path of an MJCF or URDF file; either with changes, as
            in `"ant+mass=1.5"` (see `agents.variation`).
        root_body: for a file with several robots, the top body of the one to control.

    Raises:
        UserError: no family knows the name, or its family cannot build it.
    """
    _discover()
    name = os.fspath(name)
    from agents.variation import split_name, vary  # here, since it registers its family with this module

    unvaried, changes = split_name(name)
    if "," in unvaried and not os.path.exists(os.path.expanduser(unvaried)):
        each = " ".join(part.strip() for part in name.split(","))
        raise UserError(f"there is no body {name!r}: put spaces between bodies, not commas: {each}")
    if changes:
        return vary(load(unvaried, root_body), changes, name)
    for candidate in _FAMILIES.values():
        morphology = candidate.parse(name)
        if morphology is not None:
            return morphology if root_body is None else _with_root_body(morphology, root_body)
    raise UserError(f"unknown body {name!r}: {nearest(name, names())}")


def _with_root_body(morphology: Morphology, root_body: str) -> Morphology:
    arguments = morphology.source["arguments"]
    if "root_body" not in arguments:
        raise UserError(f"body {morphology.name!r} is one robot: leave out the root body {root_body!r}")
    arguments = {key: value for key, value in arguments.items() if key != "name"}
    return from_source({**morphology.source, "arguments": {**arguments, "root_body": root_body}})


def families() -> tuple[Family, ...]:
    """Return all families, in the order of their names."""
    _discover()
    return tuple(_FAMILIES[key] for key in sorted(_FAMILIES))


def names() -> tuple[str, ...]:
    """Return the names of the ready-made bodies, family by family in the order of their names."""
    return tuple(name for family in families() for name in family.ready_made)


def from_source(source: dict[str, Any], folder: str | os.PathLike[str] | None = None) -> Morphology:
    """Rebuild a morphology from `Morphology.source`, as a run folder keeps it.

    Args:
        source: `{"family": str, "arguments": {...}}`.
        folder: where the relative paths start in a source that `agents.files.copy_files` returned.

    Raises:
        UserError: the source is not of this form, or names an unknown family.
    """
    if not isinstance(source, dict) or set(source) != {"family", "arguments"}:
        raise UserError(f"source of a body: expected the keys 'family' and 'arguments', got {source!r}")
    builder = family(source["family"])
    arguments = source["arguments"]
    try:
        if builder.relocate is not None and folder is not None:
            arguments = builder.relocate(arguments, folder)
        return builder.morphology(**arguments)
    except (TypeError, KeyError) as error:
        raise UserError(f"source of a body: wrong arguments for the family {builder.name!r} ({error})") from error
