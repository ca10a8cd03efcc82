"""Files that are either the old one or the new one, never half of one."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from agents.errors import UserError

if TYPE_CHECKING:
    import torch

RECIPE_FILE = "numerics.safetensors"
"""Of a checkpoint: what its numeric recipe has learned. Absent where that is nothing."""


def write_atomic(path: Path, content: str | bytes, beside: Path | None = None) -> None:
    """Write ``content`` under a temporary name in ``path``'s folder, or in ``beside``, sync it, then rename."""
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, beside) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path, beside: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path of the same suffix; on success it takes the place of the file ``path``.

    Args:
        path: The file.
        beside: Folder of the temporary file, on the same file system; that of ``path`` if not given.
    """
    folder = beside or path.parent
    handle, name = tempfile.mkstemp(prefix=f".tmp-{path.stem}-", suffix=path.suffix, dir=folder)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        sync(temporary)
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide results from other users
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_no_file(folder: Path | None, flag: str = "--output") -> None:
    """Require that what a flag names as a folder is not a file.

    Raises:
        UserError: It is a file.
    """
    # Unlike Path.exists, these answer no where a name is too long or its folder closed: that is told later.
    if folder is not None and os.path.exists(folder) and not os.path.isdir(folder):
        raise UserError(f"{flag} {folder}: is a file, name a folder")


def check_output(folder: Path, names: Sequence[str] = (), flag: str = "--output") -> None:
    """Try whether files can be written into a folder, and leave nothing behind; for the time before long work.

    Args:
        folder: The folder; it need not exist.
        names: The files.
        flag: The flag that chooses the folder, for the message.

    Raises:
        UserError: The folder cannot be made or written to, or a folder has the name of a file.
    """
    made = []
    try:
        for place in (*reversed(folder.parents), folder):
            if not os.path.exists(place):
                place.mkdir()
                made.append(place)
        with tempfile.TemporaryFile(dir=folder):
            pass
        taken = next((name for name in names if os.path.isdir(folder / name)), None)
    except OSError as error:
        what = "written to" if os.path.isdir(folder) else "made"
        raise UserError(
            f"{flag} {folder}: cannot be {what} ({error.strerror or error}); choose another folder"
        ) from error
    finally:
        for place in reversed(made):
            with suppress(OSError):
                place.rmdir()
    if taken is not None:
        raise UserError(f"{flag} {folder}: {folder / taken} is a folder, move it away, or choose another folder")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; on success it is renamed to ``path``, which must not exist."""
    temporary = Path(tempfile.mkdtemp(prefix=f".tmp-{path.name}-", dir=path.parent))
    try:
        yield temporary
        for place in temporary.rglob("*"):
            if place.is_file():
                os.chmod(place, 0o644)
            sync(place)
        os.chmod(temporary, 0o755)
        sync(temporary)
        os.rename(temporary, path)
        sync(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def read_text(path: Path) -> str:
    """Read a UTF-8 file, and nothing else: of a pipe there is no end to wait for, of a device none to read to.

    Raises:
        OSError: It cannot be read, or is no regular file.
        UnicodeDecodeError: It is no text.
    """
    _require_file(path)
    return path.read_text(encoding="utf-8")


def _require_file(path: Path) -> None:
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def remove_folder(path: Path) -> None:
    """Delete a folder; if that is cut short, what is left no longer has its name."""
    gone = Path(tempfile.mkdtemp(prefix=f".tmp-{path.name}-", dir=path.parent))
    os.rename(path, gone)  # onto an empty folder
    shutil.rmtree(gone, ignore_errors=True)


def sweep_up(folder: Path) -> None:
    """Delete what processes that were killed left half-written in ``folder``."""
    for left in folder.glob(".tmp-*"):
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def append_line(path: Path, line: str) -> None:
    """Add a line to a text file, synced; a last line that a kill cut short stays apart from it."""
    with path.open("a+b") as file:
        if file.seek(0, os.SEEK_END) and not _ends_in_newline(file):
            file.write(b"\n")
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a safetensors file onto the CPU; no code is run.

    Raises:
        UserError: it is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        _require_file(path)
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} is missing or damaged: {' '.join(str(error).split())[:200]}") from error


def _ends_in_newline(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def dump_json(value: Any, indent: int | None = 1) -> str:
    """Strict JSON with a trailing newline, as every file that is written has it; what is not finite becomes null.

    Args:
        value: Nested plain data.
        indent: Spaces a level; None for one line.
    """
    return json.dumps(_finite(value), indent=indent, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sync(path: Path) -> None:
    """Bring a file or folder onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
