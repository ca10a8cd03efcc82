"""Several bodies behind one vector interface: the rows of each body's environments, padded to the widest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

import agents
from agents import Morphology
from agents.errors import UserError
from envs.tasks.options import TaskOptions
from envs.vector_env import LocomotionVectorEnv


class MultiBodyVectorEnv(gymnasium.vector.VectorEnv):
    """The environments of several bodies, one body's after the other's.

    Spaces are the largest body's. An observation row is the body's own, zeros up to the widest, and, with more than one
    body, the body's index in the last column. Of an action row the body's first columns count. Infos and the ends of
    episodes are as in `LocomotionVectorEnv`; `final_obs` rows are padded like observations.

    Attributes:
        body_envs: the parts, by body.
        body_of_env: index into `body_envs` of every environment, for life. (N,) int64

    Args:
        body_envs: one batched environment a body. They are closed with this one.

    Raises:
        UserError: there are none.
    """

    def __init__(self, body_envs: Sequence[LocomotionVectorEnv]) -> None:
        if not body_envs:
            raise UserError("no bodies: name at least one")
        self.body_envs = tuple(body_envs)
        counts = [env.num_envs for env in self.body_envs]
        self.num_envs = sum(counts)
        self.body_of_env = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        ends = np.cumsum(counts)
        self._rows = tuple(slice(int(end - count), int(end)) for end, count in zip(ends, counts, strict=True))
        self._width = max(env.layout.size for env in self.body_envs)
        self._columns = self._width + (len(counts) > 1)
        box = gymnasium.spaces.Box
        self.single_observation_space = box(-np.inf, np.inf, (self._columns,), np.float32)
        self.single_action_space = box(-1.0, 1.0, (max(len(env.robot.controls) for env in self.body_envs),), np.float32)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, self.num_envs)
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a new episode everywhere; environment i of an int seed takes `seed + i`, whatever its body.

        Args:
            seed: int, one seed an environment, or `None`.
            options: not used.

        Returns:
            Observations (N, D) float32, and an empty dict.
        """
        if isinstance(seed, (int, np.integer)):
            seed = [seed + i for i in range(self.num_envs)]
        if seed is not None and len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds for {self.num_envs} environments")
        parts = [
            env.reset(seed=None if seed is None else seed[rows], options=options)[0]
            for env, rows in zip(self.body_envs, self._rows, strict=True)
        ]
        return self._padded(parts), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance by one control step; see `LocomotionVectorEnv.step`.

        Args:
            actions: (N, A of the body with most controls).
        """
        results = [
            env.step(actions[rows, : len(env.robot.controls)])
            for env, rows in zip(self.body_envs, self._rows, strict=True)
        ]
        observations, rewards, terminated, truncated, infos = zip(*results, strict=True)
        return (
            self._padded(observations),
            np.concatenate(rewards),
            np.concatenate(terminated),
            np.concatenate(truncated),
            self._merged(infos),
        )

    def _padded(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        rows = np.zeros((self.num_envs, self._columns), dtype=np.float32)
        for part, where in zip(parts, self._rows, strict=True):
            rows[where, : part.shape[1]] = part
        if self._columns > self._width:
            rows[:, -1] = self.body_of_env
        return rows

    def _merged(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Concatenate the arrays of the bodies; what a body lacks in this step (no episode ended) is filled up."""
        merged: dict[str, Any] = {}
        for key in dict.fromkeys(key for info in infos for key in info):
            if key == "final_info":
                merged[key] = self._merged([info.get(key, {}) for info in infos])
            elif key == "final_obs":
                merged[key] = self._padded([
                    info.get(key, np.zeros((env.num_envs, env.layout.size), dtype=np.float32))
                    for info, env in zip(infos, self.body_envs, strict=True)
                ])  # fmt: skip
            else:
                merged[key] = self._concatenated(key, infos)
        return merged

    def _concatenated(self, key: str, infos: Sequence[dict[str, Any]]) -> np.ndarray:
        like = next(info[key] for info in infos if key in info)
        blank = "" if like.dtype == object else 0
        return np.concatenate([
            info.get(key, np.full(env.num_envs, blank, dtype=like.dtype))
            for info, env in zip(infos, self.body_envs, strict=True)
        ])  # fmt: skip

    def get_state(self) -> dict[str, Any]:
        """Return everything that the next steps depend on; keys of body k are `"k/..."`, and `rng` is a list of N."""
        states = [env.get_state() for env in self.body_envs]
        flat = {f"{k}/{key}": value for k, state in enumerate(states) for key, value in state.items() if key != "rng"}
        return {**flat, "rng": [value for state in states for value in state["rng"]]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Put back what `get_state` of an environment with the same bodies and numbers returned."""
        for k, (env, rows) in enumerate(zip(self.body_envs, self._rows, strict=True)):
            prefix = f"{k}/"
            part = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
            env.set_state({**part, "rng": state["rng"][rows]})

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments of every body."""
        for env in self.body_envs:
            env.close()


def split_environments(num_envs: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Return how many of the environments each body gets: its share by weight, by the method of largest remainders.

    A body gets the whole part of its share; those that are left go one each to the largest remainders, the earlier
    body first where two are equal. A body whose share is less than one environment gets one, and the others share the
    rest by their weights in the same way.

    Args:
        num_envs: environments in all.
        weights: one positive number a body.

    Raises:
        UserError: fewer environments than bodies, or a weight that is not positive and finite.
    """
    if num_envs < len(weights):
        raise UserError(f"{num_envs} environments for {len(weights)} bodies: at least one each is needed")
    if not all(0 < weight < math.inf for weight in weights):
        raise UserError(f"body weights {', '.join(map(str, weights))}: each must be a positive number")
    exact = [Fraction(float(weight)) for weight in weights]  # no rounding: the split is the same on every machine
    rest = list(range(len(weights)))
    while True:
        left, total = num_envs - (len(weights) - len(rest)), sum(exact[k] for k in rest)
        small = [k for k in rest if left * exact[k] < total]
        if not small:
            break
        rest = [k for k in rest if k not in small]
    shares = {k: left * exact[k] / total for k in rest}
    counts = [int(shares.get(k, Fraction(1))) for k in range(len(weights))]
    by_remainder = sorted(rest, key=lambda k: counts[k] - shares[k])
    for k in by_remainder[: num_envs - sum(counts)]:
        counts[k] += 1
    return tuple(counts)


def make_vector_env(
    bodies: Sequence[str | Morphology],
    num_envs: int,
    *,
    body_weights: Sequence[float] = (),
    max_episode_steps: int | None = 1000,
    num_threads: int = 0,
    task: str | None = None,
    task_options: TaskOptions | None = None,
    features: str = "auto",
    root_body: str | None = None,
) -> LocomotionVectorEnv | MultiBodyVectorEnv:
    """Return the batched environment of one body or of several.

    Args:
        bodies: morphologies or their names, different ones.
        num_envs: environments in all, split evenly; the first bodies take one more where it does not divide.
        body_weights: one number a body, by which they are split instead; see `split_environments`.
        max_episode_steps: see `LocomotionVectorEnv`.
        num_threads: see `LocomotionVectorEnv`.
        task: see `LocomotionVectorEnv`; the same for all bodies, each body's own if not given.
        task_options: see `LocomotionVectorEnv`; the same for all bodies.
        features: see `LocomotionVectorEnv`; `auto` stands for `paper` only where it does for all bodies.
        root_body: see `LocomotionVectorEnv`; for one body only.

    Raises:
        UserError: no body, an unknown one, one without a task, fewer environments than bodies, weights that do not
            fit the bodies, or a `root_body` for several bodies.
    """
    if not bodies:
        raise UserError("no bodies: name at least one")
    if body_weights and len(body_weights) != len(bodies):
        raise UserError(f"{len(body_weights)} body weights for {len(bodies)} bodies: give one a body")
    counts = split_environments(num_envs, body_weights or [1] * len(bodies))
    morphologies = [agents.load(body) if isinstance(body, str) else body for body in bodies]
    if root_body is not None and len(bodies) > 1:
        raise UserError(f"the root body {root_body!r} is given for {len(bodies)} bodies: it names a part of one")

    def make(k: int, features: str) -> LocomotionVectorEnv:
        return LocomotionVectorEnv(
            morphologies[k],
            counts[k],
            task=task,
            task_options=task_options,
            features=features,
            root_body=root_body,
            max_episode_steps=max_episode_steps,
            num_threads=num_threads,
        )

    parts = [make(k, features) for k in range(len(bodies))]
    if len({env.layout.feature_set for env in parts}) > 1:  # one policy reads one set, and all bodies have the general
        for env in parts:
            env.close()
        parts = [make(k, "general") for k in range(len(bodies))]
    return parts[0] if len(parts) == 1 else MultiBodyVectorEnv(parts)
