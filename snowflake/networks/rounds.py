"""The rounds of messages as one hand-written operation, forward and backward, for the CPU.

By the compiled library of `snowflake.networks.native` where there is one. Else in PyTorch: what autograd would do op by
op runs here on buffers that are kept from call to call, with matrix products that accumulate in place and each
point-wise step a single pass. The plain form is `GraphNetwork.final_states`; all give the same up to rounding. Either
may run in several threads at once, each call on a workspace of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snowflake.networks.activation import tanh_
from snowflake.networks.base import block_rows
from snowflake.networks.native.rounds import NativeKey, NativeRounds
from snowflake.networks.workspace import Key, Pair, Pool, RoundBuffers, Workspace, pair

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class GRUWeights(NamedTuple):
    """Parameters of one `GRUUpdate`: message (3 H, H) and bias (3 H,), gates (2 H, H), candidate (H, H)."""

    message: Tensor
    bias: Tensor
    gates: Tensor
    candidate: Tensor


@dataclass(frozen=True)
class Rounds:
    """What does not change between calls.

    Attributes:
        count: rounds T, at least 1.
        adjacency: aggregates, (V, V), dense or in compressed rows; None where nodes have no neighbours. Not used, like
            the next, by the compiled library.
        transposed: the same matrix with rows and columns exchanged.
        depth: layers of the message function.
        pool: workspaces that are free.
        native: what the compiled library takes; None: in PyTorch.
    """

    count: int
    adjacency: Tensor | None
    transposed: Tensor | None
    depth: int
    pool: Pool
    native: NativeRounds | None = None

    def key(self, states: Tensor, *, keep: bool) -> Key | NativeKey:
        """Return what workspace a call on states (V, N, H) takes."""
        if self.native is not None:
            return self.native.key(self.count, self.depth, states, keep=keep)
        return Key(self.count, self.depth, tuple(states.shape), states.dtype, keep)


def run_rounds(
    rounds: Rounds,
    states: Tensor,
    received: Tensor | None,
    message: tuple[Tensor, ...],
    root: GRUWeights,
    joint: GRUWeights,
) -> Tensor:
    """Return the states after all rounds.

    Args:
        rounds: see there.
        states: (V, N, H); row 0 is the root.
        received: what the nodes receive in the first round (V, N, H), or None.
        message: weight and bias of each layer of the message function, in order.
        root: update of the root.
        joint: update of all joints.

    Returns:
        (V, N, H), of its own: no later call writes into it.
    """
    weights = (*root, *joint, *message)
    inputs = (states, *weights) if received is None else (states, received, *weights)
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return _RoundsFunction.apply(rounds, states.contiguous(), received, *weights)  # type: ignore[no-any-return]
    rows = block_rows(len(states) * states.shape[-1])
    if rounds.native is not None or states.shape[1] < 2 * rows:
        return _without_grad(rounds, states, received, weights)
    given = [None] * -(-states.shape[1] // rows) if received is None else received.split(rows, dim=1)
    blocks = zip(states.split(rows, dim=1), given, strict=True)
    return torch.cat([_without_grad(rounds, first, got, weights) for first, got in blocks], dim=1)


@torch.no_grad()
def _without_grad(rounds: Rounds, states: Tensor, received: Tensor | None, weights: tuple[Tensor, ...]) -> Tensor:
    space = rounds.pool.borrow(rounds.key(states, keep=False))
    result = _forward(rounds, space, states.contiguous(), received, weights)
    rounds.pool.give_back(space)
    return result


class _RoundsFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rounds: Rounds, states: Tensor, received: Tensor | None, *weights: Tensor) -> Tensor:
        ctx.rounds, ctx.key = rounds, rounds.key(states, keep=True)
        ctx.space = rounds.pool.borrow(ctx.key)
        ctx.save_for_backward(states, received, *weights)
        return _forward(rounds, ctx.space, states, received, weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        states, received, *weights = ctx.saved_tensors
        space, ctx.space = ctx.space, None
        if space is None:  # differentiated before, and the graph kept
            space = ctx.rounds.pool.borrow(ctx.key)
            _forward(ctx.rounds, space, states, received, tuple(weights))
        needed = ctx.needs_input_grad[1:]
        if ctx.rounds.native is not None:
            grads = ctx.rounds.native.backward(space, states, received, weights, needed, grad)
        else:
            grads = _Backward(ctx.rounds, space, states, received, weights, needed).run(grad)
        ctx.rounds.pool.give_back(space)
        return None, *grads


class _Split(NamedTuple):
    """Blocks of a `GRUWeights`, each (H, H): of messages by gate and candidate, of the state by gate, of the scaled."""

    message: tuple[Tensor, ...]
    gates: tuple[Tensor, ...]
    candidate: Tensor


def _split(weights: tuple[Tensor, ...] | list[Any]) -> _Split:
    message, _, gates, candidate = weights
    return _Split(message.chunk(3), gates.chunk(2), candidate)


def _forward(
    rounds: Rounds, space: Any, states: Tensor, received: Tensor | None, weights: tuple[Tensor, ...]
) -> Tensor:
    if rounds.native is not None:
        return rounds.native.forward(space, states, received, weights)
    batch, size = states.shape[1:]
    layers = [(w.t(), b) for w, b in zip(weights[8::2], weights[9::2], strict=True)]
    types = []
    for own in (weights[0:4], weights[4:8]):
        blocks = _split(own)
        message, gates = ([w.t() for w in part] for part in blocks[:2])
        types.append((message, own[1].split(size), gates, blocks.candidate.t()))
    state = states.view(-1, size)
    parts = pair(state, batch)
    for t, now in enumerate(space.rounds):
        if t == 0 and received is not None:
            got_parts = pair(received.reshape(state.shape), batch)
        else:
            _messages(rounds, space, now, state, layers)
            got_parts = space.got_parts
        for got, own, targets, (message, bias, gates, _) in zip(got_parts, parts, now.targets, types, strict=True):
            for target, w, b in zip(targets, message, bias, strict=True):
                torch.addmm(b, got, w, out=target)
            for target, u in zip(targets, gates, strict=False):
                target.addmm_(own, u)
        now.gates.sigmoid_()
        torch.mul(now.reset, state, out=space.scaled)
        for scaled, targets, (_, _, _, v) in zip(space.scaled_parts, now.targets, types, strict=True):
            targets[2].addmm_(scaled, v)
        tanh_(now.candidate)
        out = torch.empty_like(state) if t == rounds.count - 1 else now.state
        torch.lerp(now.candidate, state, now.keep, out=out)
        state, parts = out, now.state_parts
    return state.view(states.shape)


def _messages(rounds: Rounds, space: Workspace, now: RoundBuffers, state: Tensor, layers: list[Pair]) -> None:
    """Compute what the nodes receive in a round."""
    if rounds.adjacency is None:
        space.got.zero_()
        return
    x = state
    for (w, b), out in zip(layers, now.sent, strict=True):
        torch.addmm(b, x, w, out=out)
        x = tanh_(out)
    _aggregate(rounds.adjacency, now.sent_by_node, space.got_by_node)


def _aggregate(matrix: Tensor, sent: Tensor, out: Tensor) -> None:
    """Multiply (V, V) and (V, N H)."""
    if matrix.layout == torch.strided:
        torch.mm(matrix, sent, out=out)
    else:
        torch.addmm(out, matrix, sent, beta=0, out=out)


class _Backward:
    """One backward pass, round by round from the last; gradients of weights add up over the rounds."""

    def __init__(
        self,
        rounds: Rounds,
        space: Workspace,
        states: Tensor,
        received: Tensor | None,
        weights: list[Tensor],
        needed: tuple[bool, ...],
    ) -> None:
        self.rounds, self.space = rounds, space
        self.shape = states.shape
        self.batch = states.shape[1]
        self.first = states.view(-1, states.shape[-1])
        self.received = None if received is None else received.reshape(self.first.shape)
        self.needs_states, self.needs_received = needed[0], received is not None and needed[1]
        self.grads: list[Tensor | None] = [
            torch.zeros_like(w) if need else None for w, need in zip(weights, needed[2:], strict=True)
        ]
        self.types = [_split(weights[0:4]), _split(weights[4:8])]
        self.layers = weights[8::2]

    def run(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of states, received and all weights."""
        upper = grad.contiguous().view(self.first.shape)
        d_received = None
        for t in reversed(range(self.rounds.count)):
            now = self.space.rounds[t]
            state = self.first if t == 0 else self.space.rounds[t - 1].state
            given = t == 0 and self.received is not None
            got_parts = self._got(now, given)
            # Below the first round lies what does not train, or what autograd takes over.
            below = t > 0 or self.needs_states
            through = self.needs_received if given else self._message_matters(below)
            lower = 2 + t % 2 if below else None  # which of the spare buffers
            self._update(now, upper, got_parts, state, lower, through)
            if given:
                d_received = self.space.spare[1].clone().view(self.shape) if through else None
            elif through:
                self._messages(now, state, lower)
            if lower is not None:
                upper = self.space.spare[lower]
        d_states = upper.clone().view(self.shape) if self.needs_states else None
        return d_states, d_received, *self.grads

    def _got(self, now: RoundBuffers, given: bool) -> Pair:
        """Return what the nodes received in a round."""
        if given and self.received is not None:
            return pair(self.received, self.batch)
        if self.rounds.adjacency is None:
            self.space.got.zero_()
        else:
            _aggregate(self.rounds.adjacency, now.sent_by_node, self.space.got_by_node)
        return self.space.got_parts

    def _message_matters(self, below: bool) -> bool:
        return self.rounds.adjacency is not None and (below or any(g is not None for g in self.grads[8:]))

    def _update(
        self, now: RoundBuffers, upper: Tensor, got: Pair, state: Tensor, lower: int | None, through: bool
    ) -> None:
        """Go back through an update: spare[lower] gets the gradient of the state, spare[1] that of messages."""
        space = self.space
        d_keep, d_reset, d_candidate = space.deltas
        d_scaled = space.spare[0]
        torch.sub(state, now.candidate, out=d_keep).mul_(upper)
        _sigmoid_backward(d_keep, now.keep, grad_input=d_keep)
        torch.addcmul(upper, upper, now.keep, value=-1.0, out=d_candidate)
        _tanh_backward(d_candidate, now.candidate, grad_input=d_candidate)
        for own, delta, target in zip(self.types, space.delta_parts, space.spare_parts[0], strict=True):
            torch.mm(delta[2], own.candidate, out=target)
        torch.mul(d_scaled, state, out=d_reset)
        _sigmoid_backward(d_reset, now.reset, grad_input=d_reset)
        if lower is not None:
            d_state = space.spare[lower]
            torch.mul(upper, now.keep, out=d_state)
            d_state.addcmul_(d_scaled, now.reset)
            for own, delta, target in zip(self.types, space.delta_parts, space.spare_parts[lower], strict=True):
                target.addmm_(delta[0], own.gates[0])
                target.addmm_(delta[1], own.gates[1])
        if through:
            for own, delta, target in zip(self.types, space.delta_parts, space.spare_parts[1], strict=True):
                torch.mm(delta[0], own.message[0], out=target)
                target.addmm_(delta[1], own.message[1])
                target.addmm_(delta[2], own.message[2])
        torch.mul(now.reset, state, out=space.scaled)
        self._weights(got, state)

    def _weights(self, got: Pair, state: Tensor) -> None:
        """Add to the gradients of the update's weights."""
        space, batch = self.space, self.batch
        inputs = zip(got, pair(state, batch), space.scaled_parts, strict=True)
        sums = (space.root_deltas, space.joint_deltas)
        for k, (own_got, own_state, scaled) in enumerate(inputs):
            message, bias, gates, candidate = self.grads[4 * k : 4 * k + 4]
            deltas = [delta.t() for delta in space.delta_parts[k]]
            if message is not None:
                for grad, delta in zip(message.chunk(3), deltas, strict=True):
                    grad.addmm_(delta, own_got)
            if bias is not None:
                bias.view(3, -1).add_(sums[k].sum(1))
            if gates is not None:
                for grad, delta in zip(gates.chunk(2), deltas, strict=False):
                    grad.addmm_(delta, own_state)
            if candidate is not None:
                candidate.addmm_(deltas[2], scaled)

    def _messages(self, now: RoundBuffers, state: Tensor, lower: int | None) -> None:
        """Go back through a round's messages: from spare[1] into spare[lower] and the message function's weights."""
        nodes = self.shape[0]
        delta, other = self.space.deltas[0], self.space.deltas[1]  # done with in this round
        assert self.rounds.transposed is not None
        _aggregate(self.rounds.transposed, self.space.spare[1].view(nodes, -1), delta.view(nodes, -1))
        grads = self.grads[8:]
        for i in reversed(range(self.rounds.depth)):
            _tanh_backward(delta, now.sent[i], grad_input=delta)
            gw, gb = grads[2 * i], grads[2 * i + 1]
            if gw is not None:
                gw.addmm_(delta.t(), now.sent[i - 1] if i else state)
            if gb is not None:
                gb += delta.sum(0)
            if i:
                torch.mm(delta, self.layers[i], out=other)
                delta, other = other, delta
            elif lower is not None:
                self.space.spare[lower].addmm_(delta, self.layers[0])
