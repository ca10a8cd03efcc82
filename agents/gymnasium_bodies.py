"""The locomotion bodies that Gymnasium ships: ant, half_cheetah, hopper, humanoid, swimmer, walker2d.

The MJCF files are read from the installed gymnasium package, whose code is not imported.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import mujoco

from agents.errors import UserError
from agents.morphology import Morphology
from agents.registry import Family, register_family

FAMILY = "gymnasium"
# The files that the v5 environments of Gymnasium read.
FILES = {
    "ant": "ant.xml",
    "half_cheetah": "half_cheetah.xml",
    "hopper": "hopper.xml",
    "humanoid": "humanoid.xml",
    "swimmer": "swimmer.xml",
    "walker2d": "walker2d_v5.xml",
}


def make_morphology(body: str) -> Morphology:
    """Return the morphology of a key of `FILES`; its task is that of Gymnasium's v5 environment.

    Raises:
        UserError: the name is none of `FILES`.
    """
    if body not in FILES:
        raise UserError(f"family 'gymnasium': unknown body {body!r}, choose from {', '.join(FILES)}")
    return Morphology(name=body, source={"family": FAMILY, "arguments": {"body": body}}, task=f"{body}-v5")


def make_spec(body: str) -> mujoco.MjSpec:
    """Read the MJCF file of a body.

    Raises:
        UserError: gymnasium is not installed, or its file is missing.
    """
    package = importlib.util.find_spec("gymnasium")
    if package is None or package.origin is None:
        raise UserError(
            f"body {body!r} is read from the package gymnasium, which is not installed: pip install gymnasium"
        )
    path = Path(package.origin).parent / "envs" / "mujoco" / "assets" / FILES[body]
    if not path.is_file():
        raise UserError(f"body {body!r}: {path} is missing, install a gymnasium that has the v5 MuJoCo environments")
    return mujoco.MjSpec.from_file(str(path))


register_family(
    Family(
        name=FAMILY,
        ready_made=tuple(FILES),
        parse=lambda name: make_morphology(name) if name in FILES else None,
        morphology=make_morphology,
        spec=make_spec,
        grammar="those of Gymnasium, by their names",
    )
)
