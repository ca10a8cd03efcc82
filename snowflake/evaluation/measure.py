"""Measure a policy on bodies, beside zero action and random play from the same start states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from agents import Morphology, model_hash
from envs import LocomotionVectorEnv
from snowflake.evaluation.controllers import PolicyController, policy_controller, random_action, zero_action
from snowflake.evaluation.range_share import RangeCounter, RangeShare
from snowflake.evaluation.results import BASELINES, LABELS, POLICIES, BodyResult
from snowflake.evaluation.rollout import MAX_ENVS, Controller, EpisodeBatch, evaluate
from snowflake.evaluation.siblings import Reordered, SiblingOrders, reorder_siblings

if TYPE_CHECKING:
    from snowflake.graph import MorphologyGraph
    from snowflake.policy import GraphActorCriticPolicy

Told = Callable[[str, str, int, int], None]
"""Progress of an evaluation: body, way to act, control step, episodes ended."""


Measured = tuple[EpisodeBatch, RangeShare | None]
"""Episodes of one way to act, and what a policy read outside its range."""


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
        task: What tells this task from others, for ``known``.
        known: What has been measured, by who acts, hash of the model and way to act; nothing is played twice.
    """

    episodes: int
    seed: int
    max_episode_steps: int
    make_env: Callable[[Morphology, int], LocomotionVectorEnv]
    num_threads: int = 0
    told: Told | None = None
    task: str = ""
    known: dict[tuple[str, str, str], Measured] = field(default_factory=dict)


def measure_body(
    policy: GraphActorCriticPolicy,
    body: int,
    morphology: Morphology,
    settings: Settings,
    *,
    zero_shot: bool,
    who: str = "",
) -> BodyResult:
    """Play the policy (mean action and sampled), zero action and random play on one body.

    Args:
        policy: The policy.
        body: Index of the body among ``policy.graphs``.
        morphology: The body.
        settings: Episodes, seeds, limits.
        zero_shot: The policy was not trained on this body.
        who: What tells this policy from others, for ``settings.known``; not kept if empty.
    """
    found = measure_policy(policy, body, morphology, settings, who=who)
    env = settings.make_env(morphology, 1)
    env.close()
    width = len(env.robot.controls)
    baselines: dict[str, Controller] = {
        "zero_action": zero_action(width),
        "random": random_action(width, settings.seed),
    }
    digest = model_hash(morphology.compile())
    for way in BASELINES:
        found[way] = _once((settings.task, digest, way), settings, partial(_play, baselines[way], way, morphology))
    return BodyResult(
        morphology=morphology.name,
        zero_shot=zero_shot,
        model_hash=digest,
        mass=env.mass,
        episodes={way: found[way][0] for way in LABELS},
        outside={way: share for way, (_, share) in found.items() if share is not None},
    )


def measure_policy(
    policy: GraphActorCriticPolicy, body: int, morphology: Morphology, settings: Settings, *, who: str = ""
) -> dict[str, Measured]:
    """Play the policy alone, with the mean action and sampled; arguments as for :func:`measure_body`."""
    digest = model_hash(morphology.compile())

    def play(way: str, settings: Settings) -> Measured:
        controller = policy_controller(policy, body=body, deterministic=way == "mean_action", seed=settings.seed)
        with RangeCounter(policy, body, settings.episodes) as counter:
            batch, _ = _play(controller, way, morphology, settings, counter)
        return batch, counter.result()

    return {way: _once((who, digest, way), settings, partial(play, way)) for way in POLICIES}


def measure_siblings(
    policy: GraphActorCriticPolicy,
    body: int,
    morphology: Morphology,
    settings: Settings,
    *,
    orders: int,
    mlp_transfer: bool = False,
) -> SiblingOrders:
    """Play the mean action under random orders of siblings, from the same start states.

    The policy acts in float64 here, and its actions are rounded to float32: in float32 another order of sums moves an
    action by 1e-7, which a walking body may magnify into another episode.

    Args:
        policy: The policy.
        body: Index of the body among ``policy.graphs``.
        morphology: The body.
        settings: Episodes, seeds, limits.
        orders: Number of orders, drawn from ``settings.seed``.
        mlp_transfer: Map a flat policy to each order by node class and column.
    """
    graph = policy.graphs[body]
    count = min(settings.episodes, MAX_ENVS)
    env = settings.make_env(morphology, count)
    obs = np.array(env.reset(seed=list(range(settings.seed, settings.seed + count)))[0])
    env.close()

    def play(graph: MorphologyGraph, columns: np.ndarray) -> tuple[float, np.ndarray]:
        moved = policy.for_bodies([graph], mlp_transfer=mlp_transfer, precision="fp32").double()
        moved.set_training_mode(policy.training)
        controller = Reordered(PolicyController(moved, double=True), columns)
        first = controller(obs)
        return float(_play(controller, "mean_action", morphology, settings)[0].returns.mean()), first

    original, actions = play(graph, np.arange(graph.obs_dim))
    generator = np.random.default_rng(settings.seed)
    returns, changes = np.zeros(orders), np.zeros(orders)
    for k in range(orders):
        returns[k], moved = play(*reorder_siblings(graph, env.model, env.layout, generator))
        changes[k] = np.abs(moved - actions).max()
    return SiblingOrders(original, returns, changes)


def _once(key: tuple[str, str, str], settings: Settings, play: Callable[[Settings], Measured]) -> Measured:
    """Play, or take what was measured before by the same player on the same body."""
    if not key[0]:
        return play(settings)
    if key not in settings.known:
        settings.known[key] = play(settings)
    return settings.known[key]


def _play(
    controller: Controller, way: str, morphology: Morphology, settings: Settings, watch: RangeCounter | None = None
) -> Measured:
    told = settings.told
    progress = None if told is None else (lambda step, ended: told(morphology.name, LABELS[way], step, ended))
    batch = evaluate(
        controller,
        morphology,
        episodes=settings.episodes,
        seed=settings.seed,
        max_episode_steps=settings.max_episode_steps,
        make_env=partial(settings.make_env, morphology),
        progress=progress,
        watch=watch,
    )
    return batch, None
