"""The rounds of messages as one hand-written operation, forward and backward, for the CPU.

What autograd would do op by op runs here on buffers that are kept from call to call, with matrix products that
accumulate in place and each point-wise step a single pass. The plain form is `GraphNetwork.final_states`; both give the
same up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

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
        adjacency: aggregates, (V, V); None where nodes have no neighbours.
        depth: layers of the message function.
        pool: workspaces that are free, by shape.
    """

    count: int
    adjacency: Tensor | None
    depth: int
    pool: dict[tuple[Any, ...], list[Workspace]]

    def borrow(self, states: Tensor, keep: bool) -> Workspace:
        """Take a workspace that fits, or make one."""
        key = (tuple(states.shape), states.dtype, states.device, keep)
        free = self.pool.setdefault(key, [])
        return free.pop() if free else Workspace(self, states, key)

    def give_back(self, space: Workspace) -> None:
        """Let the next call use a workspace."""
        self.pool[space.key].append(space)


class Workspace:
    """Buffers of one forward and backward pass. R = V * N rows of H features.

    Attributes:
        sent: outputs of the message layers, by round. (depth, R, H)
        got: aggregated messages, by round. (R, H)
        keep_reset: the two gates, by round. (2, R, H)
        candidate: candidate states, by round. (R, H)
        scaled: reset gate times state, by round. (R, H)
        states: states after each round but the last. (R, H)
        spare: for the backward pass. (7, R, H)
    """

    def __init__(self, rounds: Rounds, states: Tensor, key: tuple[Any, ...]) -> None:
        nodes, batch, size = states.shape
        shape = (nodes * batch, size)
        self.key = key
        keep = key[-1]

        def buffers(*leading: int) -> list[Tensor]:
            made = [states.new_empty((*leading, *shape)) for _ in range(rounds.count if keep else 1)]
            return made if keep else made * rounds.count

        self.sent, self.got = buffers(rounds.depth), buffers()
        self.keep_reset, self.candidate, self.scaled = buffers(2), buffers(), buffers()
        self.states = [states.new_empty(shape) for _ in range(rounds.count - 1 if keep else 2)]
        self.spare = states.new_empty((7, *shape)) if keep else None


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
        (V, N, H).
    """
    return _RoundsFunction.apply(rounds, states.contiguous(), received, *root, *joint, *message)  # type: ignore[no-any-return]


class _RoundsFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rounds: Rounds, states: Tensor, received: Tensor | None, *weights: Tensor) -> Tensor:
        batch = states.shape[1]
        needed = any(ctx.needs_input_grad)
        space = rounds.borrow(states, needed)
        state = states.view(-1, states.shape[-1])
        for t in range(rounds.count):
            if t == 0 and received is not None:
                got = received.reshape(state.shape)
            else:
                got = _messages(rounds, space, t, state, weights[8:])
            last = t == rounds.count - 1
            out = torch.empty_like(state) if last else space.states[t if needed else t % 2]
            state = _update(space, t, got, state, batch, weights, out)
        if needed:
            ctx.rounds, ctx.space, ctx.batch = rounds, space, batch
            ctx.save_for_backward(states, received, *weights)
        else:
            rounds.give_back(space)
        return state.view(states.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if ctx.space is None:
            raise RuntimeError("the rounds of a graph network were differentiated twice: run the forward pass again")
        states, received, *weights = ctx.saved_tensors
        space, ctx.space = ctx.space, None
        work = _Backward(ctx.rounds, space, states, received, weights, ctx.batch, ctx.needs_input_grad)
        grads = work.run(grad)
        ctx.rounds.give_back(space)
        return None, *grads


def _messages(rounds: Rounds, space: Workspace, t: int, state: Tensor, layers: tuple[Tensor, ...]) -> Tensor:
    """Compute what the nodes receive in round t, (R, H)."""
    x = state
    for i in range(rounds.depth):
        out = space.sent[t][i]
        torch.addmm(layers[2 * i + 1], x, layers[2 * i].t(), out=out)
        x = out.tanh_()
    got = space.got[t]
    if rounds.adjacency is None:
        return got.zero_()
    nodes = len(rounds.adjacency)
    torch.mm(rounds.adjacency, x.view(nodes, -1), out=got.view(nodes, -1))
    return got


def _update(
    space: Workspace, t: int, got: Tensor, state: Tensor, batch: int, weights: tuple[Tensor, ...], out: Tensor
) -> Tensor:
    """Compute the states after round t into ``out``; see `GRUUpdate` for the formulas."""
    size = state.shape[-1]
    gates, candidate, scaled = space.keep_reset[t], space.candidate[t], space.scaled[t]
    for rows, (w, b, u, _) in _by_type(weights, batch):
        for i in (0, 1):
            part = slice(i * size, (i + 1) * size)
            torch.addmm(b[part], got[rows], w[part].t(), out=gates[i][rows])
            gates[i][rows].addmm_(state[rows], u[part].t())
        torch.addmm(b[2 * size :], got[rows], w[2 * size :].t(), out=candidate[rows])
    gates.sigmoid_()
    torch.mul(gates[1], state, out=scaled)
    for rows, (_, _, _, v) in _by_type(weights, batch):
        candidate[rows].addmm_(scaled[rows], v.t())
    candidate.tanh_()
    return torch.lerp(candidate, state, gates[0], out=out)


def _by_type(weights: tuple[Tensor, ...] | list[Any], batch: int) -> tuple[tuple[slice, Any], tuple[slice, Any]]:
    """Return rows and weights of the root, then of the joints."""
    return (slice(0, batch), weights[0:4]), (slice(batch, None), weights[4:8])


class _Backward:
    """One backward pass, round by round from the last; gradients of weights add up over the rounds."""

    def __init__(
        self,
        rounds: Rounds,
        space: Workspace,
        states: Tensor,
        received: Tensor | None,
        weights: list[Tensor],
        batch: int,
        needed: tuple[bool, ...],
    ) -> None:
        self.rounds, self.space, self.weights, self.batch = rounds, space, weights, batch
        self.first = states.view(-1, states.shape[-1])
        self.received = None if received is None else received.reshape(self.first.shape)
        self.shape = states.shape
        self.needs_states, self.needs_received = needed[1], received is not None and needed[2]
        self.grads: list[Tensor | None] = [
            torch.zeros_like(w) if need else None for w, need in zip(weights, needed[3:], strict=True)
        ]
        assert space.spare is not None
        self.d_keep, self.d_reset, self.d_candidate, self.d_scaled, self.d_got, *self.d_state = space.spare

    def run(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of states, received and all weights."""
        upper = grad.contiguous().view(self.first.shape)
        d_received = None
        for t in reversed(range(self.rounds.count)):
            state = self.first if t == 0 else self.space.states[t - 1]
            given = t == 0 and self.received is not None
            got = self.received if given and self.received is not None else self.space.got[t]
            # Below the first round lies what does not train, or what autograd takes over.
            below = t > 0 or self.needs_states
            lower = self.d_state[t % 2] if below else None
            through = self.needs_received if given else self._message_matters(below)
            self._update(t, upper, got, state, lower, through)
            if given:
                d_received = self.d_got.clone().view(self.shape) if through else None
            elif through:
                self._messages(t, state, lower)
            if lower is not None:
                upper = lower
        d_states = upper.clone().view(self.shape) if self.needs_states else None
        return d_states, d_received, *self.grads

    def _message_matters(self, below: bool) -> bool:
        return self.rounds.adjacency is not None and (below or any(g is not None for g in self.grads[8:]))

    def _update(
        self, t: int, upper: Tensor, got: Tensor, state: Tensor, lower: Tensor | None, through: bool
    ) -> None:
        """Go back through the update of round t: ``lower`` gets the gradient of the state, ``d_got`` of messages."""
        (keep, reset), candidate, scaled = self.space.keep_reset[t], self.space.candidate[t], self.space.scaled[t]
        size = state.shape[-1]
        direct = self.d_got if lower is None else lower  # scratch where the state's gradient is not asked for
        torch.sub(state, candidate, out=self.d_keep).mul_(upper)
        _sigmoid_backward(self.d_keep, keep, grad_input=self.d_keep)
        torch.mul(upper, keep, out=direct)
        torch.sub(upper, direct, out=self.d_candidate)
        _tanh_backward(self.d_candidate, candidate, grad_input=self.d_candidate)
        for rows, (_, _, _, v) in _by_type(self.weights, self.batch):
            torch.mm(self.d_candidate[rows], v, out=self.d_scaled[rows])
        torch.mul(self.d_scaled, state, out=self.d_reset)
        _sigmoid_backward(self.d_reset, reset, grad_input=self.d_reset)
        if lower is not None:
            lower.addcmul_(self.d_scaled, reset)
        deltas = (self.d_keep, self.d_reset, self.d_candidate)
        pairs = zip(_by_type(self.weights, self.batch), _by_type(self.grads, self.batch), strict=True)
        for (rows, (w, _, u, _)), (_, (gw, gb, gu, gv)) in pairs:
            for i, delta in enumerate(deltas):
                part, d = slice(i * size, (i + 1) * size), delta[rows]
                if through:
                    torch.addmm(self.d_got[rows], d, w[part], beta=float(i > 0), out=self.d_got[rows])
                if lower is not None and i < 2:
                    lower[rows].addmm_(d, u[part])
                if gw is not None:
                    gw[part].addmm_(d.t(), got[rows])
                if gb is not None:
                    gb[part] += d.sum(0)
                if gu is not None and i < 2:
                    gu[part].addmm_(d.t(), state[rows])
                if gv is not None and i == 2:
                    gv.addmm_(d.t(), scaled[rows])

    def _messages(self, t: int, state: Tensor, lower: Tensor | None) -> None:
        """Go back through the messages of round t: from ``d_got`` into ``lower`` and the message function's weights."""
        nodes = self.shape[0]
        delta, other = self.d_keep, self.d_reset  # done with in this round
        assert self.rounds.adjacency is not None
        torch.mm(self.rounds.adjacency.t(), self.d_got.view(nodes, -1), out=delta.view(nodes, -1))
        sent, weights, grads = self.space.sent[t], self.weights[8:], self.grads[8:]
        for i in reversed(range(self.rounds.depth)):
            _tanh_backward(delta, sent[i], grad_input=delta)
            gw, gb = grads[2 * i], grads[2 * i + 1]
            if gw is not None:
                gw.addmm_(delta.t(), sent[i - 1] if i else state)
            if gb is not None:
                gb += delta.sum(0)
            if i:
                torch.mm(delta, weights[2 * i], out=other)
                delta, other = other, delta
            elif lower is not None:
                lower.addmm_(delta, weights[0])
