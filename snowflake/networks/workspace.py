"""Memory of the hand-written rounds of messages, kept from call to call."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]
"""Rows of the root, then of the joints."""


def pair(x: Tensor, batch: int) -> Pair:
    """Return the rows of the root, then of the joints, of (R, ...)."""
    return x[:batch], x[batch:]


class Key(NamedTuple):
    """What calls a workspace fits: rounds T, layers of the message function, (V, N, H), whether all rounds are kept."""

    rounds: int
    depth: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    keep: bool

    def numbers(self) -> int:
        """Return how many numbers it takes."""
        nodes, batch, size = self.shape
        arrays = 2 + (self.depth + 4) * (self.rounds if self.keep else 2) + (7 if self.keep else 0)
        return arrays * nodes * batch * size

    def space(self, memory: Tensor) -> Workspace:
        """Lay it out in memory."""
        return Workspace(self, memory)


class RoundBuffers:
    """What one round computes and its backward pass reads; the rest is cheaper to compute again than to fetch.

    Args:
        memory: to lay them out in. (depth + 4, R, H), with R = V * N rows of H features
        nodes: V.

    Attributes:
        sent: outputs of the message layers. depth times (R, H)
        gates: keep and reset gate. (2, R, H)
        candidate: candidate states. (R, H)
        state: states after the round; the last round's is the result, and not kept here. (R, H)
    """

    def __init__(self, memory: Tensor, nodes: int) -> None:
        batch = memory.shape[1] // nodes
        self.gates = memory[:2]
        self.keep, self.reset, self.candidate, self.state, *self.sent = memory
        self.sent_by_node = self.sent[-1].view(nodes, -1)
        self.state_parts = pair(self.state, batch)
        # Where the two gates and the candidate are written, by node type.
        self.targets = tuple(zip(*(pair(x, batch) for x in (self.keep, self.reset, self.candidate)), strict=True))


class Workspace:
    """Buffers of one forward and backward pass.

    With T rounds and a message function of 3 layers that is 4 (7 T + 9) V N H bytes in float32: for 17 nodes, 128
    observations, 64 features and 4 rounds 20 MB; without gradients, where rounds share, 4 x 16 V N H bytes.

    Args:
        key: what calls it fits.
        memory: to lay it out in, of `key.numbers()` numbers or more. (M,)

    Attributes:
        rounds: by round.
        got: aggregated messages of the round at hand. (R, H)
        scaled: reset gate times state of the round at hand. (R, H)
        deltas: gradients of the inputs of keep gate, reset gate and candidate. (3, R, H)
        spare: gradients of scaled and aggregated messages, and of the states before and after a round. (4, R, H)
    """

    def __init__(self, key: Key, memory: Tensor) -> None:
        nodes, batch, size = key.shape
        self.key, self.memory = key, memory
        arrays = memory[: key.numbers()].view(-1, nodes * batch, size)
        self.got, self.scaled = arrays[:2]
        self.got_by_node = self.got.view(nodes, -1)
        self.got_parts, self.scaled_parts = pair(self.got, batch), pair(self.scaled, batch)
        each, sets = key.depth + 4, key.rounds if key.keep else 2
        made = [RoundBuffers(arrays[2 + i * each : 2 + (i + 1) * each], nodes) for i in range(sets)]
        self.rounds = [made[t % sets] for t in range(key.rounds)]  # a round reads the states of the one before only
        if key.keep:
            self.deltas, self.spare = arrays[2 + sets * each :].split([3, 4])
            self.delta_parts = tuple(zip(*(pair(x, batch) for x in self.deltas), strict=True))
            self.root_deltas, self.joint_deltas = self.deltas[:, :batch], self.deltas[:, batch:]
            self.spare_parts = [pair(x, batch) for x in self.spare]


@dataclass
class Pool:
    """Workspaces that no call uses now, the one unused for longest first.

    Attributes:
        limit: bytes that are kept; beyond, the first are dropped.
    """

    limit: int = 2**29
    free: list[Any] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def borrow(self, key: Any) -> Any:
        """Take a workspace that fits a key, or whose memory is large enough, or make one, on the CPU."""
        size = key.numbers()
        with self.lock:
            for i in reversed(range(len(self.free))):
                if self.free[i].key == key:
                    return self.free.pop(i)
            for i, space in enumerate(self.free):
                if space.key.dtype == key.dtype and size <= len(space.memory) <= 2 * size:
                    return key.space(self.free.pop(i).memory)
        return key.space(torch.empty(size, dtype=key.dtype))

    def give_back(self, space: Any) -> None:
        """Let another call use a workspace."""
        with self.lock:
            self.free.append(space)
            while sum(space.memory.nbytes for space in self.free) > self.limit:
                del self.free[0]

    def __deepcopy__(self, memo: dict[int, Any]) -> Pool:
        return Pool(self.limit)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pool, (self.limit,)
