"""Broken configs: of runs, of studies, and sets of bodies."""

from __future__ import annotations

import dataclasses
import random
import typing
from pathlib import Path
from typing import Any

from benchmarks.fuzzing.case import Place
from benchmarks.fuzzing.texts import BOMB, damage_bytes, damage_values, replace_file, to_yaml
from snowflake.config.study import StudyConfig
from snowflake.config.train import TrainConfig

SMALL: dict[str, Any] = {
    "agents": "[centipede-3]",
    "method": "snowflake",
    "seed": "1",
    "total_timesteps": "64",
    "torch_threads": "1",
    "env": {"n_envs": "2", "num_threads": "1", "max_episode_steps": "20"},
    "policy": {"hidden_size": "8", "propagation_steps": "2", "freeze": "[encoder]"},
    "ppo": {"n_steps": "16", "batch_size": "16", "n_epochs": "1", "gamma": "0.9"},
    "evaluation": {"eval_freq": "0", "checkpoint_freq": "1000", "eval_episodes": "1"},
}
"""A run of a second."""
_STUDY: dict[str, Any] = {
    "name": "small",
    "agents": "[centipede-3, [centipede-3, centipede-4]]",
    "seeds": "[0, 1]",
    "variants": {
        "a": {"method": "snowflake", "total_timesteps": "64"},
        "b": {"method": "mlp", "ppo": {"n_steps": "16"}},
    },
    "transfer": "[centipede-4]",
    "episodes": "1",
}
_SET: dict[str, Any] = {"train": "[centipede-3, centipede-4]", "test": "[centipede-5, ant+mass=1.5]"}


def keys_of(cls: type) -> tuple[str, ...]:
    """Return the names of all keys of a config, of all its sections."""
    found: list[str] = []
    for name, hint in typing.get_type_hints(cls).items():
        found.append(name)
        if dataclasses.is_dataclass(hint):
            found += keys_of(typing.cast(type, hint))
    return tuple(dict.fromkeys(found))


KEYS = (*keys_of(TrainConfig), *keys_of(StudyConfig), "train", "test", "__class__", "self")


def make(rng: random.Random, place: Place) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Write a damaged config, study or set; see `benchmarks.fuzzing.case.Maker`."""
    what = rng.choices(("run", "study", "set", "finetune", "bench"), (6, 2, 2, 1, 1))[0]
    valid = {"study": _STUDY, "set": _SET}.get(what, SMALL)
    path = place.here / rng.choice(("run.yaml", "run.yaml", "run.yml", "a b.yaml", "run"))
    story = write_damaged(path, valid, rng)
    name = path.name if path.suffix == "" or rng.random() < 0.5 else str(path)
    if what == "run":
        argv = ["train", "--config", name, *rng.choice(([], [], ["--method", "mlp"], ["--seed", "3"])), "--run", "out"]
    elif what == "study":
        argv = ["sweep", name, "--output", "out", *rng.choice(([], ["--list"], ["--only", "x"]))]
    elif what == "set":
        split = rng.choice(("train", "test", "train+mass=2", "x", "", "train/test"))
        argv = ["train", "--config", "demo", "--n-envs", "2", "--agents", f"set:{name}/{split}", "--run", "out"]
    elif what == "finetune":
        argv = ["finetune", str(place.templates / "graph"), "--agents", "centipede-3", "--config", name, "--run", "out"]
    else:
        argv = ["bench", "--config", name]
    return tuple(argv), f"{what}: {story}", ("out",)


def write_damaged(path: Path, valid: dict[str, Any], rng: random.Random) -> str:
    """Write nested settings with one to three faults; returns which."""
    values = {key: dict(value) if isinstance(value, dict) else value for key, value in valid.items()}
    way = rng.random()
    stories = []
    if way < 0.7:
        stories += [damage_values(values, rng, KEYS) for _ in range(rng.choice((1, 1, 2, 3)))]
    data = to_yaml(values).encode(errors="surrogatepass")
    if 0.5 < way < 0.9:
        data, story = damage_bytes(data, rng)
        stories.append(story)
    if way > 0.97:
        key = rng.choice(("agents", "seed", "ppo", "variants", "x"))
        data = f"{BOMB}\n{key}: *i\n{data.decode()}".encode() if rng.random() < 0.6 else b"[" * rng.choice((50, 20_000))
        stories.append("bomb")
    path.write_bytes(data)
    if 0.9 <= way <= 0.97:
        stories.append(replace_file(path, rng))
    return "; ".join(stories)
