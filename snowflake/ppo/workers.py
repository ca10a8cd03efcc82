"""Threads that share the work of a minibatch on the CPU, with the same numbers however many there are.

A minibatch is cut into parts of a size that depends on the network alone. Each part is computed by one thread from
beginning to end, so that its arrays stay in one core's cache, and gradients are added in the order of the parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

Gradients = list[Tensor | None]
Part = tuple[tuple[Tensor | None, ...], tuple[Tensor, ...]]
"""Gradients of one part of a minibatch, and what else its loss function gave."""


class Workers:
    """A pool of threads, the calling one included.

    Args:
        threads: how many, 1 or more.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._executor: ThreadPoolExecutor | None = None

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run the tasks and return their results in order. They see whether the caller wants gradients.

        Raises:
            Exception: what a task raised; those that had not begun by then are left out.
        """
        if self.threads == 1 or len(tasks) < 2:
            return [task() for task in tasks]
        if self._executor is None:
            # Each thread of PyTorch's has a number of threads of its own to share work with.
            self._executor = ThreadPoolExecutor(self.threads - 1, "update", torch.set_num_threads, (1,))
        results: dict[int, T] = {}
        left = deque(enumerate(tasks))
        grad = torch.is_grad_enabled()

        def work() -> None:
            with torch.set_grad_enabled(grad):
                while left:
                    try:
                        i, task = left.popleft()
                    except IndexError:  # another thread was faster
                        return
                    try:
                        results[i] = task()
                    except BaseException:
                        left.clear()
                        raise

        others = [self._executor.submit(work) for _ in range(min(self.threads, len(tasks)) - 1)]
        try:
            work()
        finally:
            wait(others)
        for other in others:
            other.result()
        return [results[i] for i in range(len(tasks))]

    @contextmanager
    def alone(self, wanted: bool = True) -> Iterator[None]:
        """Let no operation on the CPU start threads of its own meanwhile, if that is wanted."""
        before = torch.get_num_threads()
        if wanted:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def gradient_tasks(
    loss: Callable[[Tensor], tuple[Tensor, ...]], index: Tensor, rows: int, parameters: Sequence[Tensor]
) -> list[Callable[[], Part]]:
    """Return tasks that differentiate a loss on parts of a minibatch.

    Args:
        loss: of transitions (n,) int64: their share of the loss, and whatever else is to be returned.
        index: the minibatch, (B,) int64.
        rows: transitions in a part.
        parameters: with respect to these.
    """

    def task(part: Tensor) -> Part:
        value, *rest = loss(part)
        return torch.autograd.grad(value, parameters, allow_unused=True), tuple(rest)

    return [partial(task, part) for part in index.split(rows)]


def add_up(parts: Sequence[Part]) -> Gradients:
    """Return the sums of the parts' gradients, in their order; None for a parameter that no part used."""
    total = list(parts[0][0])
    for grads, _ in parts[1:]:
        pairs = [(i, a, b) for i, (a, b) in enumerate(zip(total, grads, strict=True)) if not (a is None or b is None)]
        total = [b if a is None else a for a, b in zip(total, grads, strict=True)]
        if pairs:
            both, left, right = zip(*pairs, strict=True)
            sums = torch._foreach_add(left, right)  # type: ignore[attr-defined]  # has no public name
            for i, value in zip(both, sums, strict=True):
                total[i] = value
    return total
