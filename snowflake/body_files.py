"""The bodies of a run folder: their sources, what they compiled to, and whether they still do."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import mujoco

import agents
import envs
from agents.errors import UserError
from agents.files import copy_files
from snowflake.files import dump_json
from snowflake.graph import MorphologyGraph
from snowflake.json_files import Entry, read_entry

ADVICE = "put the file back as it was, or train again"
"""What to do about a damaged file of a run folder."""


def check_names(bodies: Sequence[agents.Morphology], spelt: Sequence[str] = ()) -> None:
    """Require that bodies have different names, by which a run keeps them.

    Args:
        bodies: the bodies.
        spelt: what the user called each; their names if not given.

    Raises:
        UserError: two are the same body, or different ones of one name.
    """
    first: dict[str, int] = {}
    for k, body in enumerate(bodies):
        other = first.setdefault(body.name, k)
        if other != k:
            both = f"{spelt[other]} and {spelt[k]}" if spelt and spelt[other] != spelt[k] else ""
            if bodies[other] == body:
                raise UserError(
                    f"agents names {body.name!r} twice{f' ({both} are the same body)' if both else ''}: name each once"
                )
            raise UserError(
                f"two bodies are called {body.name!r}{f' ({both})' if both else ''}: rename one of the files"
            )


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
        UserError: it does not: a copied file was changed, or MuJoCo or this package is another version; or the file is
            damaged.
    """
    stored = read_entry(file, ADVICE)
    name, digest = stored["name"].text(), stored["model_hash"].text()
    if name != file.stem:
        raise stored.error(f"it is of body {name!r}")
    folder = file.parent / name
    changed = _changed_files(stored, folder)
    try:
        morphology, now = _from_source(stored["source"], folder)
        if now == digest:
            return morphology
    except UserError:
        if not changed:
            raise
    start = f"body {name!r} of {file.parent.parent} no longer compiles to the model that was trained"
    if changed:
        raise UserError(
            f"{start}: {changed[0]} was changed since, put the file back as it was, or train the new body as a new run"
        )
    trained = {
        key: value.text() for key, value in read_entry(file.parent.parent / "versions.json", ADVICE).entries().items()
    }
    for package in ("mujoco", "snowflake-rl"):
        here, then = metadata.version(package), trained.get(package, "unknown")
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


def _from_source(source: Entry, folder: Path) -> tuple[agents.Morphology, str]:
    """Rebuild a body, and hash its model; whatever a builder makes of wrong values is told as damage of the file."""
    try:
        morphology = agents.from_source(source.object(), folder)
        return morphology, agents.model_hash(morphology.compile())
    except UserError as error:
        raise UserError(f"{source.file}: {error}") from error
    except (TypeError, ValueError, LookupError, AttributeError, OSError, ArithmeticError) as error:
        reason = " ".join(str(error).split())[:200]
        raise source.error(f"{source.where!r} makes no body ({type(error).__name__}: {reason})") from error


def _changed_files(stored: Entry, folder: Path) -> list[Path]:
    """Return the copied files that are gone or are not those of the training; older runs have no hashes."""
    hashes = stored.get("file_hashes")
    then = {} if hashes is None else {name: value.text() for name, value in hashes.entries().items()}
    now = _file_hashes(folder)
    return [folder / name for name, digest in then.items() if now.get(name) != digest]
