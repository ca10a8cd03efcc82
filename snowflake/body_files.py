"""The bodies of a run folder: their sources, what they compiled to, and whether they still do."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import mujoco

import agents
import envs
from agents.errors import UserError
from agents.files import copy_files
from snowflake.files import dump_json
from snowflake.graph import MorphologyGraph


def write_body(folder: Path, env: envs.LocomotionVectorEnv, graph: MorphologyGraph) -> None:
    """Store the body of an environment: its source, with copies of its files and their hashes, and its graph."""
    morphology = env.morphology
    source = copy_files(morphology, folder / morphology.name)
    specs: list[mujoco.MjSpec] = []
    body = {
        "name": morphology.name,
        "source": source,
        "model_hash": agents.model_hash(morphology.compile(specs.append)),
        "file_hashes": _file_hashes(folder / morphology.name),
    }
    (folder / f"{morphology.name}.json").write_text(dump_json(body))
    (folder / f"{morphology.name}.graph.json").write_text(graph.to_json() + "\n")
    # For reading only: MuJoCo rounds the numbers it writes, so the body is rebuilt from its source.
    specs[0].to_file(str(folder / f"{morphology.name}.xml"))


def read_body(file: Path) -> agents.Morphology:
    """Rebuild a body, if it still compiles to the model that was trained.

    Raises:
        UserError: it does not: a copied file was changed, or MuJoCo or this package is another version.
    """
    stored = read_json(file)
    folder = file.parent / stored["name"]
    try:
        morphology = agents.from_source(stored["source"], folder)
        if agents.model_hash(morphology.compile()) == stored["model_hash"]:
            return morphology
    except UserError:
        if not _changed_files(stored, folder):
            raise
    start = f"body {stored['name']!r} of {file.parent.parent} no longer compiles to the model that was trained"
    if changed := _changed_files(stored, folder):
        raise UserError(
            f"{start}: {changed[0]} was changed since, put the file back as it was, or train the new body as a new run"
        )
    trained = read_json(file.parent.parent / "versions.json")
    for package in ("mujoco", "snowflake-rl"):
        here, then = metadata.version(package), str(trained.get(package, "unknown"))
        if here != then:
            raise UserError(f"{start} (trained with {package} {then}, here {here}): install that version")
    raise UserError(
        f"{start}, with the same versions of mujoco and snowflake-rl: was the package changed? "
        f"(commit {trained.get('git_commit', 'unknown')})"
    )


def _file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that a body was copied from, by its path in the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _changed_files(stored: dict[str, Any], folder: Path) -> list[Path]:
    """Return the copied files that are gone or are not those of the training; older runs have no hashes."""
    now = _file_hashes(folder)
    return [folder / name for name, digest in stored.get("file_hashes", {}).items() if now.get(name) != digest]


def read_json(file: Path) -> dict[str, Any]:
    """Read an object from a file of a run folder.

    Raises:
        UserError: it is missing or damaged.
    """
    try:
        values = json.loads(file.read_text())
        if not isinstance(values, dict):
            raise ValueError("it does not hold an object")
        return values
    except FileNotFoundError:
        raise UserError(f"run folder {file.parent} is incomplete: {file.name} is missing") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
