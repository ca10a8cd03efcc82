"""Measure a policy on bodies, beside zero action and random play from the same start states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agents import Morphology, model_hash
from envs import LocomotionVectorEnv
from snowflake.evaluation.controllers import policy_controller, random_action, zero_action
from snowflake.evaluation.results import LABELS, BodyResult
from snowflake.evaluation.rollout import Controller, EpisodeBatch, evaluate

if TYPE_CHECKING:
    from snowflake.policy import GraphActorCriticPolicy

Told = Callable[[str, str, int, int], None]
"""Progress of an evaluation: body, way to act, control step, episodes ended."""


@dataclass(frozen=True)
class Settings:
    """How to evaluate, the same for every body and way to act.

    Attributes:
        episodes: Episodes per body and way to act.
        seed: Seed of the first start state; also seeds the draws of the stochastic policy and of random play.
        max_episode_steps: Time limit in control steps.
        make_env: Builds the batched environment of a body with a number of environments.
        num_threads: Physics threads; 0 takes every core; for the record.
        told: Called after each control step.
    """

    episodes: int
    seed: int
    max_episode_steps: int
    make_env: Callable[[Morphology, int], LocomotionVectorEnv]
    num_threads: int = 0
    told: Told | None = None


def measure_body(
    policy: GraphActorCriticPolicy, body: int, morphology: Morphology, settings: Settings, *, zero_shot: bool
) -> BodyResult:
    """Play the policy (mean action and sampled), zero action and random play on one body.

    Args:
        policy: The policy.
        body: Index of the body among ``policy.graphs``.
        morphology: The body.
        settings: Episodes, seeds, limits.
        zero_shot: The policy was not trained on this body.
    """
    env = settings.make_env(morphology, 1)
    env.close()
    controllers: dict[str, Controller] = {
        "mean_action": policy_controller(policy, body=body, deterministic=True),
        "stochastic": policy_controller(policy, body=body, deterministic=False, seed=settings.seed),
        "zero_action": zero_action(len(env.robot.controls)),
        "random": random_action(len(env.robot.controls), settings.seed),
    }
    episodes = {way: _play(controllers[way], way, morphology, settings) for way in LABELS}
    return BodyResult(
        morphology=morphology.name,
        zero_shot=zero_shot,
        model_hash=model_hash(morphology.compile()),
        mass=env.mass,
        episodes=episodes,
    )


def _play(controller: Controller, way: str, morphology: Morphology, settings: Settings) -> EpisodeBatch:
    told = settings.told
    progress = None if told is None else (lambda step, ended: told(morphology.name, LABELS[way], step, ended))
    return evaluate(
        controller,
        morphology,
        episodes=settings.episodes,
        seed=settings.seed,
        max_episode_steps=settings.max_episode_steps,
        make_env=partial(settings.make_env, morphology),
        progress=progress,
    )
