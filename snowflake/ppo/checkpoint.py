"""Complete checkpoints: weights and arrays in safetensors, the rest in JSON. Reading one runs no code."""

from __future__ import annotations

import json
import random
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file

from agents.errors import UserError
from snowflake.files import RECIPE_FILE, dump_json, new_folder, read_tensors

if TYPE_CHECKING:
    from snowflake.ppo.algorithm import SnowflakePPO

FORMAT_VERSION = 1


def save(algorithm: SnowflakePPO, folder: Path) -> None:
    """Write everything that training needs to go on exactly: networks, optimisers, counters, schedule position,
    generators, environments and running episodes. Call it between an update and the next rollout.

    Args:
        algorithm: the algorithm in training.
        folder: does not exist yet; it appears whole or not at all.
    """
    policy = algorithm.policy
    with new_folder(folder) as target:
        save_file(_plain(policy.actor.state_dict()), target / "actor.safetensors")
        save_file(_plain(policy.critic.state_dict()), target / "critic.safetensors")
        if policy.numerics is not None and (learned := policy.numerics.state()):
            save_file(_plain(learned), target / RECIPE_FILE)
        optimisers = _optimiser_state("actor", policy.optimizer, policy.actor)
        optimisers |= _optimiser_state("critic", policy.critic_optimizer, policy.critic)
        save_file(optimisers, target / "optimizers.safetensors")
        generators = {
            "actions": algorithm.action_generator.get_state(),
            "minibatches": algorithm.minibatch_generator.get_state(),
            "torch": torch.get_rng_state(),
        }
        save_file(generators, target / "generators.safetensors")
        if algorithm.memory:
            save_file(_plain(algorithm.memory), target / "memory.safetensors")
        arrays = {k: v for k, v in algorithm.env.get_state().items() if isinstance(v, np.ndarray)}
        arrays |= {
            "last_obs": np.asarray(algorithm._last_obs),
            "last_episode_starts": np.asarray(algorithm._last_episode_starts),
        }
        save_arrays({k: np.ascontiguousarray(v) for k, v in arrays.items()}, target / "environments.safetensors")
        (target / "state.json").write_text(dump_json(_plain_state(algorithm)))


def restore(algorithm: SnowflakePPO, folder: Path) -> None:
    """Bring a freshly built algorithm to the state of the checkpoint in ``folder``.

    Raises:
        UserError: the checkpoint is of another format, incomplete, or of another body or method.
    """
    state = _read_state(folder / "state.json")
    policy = algorithm.policy
    policy.load_actor(read_tensors(folder / "actor.safetensors"))
    policy.load_critic(read_tensors(folder / "critic.safetensors"))
    policy.load_recipe_state(folder)
    optimisers = read_tensors(folder / "optimizers.safetensors")
    _load_optimiser("actor", policy.optimizer, policy.actor, optimisers)
    _load_optimiser("critic", policy.critic_optimizer, policy.critic, optimisers)
    generators = read_tensors(folder / "generators.safetensors")
    arrays = {k: v.numpy() for k, v in read_tensors(folder / "environments.safetensors").items()}
    if policy.has_memory:
        algorithm.memory = _read_memory(policy.initial_state(algorithm.n_envs), folder)
    algorithm.action_generator.set_state(generators["actions"])
    algorithm.minibatch_generator.set_state(generators["minibatches"])
    torch.set_rng_state(generators["torch"])
    try:
        algorithm._last_obs = arrays.pop("last_obs")
        algorithm._last_episode_starts = arrays.pop("last_episode_starts")
        algorithm.env.set_state(arrays | state["env"])
        _load_plain_state(algorithm, state)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"checkpoint {folder} does not fit the run's config.yaml, or is damaged: {reason}") from error


def _read_state(file: Path) -> dict[str, Any]:
    try:
        state = json.loads(file.read_text())
        version = state["format_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is missing or damaged: {' '.join(str(error).split())[:200]}") from error
    step = int(file.parent.name.removeprefix("step_"))
    if state.get("num_timesteps") != step:
        raise UserError(f"checkpoint {file.parent} holds step {state.get('num_timesteps')}, not {step}: was it copied?")
    if version != FORMAT_VERSION:
        raise UserError(f"checkpoint {file.parent} has format {version}; this version reads {FORMAT_VERSION}")
    return state


def _read_memory(empty: dict[str, torch.Tensor], folder: Path) -> dict[str, torch.Tensor]:
    """The memory of a checkpoint, of the names, shapes and types of an empty one."""
    stored = read_tensors(folder / "memory.safetensors")
    if {k: (v.shape, v.dtype) for k, v in stored.items()} != {k: (v.shape, v.dtype) for k, v in empty.items()}:
        raise UserError(f"checkpoint {folder} does not fit the run's config.yaml: its memory has another form")
    return {name: stored[name].to(tensor.device) for name, tensor in empty.items()}


def _plain(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k: v.detach().cpu().contiguous() for k, v in tensors.items()}


def _named(module: torch.nn.Module) -> dict[torch.Tensor, str]:
    return {parameter: name for name, parameter in module.named_parameters()}


def _optimiser_state(prefix: str, optimiser: torch.optim.Optimizer, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Adam's moments and step counts under the names of the parameters they belong to."""
    names = _named(module)
    return _plain(
        {
            f"{prefix}/{names[parameter]}/{key}": value
            for parameter, slots in optimiser.state.items()
            for key, value in slots.items()
        }
    )


def _load_optimiser(
    prefix: str, optimiser: torch.optim.Optimizer, module: torch.nn.Module, stored: dict[str, torch.Tensor]
) -> None:
    names = _named(module)
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            start = f"{prefix}/{names[parameter]}/"
            slots = {k.removeprefix(start): v.clone() for k, v in stored.items() if k.startswith(start)}
            if slots:
                # Adam in one kernel counts steps on the device, other forms of it on the CPU.
                stay = () if group.get("fused") else ("step",)
                device = parameter.device
                optimiser.state[parameter] = {k: v if k in stay else v.to(device) for k, v in slots.items()}


def _plain_state(algorithm: SnowflakePPO) -> dict[str, Any]:
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "format_version": FORMAT_VERSION,
        "num_timesteps": algorithm.num_timesteps,
        "total_timesteps": algorithm._total_timesteps,
        "n_updates": algorithm._n_updates,
        "iteration": algorithm.iteration,
        "unstable_resets": algorithm.unstable_resets,
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


def _load_plain_state(algorithm: SnowflakePPO, state: dict[str, Any]) -> None:
    algorithm.num_timesteps = state["num_timesteps"]
    algorithm._n_updates = state["n_updates"]
    algorithm.iteration = state["iteration"]
    algorithm.unstable_resets = state["unstable_resets"]
    if algorithm.policy.numerics is not None:
        algorithm.policy.numerics.skipped_steps = state.get("skipped_steps", 0)  # absent from earlier checkpoints
    algorithm.critic_warmup_left = state.get("critic_warmup_left", 0)  # absent before finetune existed
    algorithm.milestones = state["milestones"]
    window = algorithm._stats_window_size
    algorithm.ep_info_buffer = deque(state["episodes"], maxlen=window)
    algorithm.ep_success_buffer = deque(maxlen=window)
    for name, episodes in state["body_episodes"].items():
        algorithm.body_episodes[name] = deque((tuple(e) for e in episodes), maxlen=window)
    if algorithm.return_scaler is not None:
        algorithm.return_scaler.load(state["return_scaler"])
    version, internal, gauss = state["python_random"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy_random"]
    np.random.set_state((name, np.array(keys, np.uint32), position, has_gauss, cached))
