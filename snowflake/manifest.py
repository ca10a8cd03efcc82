"""Checksums of the files of a folder, so that a truncated or corrupted one is told before it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from agents.errors import UserError
from snowflake.files import dump_json
from snowflake.json_files import read_entry

MANIFEST = "manifest.json"


def write_manifest(folder: Path) -> None:
    """Write size and SHA-256 of every file in ``folder`` into its manifest."""
    files = {file.name: _row(file) for file in sorted(folder.iterdir()) if file.name != MANIFEST}
    (folder / MANIFEST).write_text(dump_json({"files": files}))


def damage(folder: Path, names: Sequence[str] | None = None) -> str | None:
    """Say what is wrong with a folder that has a manifest: a file and how it differs; None for an intact one.

    A folder without a manifest counts as intact: whoever reads it finds what else may be wrong.

    Args:
        folder: The folder.
        names: Files to look at, as far as the manifest has them; None for all.
    """
    if not (folder / MANIFEST).exists():
        return None
    try:
        rows = read_entry(folder / MANIFEST, "").get("files")
        if rows is None:
            return f"{MANIFEST} lists no files"
        wanted = {
            name: (row["bytes"].count(), row["sha256"].text())
            for name, row in rows.entries().items()
            if names is None or name in names
        }
    except UserError:
        return f"{MANIFEST} cannot be read"
    for name, (size, digest) in wanted.items():
        file = folder / name
        try:
            found = file.stat().st_size
            if found != size:
                return f"{name} has {found} bytes instead of {size}"
            if _digest(file) != digest:
                return f"{name} is corrupted: its checksum differs"
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror or error}"
    return None


def _row(file: Path) -> dict[str, int | str]:
    return {"bytes": file.stat().st_size, "sha256": _digest(file)}


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
