"""Variations of any body: `centipede-6+mass=1.5`, `ant+friction=0.5+gear=0.8`, `robot.xml+vary=0.2+seed=7`.

A name of a body (a ready-made one, a generator's, a file) and any of `KEYS`, each once, in any order. The body keeps
its task and its node classes.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from typing import Any

import mujoco

from agents import changes as model_changes
from agents.changes import BODY, Changes, actuator_name, actuators_of
from agents.errors import UserError, nearest
from agents.morphology import Morphology
from agents.registry import Family, family, from_source, register_family
from agents.tree import element_id, element_name, find_tree

FAMILY = "variation"
KEYS = {
    "limb": "lengths of all limbs x FACTOR (0.2 to 5), thickness kept; masses follow from the shapes",
    "mass": "mass and inertia of all bodies x FACTOR (0.05 to 20)",
    "gear": "what every actuator can push x FACTOR (0.01 to 100)",
    "friction": "friction of every contact x FACTOR (0.01 to 100)",
    "payload": "a ball of so many kg (0 to 1000) fixed at the root body's centre of mass",
    "remove": "limbs cut off: BODY[,BODY ...], each with all below it, or how many limbs, chosen by seed",
    "broken": "actuators that are gone, their joints passive: NAME[,NAME ...], or how many, chosen by seed",
    "vary": "length, mass and gear of each part x its own factor, drawn from 1 - SPREAD to 1 + SPREAD (0 to 0.9)",
    "seed": "of what is drawn (default 0)",
}
"""Key -> what it changes; names of variations have them in this order."""
_RANGES = {"limb": (0.2, 5.0), "mass": (0.05, 20.0), "gear": (0.01, 100.0), "friction": (0.01, 100.0),
           "payload": (0.0, 1000.0), "vary": (0.0, 0.9)}  # fmt: skip
_PARTS = ("remove", "broken")
_PLAIN = re.compile(r"(?!\d+$)[A-Za-z0-9_.#-]+")
"""Names that can stand in the name of a variation, hence of a file; other elements go by their number, `body#3`."""


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """Return the name of the unvaried body, and the changes as they are written: `("ant", {"mass": "1.5"})`.

    An existing file is itself, whatever its name holds.

    Raises:
        UserError: a key is unknown, given twice, or without a value.
    """
    found: dict[str, str] = {}
    rest = name
    while not os.path.isfile(os.path.expanduser(rest)):
        head, plus, last = rest.rpartition("+")
        key, equals, value = last.partition("=")
        if head and plus and last in KEYS:
            what = "NAME, or how many" if last in _PARTS else "NUMBER"
            raise UserError(f"body {name!r}: +{last} has no value: write +{last}={what}")
        if not (head and plus and equals) or "/" in key or os.sep in key or (key not in _PARTS and "/" in value):
            break
        if key not in KEYS:
            raise UserError(f"body {name!r}: {key!r} is nothing that can be varied: {nearest(key, tuple(KEYS))}")
        if key in found:
            raise UserError(f"body {name!r}: {key} is given twice: give it once")
        found[key], rest = value, head
    return rest, found


def vary(base: Morphology, texts: dict[str, str], name: str) -> Morphology:
    """Return a variation of a body.

    Args:
        base: the body; it is returned itself where nothing changes, as with `mass=1`.
        texts: keys of `KEYS` -> values as text.
        name: as the user wrote it, for messages.

    Raises:
        UserError: a value is none or out of range, a part does not exist, or nothing would be left to control.
    """
    values = {key: _value(key, text, name) for key, text in texts.items()}
    chance = "vary" in values or any(isinstance(values.get(key), int) for key in _PARTS)
    if "seed" in values and not chance:
        raise UserError(f"body {name!r}: nothing is drawn by the seed: leave it out, or add vary, or a count of parts")
    defaults = dataclasses.asdict(Changes())
    kept = {key: values[key] for key in KEYS if key in values and (key == "seed" or values[key] != defaults[key])}
    if "vary" in kept or any(isinstance(kept.get(key), int) for key in _PARTS):
        kept["seed"] = values.get("seed", 0)
    else:
        kept.pop("seed", None)
    if not kept:
        return base
    model = base.compile()
    tree = find_tree(model, base.root_body, base.name)
    if isinstance(kept.get("remove"), tuple):
        found = [element_id(model, BODY, part, base.name) for part in kept["remove"]]
        kept["remove"] = [_plain(element_name(model, BODY, body), f"body#{body}") for body in dict.fromkeys(found)]
    if isinstance(kept.get("broken"), tuple):
        found = [actuator for part in kept["broken"] for actuator in actuators_of(model, part, base.name)]
        if astray := [actuator for actuator in found if actuator not in tree.driven]:
            raise UserError(f"body {base.name!r}: {actuator_name(model, astray[0])!r} does not drive it: break another")
        kept["broken"] = [_plain(actuator_name(model, a), f"actuator#{a}") for a in dict.fromkeys(found)]
    made = make_morphology(base.source, **kept)
    made.compile()  # what MuJoCo refuses is told here
    return made


def make_morphology(base: dict[str, Any], **changes: Any) -> Morphology:
    """Return the variation of a body's source.

    Args:
        base: `Morphology.source` of the unvaried body.
        changes: keys of `KEYS`; numbers, and lists of names for parts.

    Raises:
        UserError: an unknown key.
    """
    if unknown := [key for key in changes if key not in KEYS]:
        raise UserError(f"source of a body: {unknown[0]!r} cannot be varied: {nearest(unknown[0], tuple(KEYS))}")
    unvaried = from_source(base)
    words = [f"{key}={_spell(changes[key])}" for key in KEYS if key in changes]
    source = {"family": FAMILY, "arguments": {"base": unvaried.source, **changes}}
    return Morphology(name="+".join([unvaried.name, *words]), source=source, task=unvaried.task)


def make_spec(base: dict[str, Any], **changes: Any) -> mujoco.MjSpec:
    """Build the varied model."""
    unvaried = from_source(base)
    return model_changes.varied_spec(unvaried.spec(), unvaried.root_body, unvaried.name, _changes(changes))


def node_class(model: mujoco.MjModel, base: dict[str, Any], **changes: Any) -> tuple[str, ...] | None:
    """Return the classes of the joints that are left; see `Morphology.node_class`."""
    unvaried = from_source(base)
    whole = unvaried.compile()
    classes = unvaried.node_class(whole)
    if classes is None:
        return None
    tree = find_tree(whole, unvaried.root_body, unvaried.name)
    gone = model_changes.lost(whole, tree, unvaried.name, _changes(changes)).bodies
    left = tuple(kind for kind, body in zip(classes, whole.jnt_bodyid, strict=True) if int(body) not in gone)
    if len(left) != model.njnt:
        raise ValueError(f"this variation of {unvaried.name} has {len(left)} joints, the model given has {model.njnt}")
    return left


def _changes(values: dict[str, Any]) -> Changes:
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return Changes(**plain)


def _value(key: str, text: str, name: str) -> Any:
    whole = bool(re.fullmatch(r"[0-9]{1,10}", text))
    if key in _PARTS:
        parts = tuple(dict.fromkeys(text.split(",")))
        if "" in parts:
            raise UserError(f"body {name!r}: {key}={text} names nothing: write {key}=NAME, or how many")
        return int(text) if whole else parts
    if key == "seed":
        if not whole or int(text) > 2**31 - 1:
            raise UserError(f"body {name!r}: seed={text} must be a whole number from 0 to {2**31 - 1}")
        return int(text)
    low, high = _RANGES[key]
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        hint = "; put spaces between bodies, not commas" if "," in text else ""
        raise UserError(f"body {name!r}: {key}={text} must be a number from {low:g} to {high:g}{hint}")
    return number


def _plain(name: str, number: str) -> str:
    return name if _PLAIN.fullmatch(name) else number


def _spell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    short = f"{value:.12g}"
    return short if float(short) == value else repr(value)


def _relocated(arguments: dict[str, Any], folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments with the relative paths of the unvaried body taken from a folder."""
    base = arguments["base"]
    relocate = family(base["family"]).relocate
    if relocate is None:
        return arguments
    return {**arguments, "base": {**base, "arguments": relocate(base["arguments"], folder)}}


register_family(
    Family(
        name=FAMILY,
        ready_made=(),
        parse=lambda name: None,  # `agents.load` takes the changes off before it asks the families
        morphology=make_morphology,
        spec=make_spec,
        node_class=node_class,
        relocate=_relocated,
        grammar="BODY+KEY=VALUE[+KEY=VALUE ...], for any BODY of these",
    )
)
