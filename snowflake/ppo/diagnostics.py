"""How far one update moved the policy, as a whole and component by component (Blake et al. 2021, section 3).

A graph policy of many nodes moves far in the space of policies although PPO clips its ratio. Which part moves it is
measured by applying one component's update alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.buffer import Minibatch

_CHUNK = 4096  # transitions per forward pass, to bound memory


def gaussian_kl(
    old: tuple[torch.Tensor, torch.Tensor], new: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor
) -> torch.Tensor:
    """KL(old || new) of diagonal Gaussians in nats, summed over real actuators.

    With d = log s' - log s it is the sum of d + (exp(-2 d) - 1 + ((m - m') / s')^2) / 2, computed in float64.

    Args:
        old: mean m and log standard deviation log s, each ``(N, A)``.
        new: m' and log s', each ``(N, A)``.
        mask: ``(N, A)``, 1 for real actuators.

    Returns:
        ``(N,)`` float64.
    """
    (mean, log_std), (new_mean, new_log_std) = ([part.double() for part in pair] for pair in (old, new))
    wider = new_log_std - log_std
    shift = (mean - new_mean) * torch.exp(-new_log_std)
    return ((wider + 0.5 * (torch.expm1(-2.0 * wider) + shift.square())) * mask).sum(-1)


class UpdateDiagnostics:
    """Compares the actor after an update with what it was before.

    Reads parameters and observations only: it draws no random number, and leaves the actor's bytes as they are.

    Args:
        policy: before the update.
        flat: the batch that the update is made of; only ``obs`` is read now.
    """

    def __init__(self, policy: GraphActorCriticPolicy, flat: Minibatch) -> None:
        self.policy = policy
        self.obs = flat.obs
        actor = policy.actor
        self.before = {name: p.detach().clone() for name, p in actor.named_parameters() if p.requires_grad}
        self.components = {
            name: trained
            for name in actor.components
            if (trained := [key for key in actor.component_parameters(name) if key in self.before])
        }
        self.old = self._distribution()

    @torch.no_grad()
    def measure(self, flat: Minibatch, clip_range: float) -> dict[str, float]:
        """Return the figures of the update, by name.

        Args:
            flat: the batch, its advantages standardised.
            clip_range: of the update.

        Returns:
            ``kl/all`` and ``kl/COMPONENT``: mean over the batch of the exact KL(old || new), where of the new policy
            all, or that component alone, is new. ``clip_fraction/SIGN_SIDE``: share of the transitions whose advantage
            has that sign (positive, negative) whose ratio lies on that side (above, below) of the clip range.
            ``update_ratio/COMPONENT``: norm of the parameters' change over their norm before, unless that is 0.
            ``norm/COMPONENT``: L2 norm after the update, frozen components included.
        """
        actor = self.policy.actor
        now = dict(actor.named_parameters())
        result = {"kl/all": self._kl()}
        for name, trained in self.components.items():
            with self._undone(key for key in self.before if key not in trained):
                result[f"kl/{name}"] = self._kl()
            if size := _norm(self.before[key] for key in trained):
                change = _norm(now[key] - self.before[key] for key in trained)
                result[f"update_ratio/{name}"] = change / size
        for name in actor.components:
            result[f"norm/{name}"] = _norm(actor.component_parameters(name).values())
        return result | self._clip_fractions(flat, clip_range)

    @torch.no_grad()
    def _distribution(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        parts = [self.policy.distribution(obs) for obs in self.obs.split(_CHUNK)]
        mean, log_std, mask = (torch.cat(column) for column in zip(*parts, strict=True))
        return mean, log_std, mask

    def _kl(self) -> float:
        mean, log_std, mask = self.old
        return float(gaussian_kl((mean, log_std), self._distribution()[:2], mask).mean())

    @contextmanager
    def _undone(self, names: Iterable[str]) -> Iterator[None]:
        """Give parameters their values from before the update for a while."""
        parameters = dict(self.policy.actor.named_parameters())
        kept = {name: parameters[name].detach().clone() for name in names}
        try:
            for name in kept:
                parameters[name].copy_(self.before[name])
            yield
        finally:
            for name, value in kept.items():
                parameters[name].copy_(value)

    def _clip_fractions(self, flat: Minibatch, clip_range: float) -> dict[str, float]:
        log_prob = torch.cat(
            [
                self.policy.action_log_prob(obs, actions)[0]
                for obs, actions in zip(flat.obs.split(_CHUNK), flat.actions.split(_CHUNK), strict=True)
            ]
        )
        ratio = (log_prob - flat.old_log_prob).exp()
        result = {}
        for sign, chosen in (("positive", flat.advantages > 0), ("negative", flat.advantages < 0)):
            count = max(int(chosen.sum()), 1)
            for side, beyond in (("above", ratio > 1.0 + clip_range), ("below", ratio < 1.0 - clip_range)):
                result[f"clip_fraction/{sign}_{side}"] = float((beyond & chosen).sum()) / count
        return result


def _norm(tensors: Iterable[torch.Tensor]) -> float:
    return sum(float(tensor.detach().double().square().sum()) for tensor in tensors) ** 0.5
