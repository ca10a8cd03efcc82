"""Bodies from model files: MJCF, and URDF as far as MuJoCo compiles it."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mujoco

from agents import file_check
from agents.errors import UserError
from agents.morphology import Morphology, model_hash
from agents.registry import Family, from_source, names, register_family

FAMILY = "file"
TASK = "locomotion"
SUFFIXES = (".xml", ".mjcf", ".urdf")
CHECK_SECONDS = 120.0
"""A file that takes longer to compile is refused [s]."""

# File names that say nothing of the robot: the folder's name goes before them.
_PLAIN = ("main", "model", "mjcf", "robot", "scene", "scene_flat", "scene_mjx", "urdf", "world")
_LONGEST_NAME = 100  # bytes of a part of a body's name; a file system takes 255, with what is put around it
_ALIKE = 0.7  # of the names of two files, as `difflib` measures it
_REFERS_ELSEWHERE = re.compile(
    r"unknown |unrecognized name|not found in|could not find|invalid \w+ size", re.IGNORECASE
)


class FileError(UserError):
    """A model file that is no robot.

    Attributes:
        kind: `"missing"` (no such file), `"empty"`, `"broken"` (MuJoCo refuses it), `"fragment"` (a part of another
            model), `"missing asset"` (a mesh or include that it names), `"no actuators"`, `"crash"` or `"timeout"`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type[FileError], tuple[str, str]]:
        return FileError, (self.kind, str(self))


def make_morphology(
    path: str | os.PathLike[str],
    root_body: str | None = None,
    name: str | None = None,
    files: Sequence[str] | None = None,
) -> Morphology:
    """Return the body of a model file.

    Args:
        path: of the file; relative to the working directory, or with `~`.
        root_body: top body of the tree to control, where the file has several robots.
        name: of the body; made from the file's name and `root_body` if not given.
        files: all files that the model is made of, as `Morphology.source` keeps them. Without, the file is compiled
            once in a process of its own to find them, and its faults.

    Raises:
        FileError: the file is missing or is no robot.
    """
    full = os.path.abspath(os.path.expanduser(os.fspath(path)))
    if files is None:
        files = checked_files(full)
    arguments = {"path": full, "root_body": root_body, "name": name or _body_name(full, root_body)}
    source = {"family": FAMILY, "arguments": {**arguments, "files": list(files)}}
    return Morphology(name=arguments["name"], source=source, task=TASK)


def make_spec(path: str, root_body: str | None, name: str, files: Sequence[str]) -> mujoco.MjSpec:
    """Read the file.

    Raises:
        FileError: it is gone, or is no model any more.
    """
    if not os.path.isfile(path):
        raise FileError("missing", f"body {name!r}: there is no file {path} any more")
    try:
        return file_check.read_spec(path)
    except (ValueError, OSError) as error:
        raise _refusal(path, str(error)) from error


def checked_files(path: str, seconds: float = CHECK_SECONDS) -> list[str]:
    """Compile a model file in a process of its own and return the files that it is made of, itself first.

    Args:
        path: absolute path.
        seconds: how long that may take [s].

    Raises:
        FileError: the file is missing, does not compile in time, or cannot be controlled.
    """
    if not os.path.isfile(path):
        raise _missing(path)
    result = _checked_apart(path, seconds)
    if "error" in result:
        raise _refusal(path, result["error"])
    if result["nu"] == 0:
        raise _without_actuators(path, result["nbody"], result["njnt"])
    return result["files"]


def _checked_apart(path: str, seconds: float) -> dict[str, Any]:
    """Return what `file_check.check` finds, run in a process of its own."""
    command = [sys.executable, "-P", file_check.__file__, path]
    with tempfile.TemporaryDirectory() as folder:  # where MuJoCo leaves its log when it dies
        try:
            done = subprocess.run(command, capture_output=True, timeout=seconds, cwd=folder, check=False)
        except subprocess.TimeoutExpired:
            raise FileError("timeout", f"{path}: MuJoCo did not compile it within {seconds:g} s") from None
    try:
        return json.loads(done.stdout.decode().splitlines()[-1])
    except (IndexError, ValueError):
        raise FileError("crash", f"{path}: {_last_words(done)}") from None


def copy_files(morphology: Morphology, folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Copy all files of a body into a folder, so that it can be rebuilt without the originals.

    The files lie to each other as they did. The body keeps its name, and its compiled model the same `model_hash`.

    Args:
        morphology: a body of any family; those that are not made of files need none.
        folder: where to; it is made if need be.

    Returns:
        The body's source, with paths relative to the folder: `agents.from_source(source, folder)` rebuilds the body.

    Raises:
        FileError: a file is gone, or the copies alone are not the body (a file that MuJoCo does not report).
    """
    if (unvaried := morphology.unvaried) is not morphology:
        arguments = {**morphology.source["arguments"], "base": copy_files(unvaried, folder)}
        return {**morphology.source, "arguments": arguments}
    if morphology.source["family"] != FAMILY:
        return morphology.source
    arguments = morphology.source["arguments"]
    base = os.path.commonpath([os.path.dirname(file) for file in arguments["files"]])
    copies = [Path(os.path.relpath(file, base)).as_posix() for file in arguments["files"]]
    for file, copy in zip(arguments["files"], copies, strict=True):
        target = Path(folder, copy)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(file, target)
        except OSError as error:
            raise FileError("missing asset", f"body {morphology.name!r}: {file} cannot be copied ({error})") from error
    source = {"family": FAMILY, "arguments": {**arguments, "path": copies[0], "files": copies}}
    if model_hash(from_source(source, folder).compile()) != model_hash(morphology.compile()):
        raise FileError("missing asset", f"body {morphology.name!r}: copied to {folder}, its files are another model")
    return source


def _relocated(arguments: dict[str, Any], folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments with relative paths taken from a folder."""
    base = os.path.abspath(folder)
    files = [os.path.normpath(os.path.join(base, file)) for file in arguments["files"]]
    return {**arguments, "path": os.path.normpath(os.path.join(base, arguments["path"])), "files": files}


def _parse(name: str) -> Morphology | None:
    path = os.path.expanduser(name)
    suffix = os.path.splitext(path)[1].lower()
    # A file called "ant" in the working directory is not the body "ant".
    if suffix in SUFFIXES or (os.path.dirname(path) and os.path.isfile(path)):
        return make_morphology(name)
    if os.path.isdir(path) and name not in names():
        raise FileError("missing", f"{name} is a folder, name a model file: {_choices(path)}")
    if os.path.dirname(path) or _is_misspelt(path):
        raise _missing(name)
    return None


def _is_misspelt(path: str) -> bool:
    """Return whether a word with an ending that is no model's, as "robot.xm", means a model file that lies here."""
    stem, ending = os.path.splitext(path)
    if not re.fullmatch(r"\.[A-Za-z]+", ending):
        return False
    try:
        files = [item for item in os.listdir() if item.lower().endswith(SUFFIXES)]
    except OSError:
        return False
    return any(stem.lower() == os.path.splitext(file)[0].lower() for file in files)


def _choices(folder: str) -> str:
    """Say which model files lie in a folder."""
    try:
        files = sorted(file for file in os.listdir(folder) if file.lower().endswith(SUFFIXES))
    except OSError as error:
        return f"{folder} cannot be read ({error.strerror})"
    if not files:
        return f"{folder} holds none ({', '.join(SUFFIXES)})"
    return f"{folder} holds {', '.join(files[:5])}{', ...' if len(files) > 5 else ''}"


def _missing(path: str) -> FileError:
    folder, file = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        return FileError("missing", f"there is no model file {path}: the folder {folder} does not exist")
    try:
        close = _similar(file, [item for item in os.listdir(folder) if item.lower().endswith(SUFFIXES)])
    except OSError:
        close = ""
    hint = f"did you mean {close!r}?" if close else _choices(folder)
    return FileError("missing", f"there is no model file {path}: {hint}")


def _similar(file: str, files: Sequence[str]) -> str:
    """Return the file whose name is most like another, `""` if none is; endings, which most share, do not count."""
    stems = {os.path.splitext(item)[0].lower(): item for item in files}
    close = difflib.get_close_matches(os.path.splitext(file)[0].lower(), list(stems), n=1, cutoff=_ALIKE)
    return stems[close[0]] if close else ""


def _missing_asset(path: str, said: str) -> FileError:
    """Say where the model looks for a file that is not there, and what lies there."""
    named = re.search(r"opening file '([^']+)'", said)
    if named is None or "package://" in said:
        hint = "MuJoCo does not resolve package://, write paths from the model file" if "package://" in said else ""
        return FileError("missing asset", f"{said}: {hint or 'put the file where the model looks'}")
    wanted = os.path.normpath(os.path.join(os.path.dirname(path), named.group(1)))
    folder, file = os.path.split(wanted)
    if not os.path.isdir(folder):
        hint = f"the model looks in {folder}, which does not exist: put the file there, or correct meshdir or the path"
    elif close := _similar(file, os.listdir(folder)):
        hint = f"the model looks in {folder}, which has {close!r}: correct the name"
    else:
        hint = f"the model looks in {folder}: put the file there, or correct meshdir or the path"
    return FileError("missing asset", f"{said}: {hint}")


def _encoding(path: str) -> str:
    """Return the name of an encoding that MuJoCo does not read, `""` for any other."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        start = file.read(64)
        if start.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
            return "UTF-32"
        if start.startswith((b"\xff\xfe", b"\xfe\xff")) or (b"\x00" in start and b"<" in start):
            return "UTF-16"
    return ""


def _refusal(path: str, text: str) -> FileError:
    """Turn what MuJoCo says of a file into one line that says what to do."""
    said = f"{path}: {' '.join(text.split())}"
    if "empty file" in text:
        return FileError("empty", f"{path}: the file is empty")
    if "'mujocoinclude'" in text:
        return FileError("fragment", f"{path}: a fragment (<mujocoinclude>): name the file that includes it")
    if encoding := _encoding(path):
        return FileError("broken", f"{path}: the file is in {encoding}, MuJoCo reads UTF-8: save it in that encoding")
    if "model type" in text:
        return FileError("broken", f"{said}: it is neither MJCF (<mujoco>) nor URDF (<robot>)")
    if "opening file" in text or "package://" in text:
        return _missing_asset(path, said)
    if "keyframe" in text or _REFERS_ELSEWHERE.search(text):
        return FileError("fragment", f"{said}: it refers to what it does not hold; if it is a part, name the whole")
    if "no longer supported" in text:
        return FileError("broken", said)
    return FileError("broken", f"{said}: correct the file")


def _without_actuators(path: str, nbody: int, njnt: int) -> FileError:
    if nbody == 1:
        return FileError("fragment", f"{path}: it holds no body; if it is a part of another model, name the whole")
    hint = "add motors to its joints" if njnt else "nothing in it moves"
    if path.lower().endswith(".urdf"):
        hint = "URDF knows none, so save the model as MJCF and add motors to its joints"
    return FileError("no actuators", f"{path} has no actuator, so there is nothing to control: {hint}")


def _last_words(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode < 0:
        try:
            cause = signal.Signals(-done.returncode).name
        except ValueError:
            cause = f"signal {-done.returncode}"
        return f"MuJoCo crashed while it compiled the file ({cause})"
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
    return f"MuJoCo gave up compiling the file ({lines[-1]})"


def _body_name(path: str, root_body: str | None) -> str:
    folder, file = os.path.split(path)
    name = _plain(os.path.splitext(file)[0]) or "robot"
    if name.lower() in _PLAIN:
        name = "-".join(filter(None, (_plain(os.path.basename(folder)), name)))
    if name in names():  # ant.xml is not the body "ant"
        name += "-file"
    return "-".join(filter(None, (name, _plain(root_body or ""))))


def _plain(text: str) -> str:
    """Return a text in letters and digits of any script, dots, dashes and underscores, for file names and tables."""
    plain = re.sub(r"[^\w.]+", "-", unicodedata.normalize("NFC", text)).strip("-.")
    return plain.encode()[:_LONGEST_NAME].decode(errors="ignore").strip("-.")


register_family(
    Family(
        name=FAMILY,
        ready_made=(),
        parse=_parse,
        morphology=make_morphology,
        spec=make_spec,
        relocate=_relocated,
        grammar=f"the path of a model file: {', '.join(SUFFIXES)}",
    )
)
