"""Controllers for evaluation: the policy (mean action or sampled), zero action, and random action."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from snowflake.evaluation.rollout import Controller
    from snowflake.policy import GraphActorCriticPolicy, State


def zero_action(num_actions: int) -> Controller:
    """The controller that does nothing: every action is 0, the nominal control.

    Args:
        num_actions: Width A of the action.
    """

    def control(obs: np.ndarray) -> np.ndarray:
        return np.zeros((len(obs), num_actions), np.float32)

    return control


def random_action(num_actions: int, seed: int) -> Controller:
    """The controller that draws every action uniformly from the action space, [-1, 1].

    Args:
        num_actions: Width A of the action.
        seed: Seed of its own generator; the draws go on from call to call.
    """
    generator = np.random.default_rng(seed)

    def control(obs: np.ndarray) -> np.ndarray:
        return generator.uniform(-1.0, 1.0, (len(obs), num_actions)).astype(np.float32)

    return control


class PolicyController:
    """A policy on one of its bodies, without a gradient, a change of the policy or a draw from a global generator.

    Memory of the policy (``state``) is carried from call to call and cleared by :meth:`begin`, which
    :func:`snowflake.evaluation.rollout.evaluate` calls before the first action of each batch of episodes.

    Args:
        policy: The policy; it stays in its mode (training or evaluation) and on its device.
        body: Index of the body among ``policy.graphs``.
        deterministic: Take the mean action instead of a sample.
        seed: Seed of the samples.
        double: The policy was converted to float64, and is given observations in it.

    Shapes:
        obs ``(N, D)`` float32 of this body alone; actions ``(N, A)`` float32 of this body alone.
    """

    def __init__(
        self,
        policy: GraphActorCriticPolicy,
        *,
        body: int = 0,
        deterministic: bool = True,
        seed: int = 0,
        double: bool = False,
    ) -> None:
        import torch

        self.policy = policy
        self.body = body
        self.deterministic = deterministic
        self.device = policy.device
        self.dtype = torch.float64 if double else torch.float32
        self.num_actions = policy.graphs[body].act_dim
        self.generator = torch.Generator(device=self.device).manual_seed(seed)
        # With several bodies the policy reads rows of the widest body, padded with zeros, and the body's index.
        self.width = max(g.obs_dim for g in policy.graphs) + 1 if len(policy.graphs) > 1 else None
        self.begin()

    def begin(self) -> None:
        """Forget the memory of earlier episodes."""
        self.state: State | None = None
        self.first = True

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Actions for observations, one row per environment."""
        import torch

        if self.width is not None:
            wide = np.zeros((len(obs), self.width), np.float32)
            wide[:, : obs.shape[1]] = obs
            wide[:, -1] = self.body
            obs = wide
        with torch.no_grad():
            start = torch.full((len(obs),), self.first, dtype=torch.bool, device=self.device)
            actions, _, _, self.state = self.policy.act(
                torch.as_tensor(obs, dtype=self.dtype, device=self.device),
                self.state,
                start,
                deterministic=self.deterministic,
                generator=self.generator,
                with_value=False,
                deployed=True,
            )
        self.first = False
        return actions[:, : self.num_actions].float().cpu().numpy()


def policy_controller(
    policy: GraphActorCriticPolicy, *, body: int = 0, deterministic: bool = True, seed: int = 0
) -> PolicyController:
    """The controller of ``policy`` on its body number ``body``; see :class:`PolicyController`."""
    return PolicyController(policy, body=body, deterministic=deterministic, seed=seed)
