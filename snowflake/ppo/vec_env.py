"""Thin Stable-Baselines3 ``VecEnv`` over the batched Gymnasium environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

import envs

_EMPTY: dict[str, Any] = {}


@dataclass(frozen=True)
class StepBatch:
    """One step of all environments.

    ``obs`` ``(N, D)`` float32 is the observation to act on next (after a reset where an episode ended);
    ``final_obs`` ``(N, D)`` or None holds the last observation of each ended episode in its row.
    """

    obs: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_obs: np.ndarray | None
    terms: dict[str, np.ndarray]
    unstable: np.ndarray
    episodes: list[tuple[int, dict[str, Any]]]

    @property
    def dones(self) -> np.ndarray:
        """``(N,)`` bool."""
        return self.terminated | self.truncated


class LocomotionVecEnv(VecEnv):
    """Adapter that speaks SB3's ``VecEnv`` and, for our training loop, plain arrays (:meth:`step_batch`).

    It also plays the part of SB3's ``Monitor``: returns, lengths and reward terms of running episodes.

    Args:
        env: batched environment of one or several bodies (:func:`envs.make_vector_env`).
    """

    def __init__(self, env: envs.LocomotionVectorEnv | envs.MultiBodyVectorEnv) -> None:
        self.vector_env = env
        self.body_names = tuple(e.morphology.name for e in env.body_envs)
        self.body_of_env: np.ndarray = np.asarray(env.body_of_env)
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.render_mode = None
        self._seed: int | None = None
        self._actions = np.zeros((env.num_envs, *(env.single_action_space.shape or ())), np.float32)
        self._clear()

    def _clear(self) -> None:
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._term_sums: dict[str, np.ndarray] = {}

    # --- arrays -------------------------------------------------------------------------------------------------

    def step_batch(self, actions: np.ndarray) -> StepBatch:
        """Step all environments with ``actions`` ``(N, A)`` as sampled (the environment clips what reaches ctrl)."""
        obs, rewards, terminated, truncated, infos = self.vector_env.step(actions)
        terms = {k: v for k, v in infos.items() if k.startswith("reward_")}
        self._returns += rewards
        self._lengths += 1
        for name, values in terms.items():
            self._term_sums[name] = self._term_sums.get(name, 0.0) + values
        dones = terminated | truncated
        episodes = [(int(i), self._finish(int(i), infos)) for i in np.flatnonzero(dones)] if dones.any() else []
        return StepBatch(
            obs, rewards, terminated, truncated, infos.get("final_obs"), terms, infos["unstable"], episodes
        )

    def _finish(self, i: int, infos: dict[str, Any]) -> dict[str, Any]:
        """SB3's ``info`` of an ended episode, and a clean slate for the next."""
        info = {
            "episode": {
                "r": round(float(self._returns[i]), 6),
                "l": int(self._lengths[i]),
            },
            "episode_terms": {name: float(sums[i]) for name, sums in self._term_sums.items()},
            "termination_reason": str(infos["termination_reason"][i]),
            "body": self.body_names[self.body_of_env[i]],
        }
        self._returns[i] = 0.0
        self._lengths[i] = 0
        for sums in self._term_sums.values():
            sums[i] = 0.0
        return info

    # --- SB3's interface ----------------------------------------------------------------------------------------

    def reset(self) -> np.ndarray:
        self._clear()
        obs, _ = self.vector_env.reset(seed=self._seed)
        self._seed = None
        return obs

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        self._seed = seed
        return [None if seed is None else seed + i for i in range(self.num_envs)]

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        batch = self.step_batch(self._actions)
        return batch.obs, batch.rewards.astype(np.float32), batch.dones, self.sb3_infos(batch)

    def sb3_infos(self, batch: StepBatch) -> list[dict[str, Any]]:
        """The list of ``info`` dicts that SB3 expects; empty ones (shared) where no episode ended."""
        infos: list[dict[str, Any]] = [_EMPTY] * self.num_envs
        for i, info in batch.episodes:
            assert batch.final_obs is not None
            infos[i] = info | {
                "terminal_observation": batch.final_obs[i],
                "TimeLimit.truncated": bool(batch.truncated[i] and not batch.terminated[i]),
            }
        return infos

    def close(self) -> None:
        self.vector_env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self._body_env(i), attr_name) for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("the environments of a batch share their attributes; build a new environment instead")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return [getattr(self._body_env(i), method_name)(*args, **kwargs) for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]

    def _body_env(self, index: int) -> envs.LocomotionVectorEnv:
        return self.vector_env.body_envs[self.body_of_env[index]]

    # --- exact state --------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """State of physics, tasks, generators and running episodes (see ``LocomotionVectorEnv.get_state``)."""
        state = {f"env/{k}": v for k, v in self.vector_env.get_state().items()}
        state |= {"episode/returns": self._returns.copy(), "episode/lengths": self._lengths.copy()}
        state |= {f"episode/terms/{k}": np.array(v) for k, v in self._term_sums.items()}
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue exactly from :meth:`get_state`."""
        self._seed = None  # a seed that waits for the next reset would undo the generators' states
        self.vector_env.set_state({k[4:]: v for k, v in state.items() if k.startswith("env/")})
        self._returns = np.array(state["episode/returns"])
        self._lengths = np.array(state["episode/lengths"])
        prefix = "episode/terms/"
        self._term_sums = {k[len(prefix) :]: np.array(v) for k, v in state.items() if k.startswith(prefix)}
