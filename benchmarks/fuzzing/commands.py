"""Broken command lines: of every command, with wrong flags, values, order and number."""

from __future__ import annotations

import random
import shutil

from benchmarks.fuzzing.case import Place
from benchmarks.fuzzing.configs import keys_of
from snowflake.cli import COMMANDS
from snowflake.config.train import TrainConfig

_SMALL = ("--n-envs", "2", "--n-steps", "16", "--batch-size", "16", "--total-timesteps", "32", "--eval-freq", "0")
_VALID: dict[str, tuple[str, ...]] = {
    "train": ("--agents", "centipede-3", *_SMALL, "--run", "out"),
    "resume": ("run", "--total-timesteps", "128"),
    "sweep": ("methods", "--output", "out", "--jobs", "1"),
    "finetune": ("run", "--agents", "centipede-4", "--train", "same", "--run", "out"),
    "evaluate": ("run", "--episodes", "1", "--seed", "3", "--output", "out"),
    "transfer": ("run", "--to", "centipede-4", "--episodes", "1", "--output", "out"),
    "report": ("run", "--output", "out", "--title", "x"),
    "inspect": ("centipede-3", "--steps", "5", "--output", "out"),
    "video": ("run", "--output", "out", "--steps", "5", "--width", "64", "--height", "64"),
    "play": ("run", "--speed", "1"),
    "bench": ("--agents", "centipede-3", "--seconds", "5"),
    "agents": (),
}
_FLAGS = (
    *(f"--{key.replace('_', '-')}" for key in keys_of(TrainConfig)),
    *("--config", "--run", "--model", "--to", "--episodes", "--output", "--json", "--checkpoint"),
    *("--mlp-transfer", "--reference", "--sibling-orders", "--steps", "--speed", "--stochastic", "--seconds"),
    *("--jobs", "--only", "--list", "--time-limit", "--returns", "--compare", "--from-scratch"),
    *("--reset-log-std", "--train", "--title", "--root-body", "--ray-address", "--help", "-h", "--", "-", "---"),
    *("--no-json", "--no-scale-returns", "--agent", "--x", "-x", "--=", "--seed=", "--seed=3", "--Seed"),
    *("--policy.hidden-size", "--env.n-envs", "--n_envs", "--class", "--version"),
)
_VALUES = (
    *("", " ", "0", "1", "2", "3", "-1", "1.5", "1e1", "1e400", "nan", "inf", "-inf", "1_0", "0x10", "１２", "²"),
    *("9" * 25, "9" * 5000, "true", "True", "None", "null", "[]", "{}", "a", "ä", "日本", "😀", "\u202e", "a b"),
    *("a\nb", "\x1b[31m", "x" * 300, "x" * 5000, "%s", "{0}", "run", "run/", "./run", "out", ".", ".."),
    *("run/config.yaml", "run/checkpoints", "nowhere", "/dev/null", "/dev/null/x", "/proc/x", "centipede-3"),
    *("centipede-4", "centipede-0", "centipede-1", "centipede--1", "centipede-2.5", "centipede-x", "Centipede-3"),
    *("ant+mass=0", "centipede-3+mass=1.5", "centipede-3+mass=-1", "centipede-3+mass=nan"),
    *("centipede-3+remove=99", "centipede-3+x=1", "centipede-3+", "+mass=1", "centipede-3+vary=2+seed=1"),
    *("centipede-3+limb=1e9", "centipede-3+mass=1+mass=2", "centipede-3-crippled-9", "set:centipedes/train"),
    *("set:", "set:x/y", "set:centipedes", "set:centipedes/x", "set:/train", "pretrained:", "pretrained:x"),
    *("pretrained:centipede-6", "pretrained:../x", "snowflake", "mlp", "nervenet", "official", "demo", "demoo"),
    *("methods", "best", "last", "32", "64", "encoder", "all", "cpu", "cuda", "cuda:0", "tpu", "robot.xml"),
    *("~/robot.xml", "~nobody/x.xml", "a,b", "-", "--", "'", '"', "\\", "*", "$HOME", "file:///x"),
)
_PATHS = ("--run", "--output")
"""Flags that make folders: only these values, which lie in the case's folders or where nothing can be made."""
_PLACES = (
    *("out", "run", "run/out", "a/b/c", "", ".", "out.mp4", "x" * 300, "o\nut", "ö u", "/dev/null/x", "/proc/x"),
    *("run/config.yaml", "-x", "~"),
)


def make(rng: random.Random, place: Place) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Make a damaged command line beside a valid run; see `benchmarks.fuzzing.case.Maker`."""
    shutil.copytree(place.templates / rng.choice(("graph", "mlp", "two")), place.here / "run")
    if rng.random() < 0.05:
        argv = [rng.choice((*COMMANDS, *_FLAGS, *_VALUES)) for _ in range(rng.randrange(4))]
        return tuple(argv), "any words", _anywhere()
    command = rng.choice(list(_VALID))
    words = [command, *_VALID[command]]
    stories = [_damage(words, rng) for _ in range(rng.choice((1, 1, 2, 3, 6)))]
    if words[0] in ("resume", "evaluate", "transfer") and "--output" not in words:
        stories.append("writes into the run")
    return tuple(words), "; ".join(stories), _anywhere()


def _anywhere() -> tuple[str, ...]:
    return ("out", "runs", "run", "a", "out.mp4", "x" * 300, "o\nut", "ö u", "-x", "~")


def _damage(words: list[str], rng: random.Random) -> str:
    """Change one thing in a command line, in place; returns what."""
    way, at = rng.randrange(8), rng.randrange(1, len(words) + 1)
    value = rng.choice(_VALUES)
    if way <= 1:
        flag = rng.choice(_FLAGS)
        words[at:at] = [flag, rng.choice(_PLACES) if flag in _PATHS else value][: rng.choice((1, 2, 2))]
        return f"with {flag}"
    if way == 2:
        words.insert(at, value)
    elif at == len(words):
        words.append(rng.choice(_FLAGS[-20:]))
    elif way <= 5:
        before = words[at - 1]
        words[at] = rng.choice(_PLACES) if before in _PATHS else value
    elif way == 6:
        del words[at]
    else:
        other = rng.randrange(1, len(words))
        words[at], words[other] = words[other], words[at]
    _keep_in_place(words, rng)
    return f"word {at}"


def _keep_in_place(words: list[str], rng: random.Random) -> None:
    """Put a harmless folder behind every flag that makes one."""
    for i, word in enumerate(words[:-1]):
        if word in _PATHS and words[i + 1] not in _PLACES and not words[i + 1].startswith("--"):
            words[i + 1] = rng.choice(_PLACES)
