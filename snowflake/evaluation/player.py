"""One environment and the controller that plays it, for looking at a policy rather than measuring it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents import Morphology, UserError
from envs import LocomotionVectorEnv
from snowflake.evaluation.controllers import PolicyController, policy_controller
from snowflake.graph import build_graph
from snowflake.run import Run

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


def make_env(run: Run, morphology: Morphology) -> LocomotionVectorEnv:
    """Return one environment of a body under the settings of a run.

    Raises:
        UserError: no such task for this body, or the model is refused.
    """
    config = run.config
    own = morphology.name in {body.name for body in run.morphologies}
    trained = {body.task for body in run.morphologies}
    return LocomotionVectorEnv(
        morphology,
        1,
        task=None if morphology.task else "locomotion",
        # Weights belong to the task they were set for; on another one they may be refused.
        task_options=config.task if own or (morphology.task or "locomotion") in trained else None,
        features=run.graphs[0].feature_set,
        root_body=config.env.root_body if own else None,
        max_episode_steps=config.env.max_episode_steps,
        num_threads=1,
    )


def make_players(
    run: Run,
    bodies: Sequence[Morphology] | None = None,
    checkpoint: str | int | None = None,
    *,
    deterministic: bool = True,
    seed: int = 0,
) -> list[Player]:
    """Put the policy of a checkpoint on bodies, each in an environment of its own.

    Args:
        run: the run.
        bodies: bodies; the run's own if None. One that the run was not trained on is played zero-shot.
        checkpoint: `best`, `last` or a step; None takes `best`, else `last`.
        deterministic: take the mean action instead of a sample.
        seed: seed of the samples.

    Raises:
        UserError: no such checkpoint, or it does not fit a body.
    """
    policy = run.load_policy(checkpoint)
    return [_player(run, policy, body, deterministic, seed) for body in bodies or run.morphologies]


def _player(run: Run, policy: GraphActorCriticPolicy, body: Morphology, deterministic: bool, seed: int) -> Player:
    own = {trained.name: k for k, trained in enumerate(run.morphologies)}
    env = make_env(run, body)
    try:
        if body.name in own:
            controller = policy_controller(policy, body=own[body.name], deterministic=deterministic, seed=seed)
        else:
            graph = build_graph(env.model, env.layout, body.node_class(env.model), body.name, robot=env.robot)
            controller = policy_controller(policy.for_bodies([graph]), deterministic=deterministic, seed=seed)
    except UserError:
        env.close()
        raise
    return Player(env, controller, body.name not in own)
