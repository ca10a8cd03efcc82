"""The mixture of representations: which data take which format, hysteresis, and the ends of the thresholds."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest
import torch
from torch import Tensor

from snowflake.numerics.config import MixtureConfig, OperandConfig
from snowflake.numerics.formats import BF16, quantise
from snowflake.numerics.mor import CachedChoice, relative_errors, select
from snowflake.numerics.operand import Quantiser
from snowflake.numerics.stats import OperandStatistics, Statistics

LADDER = ("e4m3", "e5m2", "bf16")
IMMEDIATE = MixtureConfig(choice="immediate")
SIZE = 512


def normal(seed: int = 0) -> Tensor:
    return torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(seed))


def data(kind: str, seed: int = 0) -> Tensor:
    x = normal(seed)
    match kind:
        case "relu":
            return x.relu()
        case "cube":
            return x**3
        case "rows":
            u = torch.empty(SIZE, 1).uniform_(-12, 12, generator=torch.Generator().manual_seed(1))
            return x * torch.exp2(u)
        case "outlier":
            x[17, 300] = 1e4
            return x
        case "normal":
            return x
    return torch.exp(float(kind.removeprefix("lognormal")) * x)


def mixture(x: Tensor, config: OperandConfig) -> tuple[Tensor, OperandStatistics]:
    statistics = Statistics(["x"])
    values = Quantiser("x", config, IMMEDIATE, statistics)(x, sample=True).values()
    return values, statistics.read()["x"]


def config(granularity: str, block: tuple[int, int] = (1, 1)) -> OperandConfig:
    return OperandConfig(formats=LADDER, scale="gam", granularity=granularity, block=block)


# Shares of E4M3, E5M2, BF16, for the tensor, blocks of 128 x 128, of 1 x 128, and rows.
TABLE = {
    "normal": ([1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]),
    "relu": ([1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]),
    "cube": ([0, 1, 0], [0, 1, 0], [0.18, 0.79, 0.04], [0.01, 0.99, 0]),
    "lognormal2": ([0, 1, 0], [0.56, 0.44, 0], [0.99, 0.01, 0], [0.98, 0.02, 0]),
    "lognormal3": ([0, 1, 0], [0, 1, 0], [0.11, 0.89, 0], [0, 1, 0]),
    "lognormal4": ([0, 0, 1], [0, 0, 1], [0, 0.87, 0.13], [0, 0.63, 0.37]),
    "rows": ([0, 1, 0], [0, 1, 0], [1, 0, 0], [1, 0, 0]),
    "outlier": ([0, 1, 0], [0.94, 0.06, 0], [1, 0, 0], [1, 0, 0]),
}
# The share of 16 blocks that each go one way or the other, over draws of the data, spreads by (0.56 * 0.44 / 16)^1/2 =
# 0.12: one draw is no test of a mean to 0.05. That of 48 draws spreads by 0.018.
DRAWS = {("lognormal2", 1): 48}


@pytest.mark.parametrize("kind", TABLE)
def test_oracle_22_shares(kind: str) -> None:
    configs = (config("tensor"), config("block", (128, 128)), config("block", (1, 128)), config("row"))
    for i, (wanted, how) in enumerate(zip(TABLE[kind], configs, strict=True)):
        draws = range(DRAWS.get((kind, i), 1))
        formats = [mixture(data(kind, seed), how)[1].formats for seed in draws]
        got = [mean(found[name] for found in formats) for name in LADDER]
        assert got == pytest.approx(wanted, abs=0.05), (kind, how.granularity, how.block)


def test_oracle_22_monotone_in_the_thresholds() -> None:
    x = data("lognormal3")
    shares = []
    for t in (0.0, 0.02, 0.03, 0.045, 0.06, 0.5, float("inf")):
        formats = mixture(x, replace(config("block", (1, 128)), thresholds=(t, t)))[1].formats
        shares.append((formats["e4m3"], formats["e4m3"] + formats["e5m2"]))
    assert shares[0] == (0.0, 0.0)
    assert shares[-1] == (1.0, 1.0)
    assert [s[1] for s in shares] == sorted(s[1] for s in shares)
    assert [s[0] for s in shares] == sorted(s[0] for s in shares)


def test_oracle_23_all_bf16_is_bf16_bit_for_bit() -> None:
    x = data("lognormal4")
    values, statistics = mixture(x, replace(config("row"), thresholds=(0.0, 0.0)))
    assert statistics.formats["bf16"] == 1.0
    assert torch.equal(values, quantise(x, BF16))


def test_all_zero_takes_the_first_format() -> None:
    values, statistics = mixture(torch.zeros(4, 4), config("row"))
    assert torch.equal(values, torch.zeros(4, 4))
    assert statistics.formats["e4m3"] == 1.0


def test_errors_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    q = torch.tensor([[1.5, 0.0, 2.0], [0.0, 0.0, 0.0]])
    assert relative_errors(x, q, "tensor", (1, 1)).item() == 0.25
    assert relative_errors(x, q, "row", (1, 1)).tolist() == [[0.25], [0.0]]
    assert relative_errors(x, q, "block", (2, 2)).tolist() == [[0.5, 0.0]]
    errors = [torch.tensor([0.01, 0.05, 0.2, float("nan")]), torch.tensor([0.05, 0.05, 0.1, float("nan")])]
    assert select(errors, (0.045, 0.055)).tolist() == [0, 1, 2, 2]


def test_hysteresis() -> None:
    choice = CachedChoice(config("tensor"), MixtureConfig(promote_after=3, promote_below=0.9))
    good, border, bad, worst = (0.02, 0.04), (0.044, 0.05), (0.06, 0.045), (0.9, 0.2)
    assert not choice.check(good)
    assert choice.check(bad)
    assert choice.index == 1
    assert [choice.check(good), choice.check(good)] == [False, False]
    assert not choice.check(border)  # within the threshold, but not well within: starts the count anew
    assert [choice.check(good) for _ in range(3)] == [False, False, True]
    assert choice.index == 0
    assert choice.check(worst)
    assert choice.index == 2
    restored = CachedChoice(config("tensor"), MixtureConfig())
    restored.load(choice.state())
    assert (restored.index, restored.changes) == (2, 3)


def test_cached_choice_changes_in_step_only() -> None:
    how = OperandConfig(formats=LADDER, scale="gam")
    quantiser = Quantiser("x", how, MixtureConfig(promote_after=1), Statistics(["x"]))
    x = data("lognormal3")[:64]
    assert quantiser(x, sample=True).format is not None
    assert quantiser.format.name == "e4m3"  # type: ignore[union-attr]
    assert quantiser.step(quantiser.pending())
    assert quantiser.format.name == "e5m2"  # type: ignore[union-attr]
    assert not quantiser.step(quantiser.pending())  # nothing was seen
    quantiser(normal()[:64], sample=True)
    assert quantiser.step(quantiser.pending())
    assert quantiser.format.name == "e4m3"  # type: ignore[union-attr]
