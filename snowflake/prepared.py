"""Observations of one or several bodies as a network reads them: by body, and with all that is constant worked out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from snowflake.networks import Network

T = TypeVar("T")


class Runner(Protocol):
    """Runs tasks, in threads perhaps: `snowflake.ppo.workers.Workers`."""

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Return the results in order."""
        ...


class Part(NamedTuple):
    """The rows of one body.

    Attributes:
        body: index of the body.
        rows: which rows of the batch they are, int64; None for all of them, in order.
        tensors: what the network prepared; rows are the second to last axis.
    """

    body: int
    rows: Tensor | None
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class PreparedBatch:
    """What a network makes of N observations before its first trainable parameter.

    Under a frozen encoder and message function that is the first states and the first messages. An update computes it
    once and takes its minibatches from it.

    Attributes:
        size: N.
        parts: the bodies that occur, in order.
        body: index of the body of each row, (N,) int64 on the CPU; None with one body.
        position: place of each row among those of its body, likewise.
    """

    size: int
    parts: tuple[Part, ...]
    body: Tensor | None = None
    position: Tensor | None = None

    @classmethod
    def of(cls, network: Network, obs: Tensor, body: Tensor | None, runner: Runner | None = None) -> PreparedBatch:
        """Prepare observations ``(N, D)``.

        Args:
            network: an actor or a critic.
            obs: float32.
            body: index of the body of each row, (N,) int64; None with one body.
            runner: shares the work; it needs the CPU, and no gradients.
        """
        if body is None:
            return cls(len(obs), (Part(0, None, _prepare(network, obs, 0, runner)),))
        host = body.cpu()
        position = torch.empty_like(host)
        parts = []
        for k in range(len(network.graphs)):
            rows = torch.nonzero(host == k)[:, 0]
            if len(rows):
                position[rows] = torch.arange(len(rows))
                rows = rows.to(obs.device, non_blocking=True)
                parts.append(Part(k, rows, _prepare(network, obs.index_select(0, rows), k, runner)))
        return cls(len(obs), tuple(parts), host, position)

    def select(self, index: Tensor) -> PreparedBatch:
        """Return the rows of an index (B,) int64 on the CPU, in its order.

        On the CPU, so that nothing waits for a device to tell which rows belong to which body.
        """
        if self.body is None or self.position is None:
            (part,) = self.parts
            return PreparedBatch(len(index), (Part(0, None, _rows(part.tensors, index)),))
        body, position = self.body[index], self.position[index]
        parts = []
        for part in self.parts:
            rows = torch.nonzero(body == part.body)[:, 0]
            if len(rows):
                tensors = _rows(part.tensors, position[rows])
                parts.append(Part(part.body, rows.to(tensors[0].device, non_blocking=True), tensors))
        return PreparedBatch(len(index), tuple(parts))

    def change(self, how: Callable[[Part], tuple[Tensor, ...]]) -> PreparedBatch:
        """Return the batch with the tensors that ``how`` makes of each part's."""
        return dataclasses.replace(self, parts=tuple(part._replace(tensors=how(part)) for part in self.parts))

    def join(self, columns: list[Tensor]) -> Tensor:
        """Return one result a part, ``(rows of the part, ...)``, as ``(N, ...)`` in the order of the batch."""
        (first, *others) = columns
        if not others and (self.parts[0].rows is None or len(first) == self.size):
            return first
        back = torch.argsort(torch.cat([part.rows for part in self.parts if part.rows is not None]))
        return torch.cat(columns)[back]


def _prepare(network: Network, obs: Tensor, k: int, runner: Runner | None) -> tuple[Tensor, ...]:
    if runner is None or obs.device.type != "cpu":
        return network.prepare(obs, k)
    parts = runner.run([partial(network.prepare, part, k) for part in obs.split(network.rows_at_once())])
    return parts[0] if len(parts) == 1 else tuple(torch.cat(column, dim=-2) for column in zip(*parts, strict=True))


def _rows(tensors: tuple[Tensor, ...], index: Tensor) -> tuple[Tensor, ...]:
    index = index.to(tensors[0].device, non_blocking=True)
    return tuple(tensor.index_select(-2, index) for tensor in tensors)
