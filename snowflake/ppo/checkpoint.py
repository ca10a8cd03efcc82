"""Complete checkpoints: weights and arrays in safetensors, the rest in JSON. Reading one runs no code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import save as pack_arrays
from safetensors.torch import save as pack

from agents.errors import UserError
from snowflake.files import RECIPE_FILE, dump_json, new_folder, read_tensors
from snowflake.manifest import MANIFEST, damage, write_manifest
from snowflake.ppo.training_state import ADVICE, load_plain_state, plain_state, read_state

if TYPE_CHECKING:
    from snowflake.ppo.algorithm import SnowflakePPO


def save(algorithm: SnowflakePPO, folder: Path) -> None:
    """Write everything that training needs to go on exactly: networks, optimisers, counters, schedule position,
    generators, environments and running episodes. Call it between an update and the next rollout.

    Args:
        algorithm: the algorithm in training.
        folder: does not exist yet; it appears whole or not at all.
    """
    policy = algorithm.policy
    with new_folder(folder) as target:
        (target / "actor.safetensors").write_bytes(pack(_plain(policy.actor.state_dict())))
        (target / "critic.safetensors").write_bytes(pack(_plain(policy.critic.state_dict())))
        if policy.numerics is not None and (learned := policy.numerics.state()):
            (target / RECIPE_FILE).write_bytes(pack(_plain(learned)))
        optimisers = _optimiser_state("actor", policy.optimizer, policy.actor)
        optimisers |= _optimiser_state("critic", policy.critic_optimizer, policy.critic)
        (target / "optimizers.safetensors").write_bytes(pack(optimisers))
        generators = {
            "actions": algorithm.action_generator.get_state(),
            "minibatches": algorithm.minibatch_generator.get_state(),
            "torch": torch.get_rng_state(),
        }
        (target / "generators.safetensors").write_bytes(pack(generators))
        if algorithm.memory:
            (target / "memory.safetensors").write_bytes(pack(_plain(algorithm.memory)))
        arrays = {k: v for k, v in algorithm.env.get_state().items() if isinstance(v, np.ndarray)}
        arrays |= {
            "last_obs": np.asarray(algorithm._last_obs),
            "last_episode_starts": np.asarray(algorithm._last_episode_starts),
        }
        packed = pack_arrays({k: np.ascontiguousarray(v) for k, v in arrays.items()})
        (target / "environments.safetensors").write_bytes(packed)
        (target / "state.json").write_text(dump_json(plain_state(algorithm)))
        write_manifest(target)


def restore(algorithm: SnowflakePPO, folder: Path) -> None:
    """Bring a freshly built algorithm to the state of the checkpoint in ``folder``.

    Raises:
        UserError: the checkpoint is of another format, incomplete, or of another body or method.
    """
    state = read_state(folder / "state.json")
    wrong = damage(folder)
    if wrong is None and state["format_version"].count() > 1 and not (folder / MANIFEST).exists():
        wrong = f"{MANIFEST} is missing"
    if wrong:
        raise UserError(f"checkpoint {folder} is damaged: {wrong}; {ADVICE}")
    policy = algorithm.policy
    policy.load_actor(read_tensors(folder / "actor.safetensors"))
    policy.load_critic(read_tensors(folder / "critic.safetensors"))
    policy.load_recipe_state(folder)
    optimisers = read_tensors(folder / "optimizers.safetensors")
    generators = read_tensors(folder / "generators.safetensors")
    arrays = {k: v.numpy() for k, v in read_tensors(folder / "environments.safetensors").items()}
    if policy.has_memory:
        algorithm.memory = _read_memory(policy.initial_state(algorithm.n_envs), folder)
    try:
        _load_optimiser("actor", policy.optimizer, policy.actor, optimisers)
        _load_optimiser("critic", policy.critic_optimizer, policy.critic, optimisers)
        if optimisers:
            raise ValueError(f"optimizers.safetensors has {next(iter(optimisers))}, which no optimiser here knows")
        algorithm.action_generator.set_state(generators["actions"])
        algorithm.minibatch_generator.set_state(generators["minibatches"])
        torch.set_rng_state(generators["torch"])
        n = algorithm.env.num_envs
        like = np.zeros((n, *(algorithm.observation_space.shape or ())), np.float32)
        algorithm._last_obs = _checked("last_obs", arrays.pop("last_obs"), like)
        starts = _checked("last_episode_starts", arrays.pop("last_episode_starts"), np.ones(n, bool))
        algorithm._last_episode_starts = starts
        algorithm.env.set_state(_checked_arrays(arrays, algorithm.env.get_state()) | load_plain_state(algorithm, state))
    except UserError:
        raise
    except (KeyError, ValueError, TypeError, IndexError, RuntimeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"checkpoint {folder} does not fit the run's config.yaml, or is damaged: {reason}") from error


def _checked_arrays(arrays: dict[str, np.ndarray], like: dict[str, Any]) -> dict[str, np.ndarray]:
    """Require of the environments' arrays the names, shapes and types that these environments have."""
    like = {k: v for k, v in like.items() if isinstance(v, np.ndarray)}
    terms = next(v for k, v in like.items() if k == "episode/returns")  # a sum per reward term, once a step was taken
    like |= {k: terms for k in arrays if k.startswith("episode/terms/")}
    if missing := like.keys() - arrays.keys() | arrays.keys() - like.keys():
        raise ValueError(f"environments.safetensors and these environments differ in {min(missing)}")
    return {name: _checked(name, array, like[name]) for name, array in arrays.items()}


def _checked(name: str, array: np.ndarray, like: np.ndarray) -> np.ndarray:
    if array.shape != like.shape or array.dtype != like.dtype:
        raise ValueError(f"{name} is {array.dtype} {array.shape}, these environments have {like.dtype} {like.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} is not finite")
    return array


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
    """Take the state of an optimiser out of ``stored``."""
    names = _named(module)
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            start = f"{prefix}/{names[parameter]}/"
            slots = {k.removeprefix(start): stored.pop(k).clone() for k in [*stored] if k.startswith(start)}
            if not slots:
                continue
            if missing := {"step", "exp_avg", "exp_avg_sq"} - slots.keys():
                raise ValueError(f"optimizers.safetensors lacks {start}{min(missing)}")
            for key, value in slots.items():
                shape = torch.Size() if key == "step" else parameter.shape
                if key not in ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq") or value.shape != shape:
                    raise ValueError(f"optimizers.safetensors: {start}{key} {tuple(value.shape)} fits no parameter")
            # Adam in one kernel counts steps on the device, other forms of it on the CPU.
            stay = () if group.get("fused") else ("step",)
            device = parameter.device
            optimiser.state[parameter] = {k: v if k in stay else v.to(device) for k, v in slots.items()}
