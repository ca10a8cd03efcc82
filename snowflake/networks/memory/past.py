"""What a memory is given besides the observations: its state before them, and where episodes start."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

State = dict[str, Tensor]
"""A memory by name, environments first in every tensor, nodes second where there are such.

``clock`` (N,) int64, steps since the episode began; ``action`` (N, A), what was done in the last step, clipped to
[-1, 1] and 0 at a start; and what the kind of memory keeps.
"""

_FROM_ZERO = ("clock", "action", "hidden", "sum")
"""Beginnings of the names of what a new episode sets to zero; keys and values are hidden by the clock instead."""


@dataclass(frozen=True)
class Past:
    """What E environments bring to T steps.

    Attributes:
        state: before the first of the steps.
        starts: whether a step is the first of an episode. (T, E) bool
        actions: what was done in the step before, clipped to [-1, 1], 0 at a start. (T, E, A)
        acting: one step whose outcome is remembered: `state` has been reset where the step starts an episode, and is
            brought up to date in place. Otherwise it is only read.
    """

    state: State
    starts: Tensor
    actions: Tensor
    acting: bool = False

    @classmethod
    def now(cls, state: State, starts: Tensor | None) -> Past:
        """Reset a state, in place, where episodes start, and return the past of the step to come.

        Args:
            state: N environments.
            starts: whose episode starts, (N,) bool or numbers; None for nobody's.
        """
        if starts is None:
            starts = torch.zeros_like(state["clock"], dtype=torch.bool)
        starts = starts.to(state["clock"].device).bool()
        for name, tensor in state.items():
            if name.startswith(_FROM_ZERO):
                tensor[starts] = 0
        return cls(state, starts[None], state["action"][None], acting=True)

    def of(self, rows: Tensor | None) -> Past:
        """Return the part of some environments.

        Args:
            rows: rows of the T * E transitions, step after step, that are theirs, ascending int64; None for all.
        """
        if rows is None:
            return self
        columns = rows[: len(rows) // len(self.starts)]  # the rows of the first step
        return Past(
            {name: tensor.index_select(0, columns) for name, tensor in self.state.items()},
            self.starts.index_select(1, columns),
            self.actions.index_select(1, columns),
            self.acting,
        )

    def put(self, rows: Tensor | None, part: Past) -> None:
        """Write the state of a part that acted (see `of`) back."""
        if rows is not None and self.acting:
            for name, tensor in part.state.items():
                self.state[name].index_copy_(0, rows, tensor)

    def done(self, actions: Tensor) -> None:
        """End the step: count it, and remember the actions (N, A)."""
        self.state["clock"].add_(1)
        self.state["action"].copy_(actions.clamp(-1.0, 1.0))


def positions(clock: Tensor, starts: Tensor) -> Tensor:
    """Return how many steps lie between the first step of its episode and each step, (T, E) int64.

    Args:
        clock: steps done before, in the episode that goes on. (E,) int64
        starts: (T, E) bool.
    """
    steps = torch.arange(len(starts), device=starts.device)[:, None]
    last = torch.where(starts, steps, -1).cummax(dim=0).values
    return torch.where(last >= 0, steps - last, clock + steps)
