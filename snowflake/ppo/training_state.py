"""The part of a checkpoint that is plain data: counters, running statistics, random generators; read strictly."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.errors import UserError
from snowflake.json_files import Entry, read_entry

if TYPE_CHECKING:
    from snowflake.ppo.algorithm import SnowflakePPO

FORMAT_VERSION = 2
"""2 added the manifest of checksums and ``skipped_updates``; 1 is still read."""
ADVICE = "resume goes on from the checkpoint before it once this one's folder is moved away"
_MT_WORDS, _WORD = 624, 2**32


def plain_state(algorithm: SnowflakePPO) -> dict[str, Any]:
    """What :func:`load_plain_state` restores, as JSON holds it."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "format_version": FORMAT_VERSION,
        "num_timesteps": algorithm.num_timesteps,
        "total_timesteps": algorithm._total_timesteps,
        "n_updates": algorithm._n_updates,
        "iteration": algorithm.iteration,
        "unstable_resets": algorithm.unstable_resets,
        "skipped_updates": algorithm.skipped_updates,
        "skipped_steps": 0 if algorithm.policy.numerics is None else algorithm.policy.numerics.skipped_steps,
        "critic_warmup_left": algorithm.critic_warmup_left,
        "milestones": algorithm.milestones,
        "episodes": list(algorithm.ep_info_buffer or ()),
        "body_episodes": {name: list(episodes) for name, episodes in algorithm.body_episodes.items()},
        "return_scaler": algorithm.return_scaler.state() if algorithm.return_scaler else None,
        "env": {k: v for k, v in algorithm.env.get_state().items() if not isinstance(v, np.ndarray)},
        "python_random": [version, list(internal), gauss],
        "numpy_random": [name, np.asarray(keys).tolist(), position, has_gauss, cached],
    }


def read_state(file: Path) -> Entry:
    """Read the file and require that this version knows its format, and that it is of the step its folder names.

    Raises:
        UserError: it is missing, damaged, of another format or step.
    """
    state = read_entry(file, ADVICE)
    version = state["format_version"].count()
    step, found = int(file.parent.name.removeprefix("step_")), state.get("num_timesteps")
    if found is None or found.value != step:
        held = None if found is None else found.value
        raise UserError(f"checkpoint {file.parent} holds step {held} ({file.name}), not {step}: was it copied?")
    if not 1 <= version <= FORMAT_VERSION:
        raise UserError(
            f"checkpoint {file.parent} has format {version} ({file.name}); this version reads 1 to {FORMAT_VERSION}: "
            "use the version that wrote it (versions.json)"
        )
    return state


def load_plain_state(algorithm: SnowflakePPO, state: Entry) -> dict[str, Any]:
    """Set everything but the environments, whose part is checked and returned.

    Raises:
        UserError: a value is of another type, length or range than the algorithm has it.
    """
    algorithm.num_timesteps = state["num_timesteps"].count()
    algorithm._n_updates = state["n_updates"].count()
    algorithm.iteration = state["iteration"].count()
    algorithm.unstable_resets = state["unstable_resets"].count()
    algorithm.skipped_updates = _optional_count(state, "skipped_updates")  # absent in format 1
    if algorithm.policy.numerics is not None:
        algorithm.policy.numerics.skipped_steps = _optional_count(state, "skipped_steps")  # absent before recipes
    algorithm.critic_warmup_left = _optional_count(state, "critic_warmup_left")  # absent before finetune existed
    algorithm.milestones = {name: entry.number() for name, entry in state["milestones"].entries().items()}
    window = algorithm._stats_window_size
    episodes = [{"r": e["r"].number(), "l": e["l"].count()} for e in state["episodes"]]
    algorithm.ep_info_buffer, algorithm.ep_success_buffer = deque(episodes, maxlen=window), deque(maxlen=window)
    bodies = state["body_episodes"]
    if bodies.object().keys() != algorithm.body_episodes.keys():
        raise bodies.error(f"'body_episodes' has {list(bodies.object())}, the run has {list(algorithm.body_episodes)}")
    for name, entries in bodies.entries().items():
        pairs = [entry.parts(2) for entry in entries]
        algorithm.body_episodes[name] = deque(((r.number(), n.count()) for r, n in pairs), maxlen=window)
    _load_return_scaler(algorithm, state["return_scaler"])
    _load_generators(state)
    return {"env/rng": _env_generators(state["env"]["env/rng"], algorithm.env.num_envs)}


def _optional_count(state: Entry, key: str) -> int:
    found = state.get(key)
    return 0 if found is None else found.count()


def _load_return_scaler(algorithm: SnowflakePPO, entry: Entry) -> None:
    scaler = algorithm.return_scaler
    if entry.is_null != (scaler is None):
        raise entry.error(f"'return_scaler' is {'absent' if entry.is_null else 'there'}, config.yaml says otherwise")
    if scaler is None:
        return
    discounted = entry["discounted"].numbers()
    if discounted.shape != scaler.discounted.shape or entry["m2"].number() < 0.0:
        raise entry.error("'return_scaler' is not that of these environments")
    scaler.load({"discounted": discounted, **{key: entry[key].number() for key in ("mean", "m2", "count")}})


def _load_generators(state: Entry) -> None:
    """Set the generators of Python and NumPy, Mersenne twisters both."""
    version, words, gauss = state["python_random"].parts(3)
    *internal, position = _whole(words, _MT_WORDS + 1, _WORD)
    if version.count() != 3 or position > _MT_WORDS:
        raise words.error(f"{words.where!r} is no state of Python's generator")
    random.setstate((3, (*internal, position), None if gauss.is_null else gauss.number()))
    name, keys, place, has_gauss, cached = state["numpy_random"].parts(5)
    if name.text() != "MT19937":
        raise name.error(f"{name.where!r} must be MT19937")
    drawn = np.array(_whole(keys, _MT_WORDS, _WORD), np.uint32)
    np.random.set_state((name.text(), drawn, place.count(_MT_WORDS), has_gauss.count(1), cached.number()))


def _whole(entry: Entry, length: int, below: int) -> list[int]:
    values = [part.count(below - 1) for part in entry]
    if len(values) != length:
        raise entry.error(f"{entry.where!r} must have {length} numbers, it has {len(values)}")
    return values


def _env_generators(entry: Entry, count: int) -> list[dict[str, Any]]:
    """Check the states of NumPy's PCG64 (128 bits of state, an odd increment), one an environment."""
    states = list(entry)
    if len(states) != count:
        raise UserError(
            f"checkpoint {entry.file.parent} does not fit the run's config.yaml: {len(states)} environments in "
            f"{entry.file.name}, {count} asked for"
        )
    for state in states:
        if state["bit_generator"].text() != "PCG64":
            raise state.error(f"'{state.where}.bit_generator' must be PCG64")
        state["state"]["state"].count(2**128 - 1)
        if state["state"]["inc"].count(2**128 - 1) % 2 == 0:
            raise state.error(f"'{state.where}.state.inc' must be odd")
        state["has_uint32"].count(1)
        state["uinteger"].count(_WORD - 1)
    return [state.object() for state in states]
