"""The rounds of messages by the compiled library; the same arguments as the hand-written form in PyTorch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snowflake.networks.native.library import Library, address, addresses

POINTERS = (
    *("senders_start", "senders", "senders_weight", "receivers_start", "receivers", "receivers_weight"),
    *("states", "received", "weights", "out", "memory", "upper", "d_states", "d_received", "grads"),
)


class Call(ctypes.Structure):
    """`Call` in rounds.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("nodes", "batch", "size", "count", "depth", "bf16", "keep")),
        *((name, ctypes.c_void_p) for name in POINTERS),
    )


class Links(NamedTuple):
    """A sparse matrix in compressed rows: where each row begins (V + 1,), columns (E,), both int64, and values (E,)."""

    start: Tensor
    other: Tensor
    weight: Tensor

    @classmethod
    def of(cls, matrix: Tensor) -> Links:
        """Take the entries that are not zero of a dense matrix (V, V)."""
        row, column = matrix.nonzero(as_tuple=True)
        start = torch.zeros(len(matrix) + 1, dtype=torch.int64)
        start[1:] = torch.bincount(row, minlength=len(matrix)).cumsum(0)
        return cls(start, column.contiguous(), matrix[row, column].contiguous())


class NativeKey(NamedTuple):
    """What calls a piece of memory fits.

    Attributes:
        library: the compiled library.
        steps: rounds.
        depth: layers of the message function.
        shape: of the states, (V, N, H).
        dtype: of all arrays.
        bf16: whether operands of products are rounded to bfloat16.
        keep: whether what a backward pass reads is kept.
    """

    library: Library
    steps: int
    depth: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    bf16: bool
    keep: bool

    def call(self) -> Call:
        """Return a call with these sizes, without any array."""
        return Call(*self.shape, self.steps, self.depth, self.bf16, self.keep)

    def numbers(self) -> int:
        """Return how many numbers it takes."""
        return self.library.call("rounds_numbers", self.dtype, self.call())

    def space(self, memory: Tensor) -> NativeSpace:
        """Lay it out in memory."""
        return NativeSpace(self, memory)


@dataclass(frozen=True)
class NativeSpace:
    """Memory of a call; how it is laid out the library knows."""

    key: NativeKey
    memory: Tensor


@dataclass(frozen=True)
class NativeRounds:
    """Runs the rounds of a body.

    Attributes:
        library: the compiled library.
        links: whose messages each node averages, or adds up, and the same the other way round; None without neighbours.
        bf16: whether operands of products of float32 numbers are rounded to bfloat16; the CPU must multiply such.
    """

    library: Library
    links: tuple[Links, Links] | None
    bf16: bool = False

    def key(self, count: int, depth: int, states: Tensor, *, keep: bool) -> NativeKey:
        """Return what memory a call on states (V, N, H) takes."""
        bf16 = self.bf16 and states.dtype == torch.float32
        return NativeKey(self.library, count, depth, tuple(states.shape), states.dtype, bf16, keep)

    def forward(self, space: NativeSpace, states: Tensor, received: Tensor | None, weights: Sequence[Tensor]) -> Tensor:
        """Return the states after all rounds, in the order of arguments of `run_rounds`."""
        out = torch.empty_like(states)
        call, _kept = self._call(space, states, received, weights)
        call.out = address(out)
        self.library.call("rounds_forward", states.dtype, call)
        return out

    def backward(
        self,
        space: NativeSpace,
        states: Tensor,
        received: Tensor | None,
        weights: Sequence[Tensor],
        needed: Sequence[bool],
        grad: Tensor,
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of states, received and all weights, where they are needed."""
        d_states = torch.empty_like(states) if needed[0] else None
        d_received = torch.zeros_like(received) if received is not None and needed[1] else None
        grads = [torch.empty_like(w) if need else None for w, need in zip(weights, needed[2:], strict=True)]
        call, _kept = self._call(space, states, received, weights)
        upper, places = grad.contiguous(), addresses(grads)
        call.upper, call.d_states, call.d_received = address(upper), address(d_states), address(d_received)
        call.grads = ctypes.cast(places, ctypes.c_void_p)
        self.library.call("rounds_backward", states.dtype, call)
        return d_states, d_received, *grads

    def _call(
        self, space: NativeSpace, states: Tensor, received: Tensor | None, weights: Sequence[Tensor]
    ) -> tuple[Call, Any]:
        """Return a call, and what must live as long as it."""
        call = space.key.call()
        kept = [w.contiguous() for w in weights], None if received is None else received.contiguous()
        places = addresses(kept[0])
        if self.links is not None:
            forth, back = self.links
            call.senders_start, call.senders, call.senders_weight = map(address, forth)
            call.receivers_start, call.receivers, call.receivers_weight = map(address, back)
        call.states, call.received, call.memory = address(states), address(kept[1]), address(space.memory)
        call.weights = ctypes.cast(places, ctypes.c_void_p)
        return call, (kept, places)
