"""How much of what a policy observes lies outside the range of its training: the share that its normaliser cuts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    from snowflake.policy import GraphActorCriticPolicy

OBSERVATION = "observation"
"""Name of the one part of a flat policy's input; a graph policy's parts are called after its node classes."""


@dataclass(frozen=True)
class RangeShare:
    """Entries of the normalised observation, and those of them that the normaliser cuts at 5 standard deviations.

    Entries are counted as the policy reads them, at every control step of every episode: a column that two nodes read
    counts twice, a slot that a body lacks not at all.

    Attributes:
        cut: (episodes,) int64, entries cut.
        entries: (episodes,) int64, entries read.
        parts: (cut, entries) over all episodes by node class.
    """

    cut: np.ndarray
    entries: np.ndarray
    parts: dict[str, tuple[int, int]]

    @property
    def share(self) -> float:
        """Cut entries over all entries, from 0 to 1; NaN for a policy that normalises nothing."""
        return _ratio(int(self.cut.sum()), int(self.entries.sum()))

    def of_episode(self, episode: int) -> float:
        """The same of one episode."""
        return _ratio(int(self.cut[episode]), int(self.entries[episode]))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "share": self.share,
            "parts": {name: _ratio(*counts) for name, counts in self.parts.items()},
            "episodes": [self.of_episode(i) for i in range(len(self.cut))],
        }


class RangeCounter:
    """Counts what the normalisers of a policy cut while a controller plays it; the actions do not change.

    Use it as a context, with itself as ``watch`` of :func:`snowflake.evaluation.rollout.evaluate`.

    Args:
        policy: The policy that is played.
        body: Index of the body among ``policy.graphs``.
        episodes: Number of episodes.
    """

    def __init__(self, policy: GraphActorCriticPolicy, body: int, episodes: int) -> None:
        self.actor, self.vocabulary = policy.actor, policy.graphs[body].vocabulary
        self.cut, self.entries = np.zeros(episodes, np.int64), np.zeros(episodes, np.int64)
        self.parts: dict[str, np.ndarray] = {}
        self._step: list[tuple[list[str], np.ndarray, np.ndarray]] = []  # names (R,), cut (N, R), entries (R,)
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> RangeCounter:
        from snowflake.networks.normalizer import RunningNorm

        flat = self.actor.config.network == "mlp"
        for module in self.actor.modules():
            if isinstance(module, RunningNorm):
                self._hooks.append(module.register_forward_hook(self._flat if flat else self._nodes))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def __call__(self, rows: np.ndarray, episodes: np.ndarray) -> None:
        """Count the latest step of the episodes that are going on; see ``rollout.Watch``."""
        for names, cut, entries in self._step:
            self.cut[episodes] += cut[rows].sum(1)
            self.entries[episodes] += entries.sum()
            for name in dict.fromkeys(names):
                here = np.array([other == name for other in names])
                counts = np.array([cut[np.ix_(rows, here)].sum(), entries[here].sum() * len(rows)])
                self.parts[name] = self.parts.get(name, np.zeros(2, np.int64)) + counts
        self._step.clear()

    def result(self) -> RangeShare:
        """What was counted."""
        return RangeShare(self.cut, self.entries, {name: (int(c[0]), int(c[1])) for name, c in self.parts.items()})

    def _flat(self, module: Any, args: tuple[Any, ...], _output: Any) -> None:
        cut = module.outside(*args).sum(-1, keepdim=True)
        self._step.append(([OBSERVATION], cut.cpu().numpy(), np.array([args[0].shape[-1]])))

    def _nodes(self, module: Any, args: tuple[Any, ...], _output: Any) -> None:
        """Note what a normaliser of node inputs cuts: x (N, F) or (N, R, F), its group, and which slots are there."""
        outside = module.outside(*args)
        features = outside.shape[-1]
        cut = outside.sum(-1).reshape(len(outside), -1).cpu().numpy()
        group = args[1].tolist() if len(args) > 1 and not isinstance(args[1], int) else [0]
        entries = args[2].sum(-1).cpu().numpy() if len(args) > 2 else np.full(len(group), features)
        self._step.append(([self.vocabulary[k] for k in group], cut, entries))


def _ratio(cut: int, entries: int) -> float:
    return cut / entries if entries else math.nan
