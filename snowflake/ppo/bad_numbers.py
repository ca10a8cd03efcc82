"""Numbers that are not finite: looked for once an update, named, and then the end of the run or an update left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

import torch

from agents.errors import UserError

if TYPE_CHECKING:
    from snowflake.policy import GraphActorCriticPolicy
    from snowflake.ppo.buffer import RolloutBuffer
    from snowflake.ppo.update import PPOUpdate
    from snowflake.ppo.vec_env import LocomotionVecEnv

_ALLOWED = ("explained_variance",)
"""Statistics that say nothing where they are not finite: all returns were equal."""


class BadNumbers(UserError):
    """A loss, gradient, parameter, observation or reward is not finite: one line says which, where and when.

    Args:
        message: the line.
        update: in which update of the run, counted from 1; 0 where only its minibatch is known yet.
    """

    exit_code = 4

    def __init__(self, message: str, update: int = 0) -> None:
        super().__init__(message)
        self.update = update


class Snapshot:
    """What an update may change, so that it can be undone to the bit: networks and optimisers.

    Args:
        policy: whose state is copied, on its device.
    """

    def __init__(self, policy: GraphActorCriticPolicy) -> None:
        self._parts = (policy.actor, policy.critic, policy.optimizer, policy.critic_optimizer)
        self._states = [deepcopy(part.state_dict()) for part in self._parts]

    def restore(self) -> None:
        """Put the copies back."""
        for part, state in zip(self._parts, self._states, strict=True):
            part.load_state_dict(state)


def fault_of_rollout(buffer: RolloutBuffer, env: LocomotionVecEnv) -> str | None:
    """Name the first thing of a rollout that is not finite, with its body and environment; None if all is well.

    Args:
        buffer: filled, advantages computed.
        env: what it was filled from.
    """
    parts = {
        "observation": buffer.obs,
        "action of the actor": buffer.actions,
        "log-probability of the actor": buffer.log_probs,
        "reward": buffer.rewards,
        "value of the critic": buffer.values,
        "advantage": buffer.advantages,
    }
    finite = torch.stack([part.isfinite().all() for part in parts.values()]).tolist()  # the one wait for the device
    if all(finite):
        return None
    name = next(name for name, good in zip(parts, finite, strict=True) if not good)
    place = (~parts[name].isfinite()).nonzero()[0].tolist()
    body = int(env.body_of_env[place[1]]) if buffer.n_envs == env.num_envs else 0
    where = f"of body {env.body_names[body]}"
    if buffer.n_envs == env.num_envs:
        where += f" in environment {place[1]}, step {place[0]} of the rollout"
    names = env.vector_env.body_envs[body].layout.names
    column = f" {names[place[2]]}" if name == "observation" and place[2] < len(names) else ""
    return f"{name}{column} {where}"


def fault_of_statistics(
    statistics: Mapping[str, float], names: Sequence[str] = (), rows: torch.Tensor | None = None
) -> str | None:
    """Name the first statistic of an update that is not finite, and its component; None if all is well.

    Args:
        statistics: by name, read from the device.
        names: columns of ``rows``.
        rows: statistics of every minibatch, to say where it began; looked at in the bad case only.
    """
    values = torch.tensor([value for name, value in statistics.items() if name not in _ALLOWED], dtype=torch.float64)
    if bool(values.isfinite().all()):
        return None
    known = [name for name in statistics if name not in _ALLOWED]
    bad = [name for name, good in zip(known, values.isfinite().tolist(), strict=True) if not good]
    where = ""
    if rows is not None and len(broken := (~rows.isfinite()).nonzero()):
        first = int(broken[0, 0])
        bad = [names[int(column)] for row, column in broken.tolist() if row == first]
        where = f" in minibatch {first + 1} of the update"
    name = min(bad, key=lambda n: n == "grad_norm")  # the norm of all says less than the norm of one
    return _words(name) + where


def fault_of_update(update: PPOUpdate, statistics: Mapping[str, float]) -> str | None:
    """Name what an update of actor and critic made that is not finite; None if all is well."""
    return fault_of_statistics(statistics, update.row_names, update.rows) or fault_of_networks(update.policy)


def fault_of_networks(policy: GraphActorCriticPolicy) -> str | None:
    """Name the first parameter or observation statistic that is not finite; None if all is well."""
    found = {
        f"{part} {name}": tensor.detach()
        for part, network in (("actor", policy.actor), ("critic", policy.critic))
        for name, tensor in network.state_dict().items()
        if tensor.is_floating_point() and tensor.numel()
    }
    finite = torch.stack([tensor.double().norm(torch.inf) for tensor in found.values()]).isfinite().tolist()
    return next((f"parameter {name}" for name, good in zip(found, finite, strict=True) if not good), None)


def _words(name: str) -> str:
    if name == "value_loss":
        return "loss of the critic (value_loss)"
    if name.startswith("grad_norm/"):
        return f"gradient of the actor's component {name.removeprefix('grad_norm/')}"
    return "gradient of the actor" if name == "grad_norm" else f"loss of the actor ({name})"
