"""Broken run folders and checkpoints: copies of small trained runs, damaged."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from benchmarks.fuzzing.case import Place
from benchmarks.fuzzing.texts import ODD, damage_bytes, replace_file

TEMPLATES: dict[str, tuple[str, ...]] = {
    "graph": ("--agents", "centipede-3"),
    "two": ("--agents", "centipede-3", "centipede-4"),
    "mlp": ("--agents", "centipede-3", "--method", "mlp"),
    "other": ("--agents", "hopper-3"),
}
"""Valid runs to start from, by name, with what `snowflake train` is told."""
_JSON_ODD: tuple[Any, ...] = (
    *(None, {}, [], "text", "", -1, 0, 1, 1.5, True, 10**30, 1e308, [[]], {"a": {}}, "../../x", "/etc/passwd"),
    *("\x00", "9" * 400),
)


def make_templates(folder: Path) -> None:
    """Train the valid runs: seconds each."""
    from snowflake.cli import main

    folder.mkdir(parents=True, exist_ok=True)
    small = ["--n-envs", "2", "--n-steps", "16", "--batch-size", "16", "--n-epochs", "1", "--eval-freq", "32"]
    small += ["--eval-episodes", "1", "--max-episode-steps", "20", "--checkpoint-freq", "32", "--num-threads", "1"]
    small += ["--total-timesteps", "96", "--hidden-size", "8", "--torch-threads", "1"]
    for name, words in TEMPLATES.items():
        if not (folder / name).exists():
            assert main(["train", *words, *small, "--run", str(folder / name)]) == 0, name


def make_run(rng: random.Random, place: Place) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Copy a run and damage any of its files; see `benchmarks.fuzzing.case.Maker`."""
    run = _copy(rng, place, "run")
    stories = [_damage_run(run, rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return _command(rng, place), "; ".join(stories), ("run", "out", "runs")


def make_checkpoint(rng: random.Random, place: Place) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Copy a run and damage its checkpoints alone; see `benchmarks.fuzzing.case.Maker`."""
    run = _copy(rng, place, "run")
    folders = sorted((run / "checkpoints").glob("step_*"))
    if rng.random() < 0.3:
        folders = folders[-1:]
    stories = [_damage_checkpoint(rng.choice(folders), place, rng) for _ in range(rng.choice((1, 1, 1, 2)))]
    return _command(rng, place), "; ".join(stories), ("run", "out", "runs")


def _copy(rng: random.Random, place: Place, name: str) -> Path:
    run = place.here / name
    shutil.copytree(place.templates / rng.choice(list(TEMPLATES)), run)
    return run


def _command(rng: random.Random, place: Place) -> tuple[str, ...]:
    """Choose a command that opens the run, as users spell it."""
    run = rng.choice(("run", "run", "run/", "./run", str(place.here / "run")))
    which = rng.choice(([], [], ["--checkpoint", "last"], ["--checkpoint", "best"], ["--checkpoint", "32"]))
    commands: list[list[str]] = [
        ["resume", run],
        ["resume", run, "--total-timesteps", "128"],
        ["resume", run, "--total-timesteps", "128", "--num-threads", "2"],
        ["evaluate", run, "--episodes", "1", *which],
        ["evaluate", run, "--episodes", "1", "--output", "out", "--json", *which],
        ["transfer", run, "--to", "centipede-4", "--episodes", "1", *which],
        ["transfer", run, str(place.templates / "graph"), "--to", "centipede-4", "--episodes", "1", "--output", "out"],
        ["report", run],
        ["report", ".", "--output", "out"],
        ["finetune", run, "--agents", "centipede-4", "--run", "out", *which],
        ["finetune", run, "--compare", str(place.templates / "graph")],
        ["video", run, "--output", "out", *which],
        ["train", "--config", f"{run}/config.yaml", "--run", "out"],
    ]
    return tuple(rng.choice(commands))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _damage_run(run: Path, rng: random.Random) -> str:
    """Damage a run folder in one place; returns where and how."""
    files = _files(run) or [run / "config.yaml"]
    readable = [path for path in files if path.suffix in (".json", ".yaml", ".jsonl", ".xml", ".txt")] or files
    path = rng.choice(readable if rng.random() < 0.8 else files)
    name = os.path.relpath(path, run)
    way = rng.randrange(10)
    if way <= 2 and path.suffix == ".json":
        return f"{name}: {_damage_json(path, rng)}"
    if way <= 2 and path.suffix == ".yaml":
        return f"{name}: {_damage_lines(path, rng)}"
    if way <= 4:
        data, story = damage_bytes(path.read_bytes() if path.is_file() else b"", rng)
        if path.is_file() and os.access(path, os.W_OK):
            path.write_bytes(data)
        return f"{name}: {story}"
    if way <= 6 and path.parent.is_dir():
        return f"{name}: {replace_file(path, rng)}"
    folders = sorted(item for item in run.rglob("*") if item.is_dir() and not item.is_symlink()) or [run]
    folder = rng.choice(folders)
    name = os.path.relpath(folder, run)
    if way == 7:
        shutil.rmtree(folder)
        return f"{name} is gone"
    if way == 8:
        folder = rng.choice((run, folder))
        folder.chmod(rng.choice((0o555, 0o000, 0o444)))
        return f"{os.path.relpath(folder, run)} is closed"
    target = folder.with_name(
        rng.choice(("step_000000000064", "step_x", "step_-1", "step_²", "old", "step_99999999999999999999"))
    )
    if not target.exists():
        folder.rename(target)
    return f"{name} is called {target.name}"


def _damage_json(path: Path, rng: random.Random) -> str:
    """Change, add or drop one value in a JSON file, at any depth."""
    try:
        root = json.loads(path.read_text())
    except ValueError:
        return "was damaged before"
    value, trail = root, []
    while isinstance(value, (dict, list)) and value and (rng.random() < 0.7 or not trail):
        key: Any = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        trail.append(key)
        value = value[key]
    if not trail:
        path.write_text(json.dumps(rng.choice(_JSON_ODD)))
        return "is something else"
    owner = root
    for key in trail[:-1]:
        owner = owner[key]
    odd = rng.choice(_JSON_ODD)
    if rng.random() < 0.25:
        del owner[trail[-1]]
        path.write_text(json.dumps(root))
        return f"without {trail}"
    owner[trail[-1]] = odd
    path.write_text(json.dumps(root).replace('"9999', "9999") if rng.random() < 0.1 else json.dumps(root))
    return f"{trail} = {str(odd)[:20]!r}"


def _damage_lines(path: Path, rng: random.Random) -> str:
    """Put an odd value behind a key of a YAML file."""
    lines = path.read_text().split("\n")
    i = rng.randrange(len(lines))
    key, odd = lines[i].partition(":")[0], rng.choice(ODD)
    lines[i] = f"{key}: {odd}"
    path.write_text("\n".join(lines), errors="surrogatepass")
    return f"{key.strip()} = {odd[:30]!r}"


# --- checkpoints ----------------------------------------------------------------------------------------------------


def _damage_checkpoint(folder: Path, place: Place, rng: random.Random) -> str:
    """Damage one file of a checkpoint; returns which and how."""
    path = rng.choice(_files(folder) or [folder / "state.json"])
    way = rng.choice((_bits, _bits, _tensors, _tensors, _header, _pickle, _foreign, _instead, _json))
    return f"{folder.name}/{path.name}: {way(path, place, rng)}" if path.is_file() else f"{path.name} is gone"


def _bits(path: Path, place: Place, rng: random.Random) -> str:
    data, story = damage_bytes(path.read_bytes(), rng)
    path.write_bytes(data)
    return story


def _instead(path: Path, place: Place, rng: random.Random) -> str:
    return replace_file(path, rng)


def _json(path: Path, place: Place, rng: random.Random) -> str:
    state = path.with_name("state.json")
    return f"state.json: {_damage_json(state, rng)}" if state.is_file() else "state.json is gone"


def _tensors(path: Path, place: Place, rng: random.Random) -> str:
    """Rename, reshape, retype, drop, add or spoil one tensor."""
    if path.suffix != ".safetensors":
        return _json(path, place, rng)
    try:
        tensors = dict(load_file(path))
    except Exception:
        return "was damaged before"
    name = rng.choice(sorted(tensors) or [""])
    if not name:
        return "is empty"
    tensor = tensors.pop(name)
    changes: dict[str, Callable[[], torch.Tensor | None]] = {
        "dropped": lambda: None,
        "flat": lambda: tensor.flatten().clone(),
        "longer": lambda: torch.cat([tensor.flatten(), tensor.flatten()]).clone(),
        "empty": lambda: torch.zeros(0, dtype=tensor.dtype),
        "as float64": lambda: tensor.to(torch.float64),
        "as int8": lambda: tensor.to(torch.int8),
        "as bool": lambda: tensor.bool(),
        "not finite": lambda: torch.full_like(tensor.float(), rng.choice((float("nan"), float("inf")))),
        "huge": lambda: torch.full_like(tensor.float(), 1e30),
        "of negative numbers": lambda: -tensor.float().abs() - 1,
        "zero": lambda: torch.zeros_like(tensor),
    }
    how = rng.choice(sorted(changes))
    if (new := changes[how]()) is not None:
        tensors[name if rng.random() < 0.9 else f"{name}.x"] = new
    save_file(tensors, path)
    return f"{name} {how}"


def _header(path: Path, place: Place, rng: random.Random) -> str:
    """Spoil the header of a safetensors file."""
    headers: tuple[bytes, ...] = (
        *((2**63 - 1).to_bytes(8, "little"), (0).to_bytes(8, "little"), (2).to_bytes(8, "little") + b"{}"),
        *(_framed(b"[" * 5000), _framed(b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}') + b"1234"),
        _framed(
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        ),
        _framed(b'{"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,0]}}'),
        _framed(b'{"__metadata__":{"format":"pt"}}'),
    )
    path.write_bytes(rng.choice(headers))
    return "another header"


def _framed(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


def _pickle(path: Path, place: Place, rng: random.Random) -> str:
    """Put a pickle there that makes a file called pwned when it is loaded."""
    evil = b"cposix\nsystem\n(S'touch pwned'\ntR."
    path.write_bytes(evil)
    if rng.random() < 0.5:
        torch.save({"state_dict": _Evil()}, path)
    if rng.random() < 0.3:
        shutil.copy(path, path.with_name("policy.pth"))
    return "a pickle"


class _Evil:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch pwned",)


def _foreign(path: Path, place: Place, rng: random.Random) -> str:
    """Put the file of another checkpoint or run in its place."""
    name = rng.choice(list(TEMPLATES))
    others = sorted((place.templates / name / "checkpoints").rglob(path.name))
    shutil.copy(rng.choice(others), path)
    return f"that of run {name}"
