"""The matrix products (GEMMs) of a program: which they are, and how fast the machine computes them alone."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

_OPERANDS = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::addmm": 1,
    "aten::addmm_": 1,
    "aten::baddbmm": 1,
    "aten::baddbmm_": 1,
}
"""Operations that are one GEMM each, and which of their arguments is the first factor."""
BLOCK_SECONDS = 1e-3
BLOCKS = 5


class Operand(NamedTuple):
    """A factor: as it lies in memory, so that a transposed one is timed transposed."""

    size: tuple[int, ...]
    stride: tuple[int, ...]


class Gemm(NamedTuple):
    """A matrix product, batched where the factors have three axes."""

    left: Operand
    right: Operand
    dtype: torch.dtype

    @property
    def flops(self) -> int:
        """Additions and multiplications."""
        *batch, m, k = self.left.size
        return 2 * m * k * self.right.size[-1] * (batch[0] if batch else 1)


def record(program: Callable[[], Any], device: str = "cpu") -> Counter[Gemm]:
    """Run a program and return which GEMMs it executed, in all threads, and how often.

    Read from PyTorch's profiler, which sees `mm`, `bmm`, `addmm` and `baddbmm` wherever they are called from: autograd,
    worker threads, hand-written and compiled code. Empty products and those of sparse matrices are not counted.
    """
    activities = [ProfilerActivity.CPU]
    everywhere = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=activities, record_shapes=True, experimental_config=everywhere) as profiler:
        program()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
    found: Counter[Gemm] = Counter()
    for event in _walk(profiler.profiler.kineto_results.experimental_event_tree()):  # type: ignore[union-attr]
        first = _OPERANDS.get(event.name)
        if first is not None:
            left, right = event.extra_fields.inputs[first : first + 2]
            dense = all(factor.layout == torch.strided for factor in (left, right))
            if dense and 0 not in (*left.sizes, *right.sizes):
                found[Gemm(_operand(left), _operand(right), left.dtype)] += 1
    return found


def _walk(events: Iterable[Any]) -> Iterator[Any]:
    stack = list(events)
    while stack:
        event = stack.pop()
        yield event
        stack.extend(event.children)


def _operand(tensor: Any) -> Operand:
    size, stride = tuple(tensor.sizes), tuple(tensor.strides)
    if any(step == 0 and n > 1 for step, n in zip(stride, size, strict=True)):  # expanded: time it as if it were full
        stride = tuple(torch.empty(size, device="meta").stride())
    return Operand(size, stride)


class GemmFloor:
    """Times each GEMM alone, into an existing result (`out=`), on operands that are warm in the cache.

    Two ways to use the threads are timed, and the faster total counts: all threads on one GEMM after the other, and
    every thread on GEMMs of its own.

    Args:
        gemms: how often each occurs.
        device: where.
        threads: threads of the program whose floor it is.
    """

    def __init__(self, gemms: Counter[Gemm], device: str = "cpu", threads: int = 1) -> None:
        self.gemms, self.device, self.threads = gemms, device, threads
        self.executed: Counter[Gemm] = Counter()
        self._settle = torch.cuda.synchronize if device.startswith("cuda") else None

    def seconds(self) -> dict[str, float]:
        """Return the time of all GEMMs: `together` (threads on one GEMM), `apart` (one GEMM a thread), `floor`."""
        together = sum(n * self._time(gemm, 1) for gemm, n in self.gemms.items())
        if self.threads == 1 or self._settle is not None:
            return {"together": together, "floor": together}
        apart = sum(n * self._time(gemm, self.threads) for gemm, n in self.gemms.items())
        return {"together": together, "apart": apart, "floor": min(together, apart)}

    def _time(self, gemm: Gemm, workers: int) -> float:
        """Return the seconds of one product; with several workers, of one product a worker over their number."""
        self.executed[gemm] += 1
        before = torch.get_num_threads()
        if workers == 1:
            torch.set_num_threads(self.threads)  # training leaves PyTorch one: its own threads share the work
            together = statistics.median(_blocks(self._product(gemm), self._settle))
            torch.set_num_threads(before)
            return together
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            times = list(pool.map(lambda _: _blocks(self._product(gemm), None), range(workers)))
        torch.set_num_threads(before)
        return statistics.median(t for blocks in times for t in blocks) / workers

    def _product(self, gemm: Gemm) -> Callable[[], Any]:
        left, right = (self._make(operand, gemm.dtype) for operand in (gemm.left, gemm.right))
        product = torch.bmm if left.dim() == 3 else torch.mm
        out = product(left, right)
        return lambda: product(left, right, out=out)

    def _make(self, operand: Operand, dtype: torch.dtype) -> Tensor:
        tensor = torch.empty_strided(operand.size, operand.stride, dtype=dtype, device=self.device)
        return tensor.uniform_(-1.0, 1.0)


def _blocks(product: Callable[[], Any], settle: Callable[[], None] | None) -> list[float]:
    """Return the seconds of one call, from blocks of calls that are long against the clock's resolution."""

    def block(calls: int) -> float:
        if settle is not None:
            settle()
        start = time.perf_counter()
        for _ in range(calls):
            product()
        if settle is not None:
            settle()
        return (time.perf_counter() - start) / calls

    once = min(block(2), block(2))
    calls = max(1, int(BLOCK_SECONDS / max(once, 1e-9)))
    return [block(calls) for _ in range(BLOCKS)]
