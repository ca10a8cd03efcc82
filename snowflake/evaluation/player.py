"""One environment and the controller that plays it, for looking at a policy rather than measuring it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents import Morphology, UserError
from envs import LocomotionVectorEnv
from snowflake.evaluation.controllers import PolicyController, policy_controller
from snowflake.run import Run, graph_of

if TYPE_CHECKING:
    from snowflake.policy import GraphActorCriticPolicy


@dataclass(frozen=True)
class Player:
    """A body in its environment, and the policy that moves it.

    Attributes:
        env: one environment; the owner closes it.
        controller: maps its observations (1, D) to actions (1, A).
        zero_shot: the policy was not trained on this body.
    """

    env: LocomotionVectorEnv
    controller: PolicyController
    zero_shot: bool


def make_players(
    run: Run,
    bodies: Sequence[Morphology],
    checkpoint: str | int | None = None,
    *,
    deterministic: bool = True,
    seed: int = 0,
) -> list[Player]:
    """Put the policy of a checkpoint on bodies, each in an environment of its own.

    Args:
        run: the run.
        bodies: bodies; one that the run was not trained on is played zero-shot.
        checkpoint: `best`, `last` or a step; None takes `best`, else `last`.
        deterministic: take the mean action instead of a sample.
        seed: seed of the samples.

    Raises:
        UserError: no such checkpoint, or it does not fit a body.
    """
    policy = run.load_policy(checkpoint)
    return [_player(run, policy, body, deterministic, seed) for body in bodies]


def _player(run: Run, policy: GraphActorCriticPolicy, body: Morphology, deterministic: bool, seed: int) -> Player:
    own = run.own_index(body)
    env = run.make_env(body if own is None else run.morphologies[own])
    try:
        if own is not None:
            controller = policy_controller(policy, body=own, deterministic=deterministic, seed=seed)
        else:
            graph = graph_of(env, equality_edges=run.config.policy.equality_edges)
            controller = policy_controller(policy.for_bodies([graph]), deterministic=deterministic, seed=seed)
    except UserError:
        env.close()
        raise
    return Player(env, controller, own is None)
