"""Compiles one model file in a process of its own, since a broken one can crash or stall MuJoCo, and prints JSON.

Run as a script, with the path of the file; it imports nothing of this package.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

_MIN_MEMORY = 4 << 30  # bytes
_LARGEST = 1e10  # MuJoCo's own bound on what it simulates, mjMAXVAL
_MEASURES = ("pos", "ipos", "fromto", "size", "axis")


def read_spec(path: str) -> Any:
    """Read a model file as a `mujoco.MjSpec`.

    MuJoCo knows the kind of a file by `.xml` or `.urdf`, in small letters; any other file is given to it as one of
    these that lies in the same place.

    Raises:
        ValueError: MuJoCo refuses it.
    """
    import mujoco

    stem, suffix = os.path.splitext(path)
    if suffix in (".xml", ".urdf"):
        return mujoco.MjSpec.from_file(path)
    stand_in = stem + (".urdf" if suffix.lower() == ".urdf" else ".xml")
    with open(path, "rb") as file:
        return mujoco.MjSpec.from_file(stand_in, include={stand_in: file.read()})


def check(path: str) -> dict[str, Any]:
    """Compile a model file and list the files that it is made of.

    Args:
        path: absolute path.

    Returns:
        `error` (MuJoCo's text), or `nu`, `nbody`, `njnt` and `files`: absolute paths, the file itself first.
    """
    try:
        spec = read_spec(path)
        if oddity := _oddity(spec):
            return {"error": oddity}
        model = spec.compile()
    except (ValueError, RuntimeError, MemoryError, OSError) as error:
        return {"error": str(error) or type(error).__name__}
    return {"nu": model.nu, "nbody": model.nbody, "njnt": model.njnt, "files": _files(path, spec, model)}


def _oddity(spec: Any) -> str:
    """Return what of a model would stall MuJoCo's compiler, or divide by zero later; `""` if nothing."""
    if not spec.option.timestep > 0:
        return f"Error: timestep = {spec.option.timestep:g}, it must be above 0"
    for element in (*spec.bodies, *spec.frames, *spec.joints, *spec.geoms, *spec.sites):
        for name in _MEASURES:
            if wrong := [x for x in getattr(element, name, ()) if abs(x) > _LARGEST]:  # NaN is MuJoCo's "not given"
                kind = type(element).__name__.removeprefix("Mjs").lower()
                return f"Error: {name} of {kind} {element.name!r} holds {wrong[0]:g}, more than {_LARGEST:g}"
    return ""


def _files(path: str, spec: Any, model: Any) -> list[str]:
    """Gather from the XML, the editable model and the compiled one: each alone misses some."""
    import mujoco

    folder = os.path.dirname(path)
    found = [os.fsdecode(item) for item in model.paths.split(b"\0") if item]
    with contextlib.suppress(ValueError):  # it does not read URDF
        found += mujoco.mju_getXMLDependencies(path)
    named = [item.file for item in (*spec.meshes, *spec.hfields, *spec.skins, *spec.textures)]
    named += [file for texture in spec.textures for file in texture.cubefiles]
    for directory in ("", spec.compiler.meshdir, spec.compiler.texturedir):
        found += [os.path.join(directory, file) for file in named if file]
    absolute = (os.path.normpath(os.path.join(folder, item)) for item in found)
    return [path, *sorted({item for item in absolute if os.path.isfile(item)} - {path})]


def _limit_memory() -> None:
    """Let a model that asks for more than three quarters of the memory fail here, not take the machine down."""
    try:
        import resource

        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = max(_MIN_MEMORY, total // 4 * 3)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, ValueError, OSError):
        pass  # not every system can


if __name__ == "__main__":
    _limit_memory()
    print(json.dumps(check(sys.argv[1])))
