"""The recorder counts what a hand counts; the floor runs what was recorded, and nothing else."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from snowflake.bench import gemms
from snowflake.bench.gemms import Gemm, GemmFloor, Operand, record

NETWORK = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def train() -> None:
    NETWORK(torch.ones(7, 3)).sum().backward()


def shapes(found: Counter[Gemm]) -> Counter[tuple[tuple[int, ...], tuple[int, ...]]]:
    result: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    for gemm, n in found.items():
        result[gemm.left.size, gemm.right.size] += n
    return result


# Two products forward; backward two for weights, and one for the hidden layer, since the inputs ask for none.
BY_HAND = {((7, 3), (3, 5)): 1, ((7, 5), (5, 2)): 1, ((2, 7), (7, 5)): 1, ((5, 7), (7, 3)): 1, ((7, 2), (2, 5)): 1}


def test_forward_and_backward_of_a_network_by_hand() -> None:
    assert shapes(record(train)) == BY_HAND


def test_frozen_weights_cost_no_product() -> None:
    frozen = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)).requires_grad_(False)
    frozen[1].weight.requires_grad_(True)
    found = shapes(record(lambda: frozen(torch.ones(7, 3)).sum().backward()))
    assert found == {((7, 3), (3, 5)): 1, ((7, 5), (5, 2)): 1, ((2, 7), (7, 5)): 1}


def test_products_of_all_threads_and_all_kinds_count() -> None:
    def program() -> None:
        threads = [threading.Thread(target=train) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        out = torch.empty(4, 6)
        torch.mm(torch.ones(4, 2), torch.ones(2, 6), out=out)
        out.addmm_(torch.ones(4, 2), torch.ones(2, 6))
        torch.bmm(torch.ones(9, 4, 2), torch.ones(9, 2, 6))
        torch.mm(torch.ones(0, 2), torch.ones(2, 6))
        torch.mm(torch.eye(4).to_sparse_csr(), out)
        torch.ones(4) * 2

    found = record(program)
    assert shapes(found) == Counter(BY_HAND) + Counter(BY_HAND) + Counter(
        {((4, 2), (2, 6)): 2, ((9, 4, 2), (9, 2, 6)): 1}
    )
    (batched,) = (gemm for gemm in found if len(gemm.left.size) == 3)
    assert batched.flops == 2 * 9 * 4 * 2 * 6


def test_operands_keep_how_they_lie_in_memory() -> None:
    wide = torch.ones(8, 12)
    found = record(lambda: torch.mm(wide[:, :4], wide[:, 4:8].t()))
    assert list(found) == [Gemm(Operand((8, 4), (12, 1)), Operand((4, 8), (1, 12)), torch.float32)]
    expanded = record(lambda: torch.mm(torch.ones(1, 4).expand(8, 4), wide[:4]))
    assert next(iter(expanded)).left == Operand((8, 4), (4, 1))


class Products(TorchFunctionMode):
    """Notes what `torch.mm` and `torch.bmm` are called with, and whether they write into a result."""

    def __init__(self) -> None:
        self.seen: set[tuple[Operand, Operand]] = set()
        self.others: list[str] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.mm, torch.bmm) and kwargs:
            assert set(kwargs) == {"out"}
            self.seen.add(tuple(Operand(tuple(t.shape), tuple(t.stride())) for t in args))
        return func(*args, **(kwargs or {}))


def test_the_floor_runs_exactly_what_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemms, "BLOCK_SECONDS", 1e-6)
    found = record(train)
    floor = GemmFloor(found, threads=1)
    with Products() as products:
        times = floor.seconds()
    assert products.seen == {(gemm.left, gemm.right) for gemm in found}
    assert set(floor.executed) == set(found)
    assert set(times) == {"together", "floor"}


def test_the_floor_counts_every_product_and_takes_the_faster_way(monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = Gemm(Operand((2, 2), (2, 1)), Operand((2, 2), (2, 1)), torch.float32)
    other = gemm._replace(left=Operand((3, 2), (2, 1)))
    floor = GemmFloor(Counter({gemm: 5, other: 2}), threads=2)
    seconds = {(gemm, 1): 1.0, (other, 1): 10.0, (gemm, 2): 2.0, (other, 2): 3.0}
    monkeypatch.setattr(floor, "_time", lambda g, workers: seconds[g, workers])
    assert floor.seconds() == {"together": 25.0, "apart": 16.0, "floor": 16.0}


def test_threads_of_torch_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemms, "BLOCK_SECONDS", 1e-6)
    before = torch.get_num_threads()
    floor = GemmFloor(Counter({Gemm(Operand((2, 2), (2, 1)), Operand((2, 2), (2, 1)), torch.float32): 1}), threads=2)
    assert set(floor.seconds()) == {"together", "apart", "floor"}
    assert torch.get_num_threads() == before
