"""Run a controller for one episode per start state, and measure each episode.

Every environment plays one episode and what it does afterwards is not looked at, so that bodies that fall early do
not fill the sample with short episodes (the bias of counting "the first n episodes to end").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from agents import Morphology
from envs import LocomotionVectorEnv

MAX_ENVS = 64
"""Environments held at a time; more episodes are run in turn."""

GRAVITY = 9.81
"""Standard gravity of the cost of transport, m/s^2."""

MIN_TRANSPORT = 0.1
"""Distance in metres below which an episode has no cost of transport."""


class Controller(Protocol):
    """Anything that maps observations (N, D) float32 to actions (N, A).

    N stays the same during a batch of episodes; rows whose episode has ended hold its last observation. A controller
    with memory also has a method ``begin()``, called before the first action of each batch.
    """

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Return the actions (N, A) for the observations (N, D)."""
        ...


@dataclass(frozen=True)
class EpisodeBatch:
    """One entry per episode; every array is ``(episodes,)``.

    Attributes:
        seeds: int64, seed of the start state.
        returns: float64, undiscounted sum of rewards.
        lengths: int64, control steps.
        distance: float64, forward distance [m], negative when the body went backward.
        speed: float64, mean forward speed [m/s].
        fell: bool, the episode was terminated before the time limit (by a fall or unstable physics).
        energy: float64, mechanical work of the actuators, absolute [J].
        cost_of_transport: float64, energy / (mass x 9.81 m/s^2 x |distance|); NaN below 0.1 m.
        unstable: bool, terminated by unstable physics.
    """

    seeds: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    distance: np.ndarray
    speed: np.ndarray
    fell: np.ndarray
    energy: np.ndarray
    cost_of_transport: np.ndarray
    unstable: np.ndarray

    def __len__(self) -> int:
        return len(self.returns)

    @property
    def steps(self) -> int:
        """Control steps of all episodes together."""
        return int(self.lengths.sum())

    def to_dict(self) -> dict[str, list[Any]]:
        """Lists of plain numbers for JSON, with None in place of NaN."""
        lists = {f.name: getattr(self, f.name).tolist() for f in fields(self)}
        return {name: [None if isinstance(v, float) and math.isnan(v) else v for v in x] for name, x in lists.items()}

    @classmethod
    def concatenate(cls, batches: list[EpisodeBatch]) -> EpisodeBatch:
        """Join batches in order."""
        return cls(**{f.name: np.concatenate([getattr(b, f.name) for b in batches]) for f in fields(cls)})


Watch = Callable[[np.ndarray, np.ndarray], None]
"""Called after each control step's actions with the rows of the controller's batch whose episode is going on, and the
number of each row's episode, both (live,) int64."""

Progress = Callable[[int, int], None]
"""Called after each control step with the step of this batch and the number of episodes that have ended so far."""


def evaluate(
    controller: Controller,
    morphology: Morphology | str,
    *,
    episodes: int,
    seed: int,
    max_episode_steps: int = 1000,
    num_threads: int = 0,
    progress: Progress | None = None,
    make_env: Callable[[int], Any] | None = None,
    watch: Watch | None = None,
) -> EpisodeBatch:
    """Play ``episodes`` episodes of a body, one from each start state of the seeds ``seed``, ``seed + 1``, ...

    Controllers evaluated with one seed share their start states, so their episodes can be compared in pairs.

    Args:
        controller: Maps observations (N, D) to actions (N, A).
        morphology: The body, or its name.
        episodes: Number of episodes; at most 64 run at a time.
        seed: Seed of the first start state.
        max_episode_steps: Time limit in control steps.
        num_threads: Physics threads; 0 takes every core.
        progress: Called after each control step.
        make_env: Builds the batched environment from a number of environments; a ``LocomotionVectorEnv`` of the body
            by default.
        watch: Called once the controller has given its actions for a step.

    Raises:
        UserError: The body is unknown or has no task.
        ValueError: ``episodes`` is not positive.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")

    def default_env(num_envs: int) -> LocomotionVectorEnv:
        return LocomotionVectorEnv(morphology, num_envs, max_episode_steps=max_episode_steps, num_threads=num_threads)

    batches: list[EpisodeBatch] = []
    for first in range(0, episodes, MAX_ENVS):
        seeds = seed + np.arange(first, min(first + MAX_ENVS, episodes))
        told = (lambda step, ended, done=first: progress(step, done + ended)) if progress else None
        seen = (lambda live, done=first: watch(live, done + live)) if watch else None
        batches.append(_Batch(make_env or default_env, controller, seeds, max_episode_steps, told, seen).run())
    return EpisodeBatch.concatenate(batches)


class _Batch:
    """Episodes that run side by side, one per environment."""

    def __init__(
        self,
        make_env: Callable[[int], Any],
        controller: Controller,
        seeds: np.ndarray,
        max_episode_steps: int,
        progress: Progress | None,
        watch: Callable[[np.ndarray], None] | None,
    ) -> None:
        self.make_env, self.controller, self.progress, self.watch = make_env, controller, progress, watch
        self.seeds, self.max_episode_steps = seeds, max_episode_steps
        count = len(seeds)
        self.env = make_env(count)
        self.dt, self.mass = float(self.env.dt), float(self.env.mass)
        self.episode = np.arange(count)  # (envs,) episode that each environment plays
        self.live = np.ones(count, bool)  # (episodes,) not ended yet
        self.returns, self.distance, self.energy = np.zeros(count), np.zeros(count), np.zeros(count)
        self.lengths = np.zeros(count, np.int64)
        self.fell, self.unstable = np.zeros(count, bool), np.zeros(count, bool)

    def run(self) -> EpisodeBatch:
        """Step until every episode has ended."""
        try:
            begin = getattr(self.controller, "begin", None)
            if begin is not None:
                begin()
            obs = np.array(self.env.reset(seed=[int(s) for s in self.seeds])[0])  # (episodes, D), a copy of our own
            for step in range(1, self.max_episode_steps + 1):
                self._step(obs)
                if self.progress is not None:
                    self.progress(step, int((~self.live).sum()))
                if not self.live.any():
                    return self._result()
                self._drop_ended()
        finally:
            self.env.close()
        raise RuntimeError(f"{int(self.live.sum())} episodes went on after the limit of {self.max_episode_steps} steps")

    def _step(self, obs: np.ndarray) -> None:
        """One control step of all environments; counts only episodes that have not ended. Writes ``obs``."""
        actions = np.asarray(self.controller(obs))
        if self.watch is not None:
            self.watch(np.flatnonzero(self.live))
        new_obs, rewards, terminated, truncated, infos = self.env.step(actions[self.episode])
        here = self.live[self.episode]  # (envs,)
        e = self.episode[here]
        self.returns[e] += rewards[here]
        self.lengths[e] += 1
        self.distance[e] += infos["x_velocity"][here] * self.dt
        self.energy[e] += infos["energy"][here]
        self.fell[e] |= terminated[here]
        self.unstable[e] |= infos["unstable"][here]
        self.live[e] = ~(terminated | truncated)[here]
        go_on = here & self.live[self.episode]
        obs[self.episode[go_on]] = new_obs[go_on]

    def _drop_ended(self) -> None:
        """Go on in fewer environments once half of them only fill the time: the live ones move over, state and all."""
        stay = np.flatnonzero(self.live[self.episode])
        if 2 * len(stay) > len(self.episode) or not hasattr(self.env, "get_state"):
            return
        state = self.env.get_state()
        part = {k: v[stay] if isinstance(v, np.ndarray) else [v[i] for i in stay] for k, v in state.items()}
        self.env.close()
        self.env = self.make_env(len(stay))
        self.env.set_state(part)
        self.episode = self.episode[stay]

    def _result(self) -> EpisodeBatch:
        far = np.abs(self.distance) >= MIN_TRANSPORT
        weight = self.mass * GRAVITY  # N
        return EpisodeBatch(
            seeds=self.seeds.astype(np.int64),
            returns=self.returns,
            lengths=self.lengths,
            distance=self.distance,
            speed=self.distance / (self.lengths * self.dt),
            fell=self.fell,
            energy=self.energy,
            cost_of_transport=np.where(far, self.energy / (weight * np.where(far, np.abs(self.distance), 1.0)), np.nan),
            unstable=self.unstable,
        )
