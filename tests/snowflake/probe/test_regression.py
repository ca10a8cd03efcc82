"""Objective bc: the data, the loop, and what becomes of networks whose fate is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from agents.errors import UserError
from snowflake.config.probe import ProbeConfig
from snowflake.config.probe_variants import NAMES
from snowflake.probe import regression
from snowflake.probe.cells import CellMaker, check_guards
from snowflake.probe.data import RegressionSet, regression_set
from snowflake.probe.network import TokenRegression
from snowflake.probe.regression import row_of, train_regression, warmup
from snowflake.probe.row import ProbeRow
from snowflake.probe.stability import measure
from snowflake.probe.statistics import mean
from snowflake.probe.summary import summarize
from snowflake.probe.worker import run_regression
from tests.snowflake.probe import made_up


@pytest.fixture(scope="module")
def data() -> RegressionSet:
    return regression_set(0)


class Linear(nn.Module):
    """Reads each token alone; its output is not finite once it was called in training with a rate above ``limit``."""

    def __init__(self, limit: float = float("inf"), rate: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(12, 2)
        self.factor = float("nan") if rate > limit else 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * (self.factor if self.training and torch.is_grad_enabled() else 1.0)


class Constant(nn.Module):
    """Learns the mean, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mean.expand(*x.shape[:2], 2)


def judged(model: nn.Module, data: RegressionSet, rate: float = 0.01, updates: int = 100) -> ProbeRow:
    run = train_regression(model, data, rate=rate, updates=updates, batch_size=32, seed=0)
    return row_of(run, data, variant="none", rate=rate, seed=0)


def test_the_teacher_by_hand() -> None:
    found, again, other = regression_set(3), regression_set(3), regression_set(4)
    assert torch.equal(found.targets, again.targets)
    assert not torch.equal(found.targets, other.targets)
    draw = torch.Generator().manual_seed(3)
    w1, w2 = torch.randn(12, 12, generator=draw) / 12**0.5, torch.randn(12, 2, generator=draw)
    x = found.inputs[7]
    logits = torch.tensor([[2.0 * float(a @ w1 @ b) / 12**0.5 for b in x] for a in x])
    expected = torch.tanh(torch.softmax(logits, -1) @ x @ w2) + 0.5 * torch.sin(2.0 * x[:, :2])
    torch.testing.assert_close(found.targets[7], expected, atol=1e-5, rtol=1e-4)
    # A token's target depends on the other tokens, or the network would not need attention.
    assert 0.6 < found.target_variance < 1.0


def test_the_best_constant_costs_the_target_variance(data: RegressionSet) -> None:
    assert judged(Constant(), data).score == pytest.approx(data.target_variance, rel=0.05)


def test_a_constant_has_made_no_progress(data: RegressionSet) -> None:
    assert judged(Constant(), data).status == "no_progress"


def test_a_loss_that_is_not_finite_ends_the_run(data: RegressionSet) -> None:
    run = train_regression(Linear(0.1, 0.2), data, rate=0.2, updates=50, batch_size=8, seed=0)
    assert len(run.loss) == 1
    assert np.isfinite(run.initial_error)
    row = row_of(run, data, variant="none", rate=0.2, seed=0)
    assert (row.status, row.reason, row.update, row.detail) == ("diverged", "R1", 1, "loss not finite")
    assert len(train_regression(Linear(0.1, 0.01), data, rate=0.01, updates=50, batch_size=8, seed=0).loss) == 50


def test_the_bracket_contains_the_rate_above_which_the_loss_is_not_finite(data: RegressionSet) -> None:
    limit = 0.123

    def run(cells) -> list[ProbeRow]:
        out = []
        for cell in cells:
            own = cell.variant == "qk"
            fitted = train_regression(Linear(limit if own else 1e9, cell.rate), data, rate=cell.rate, updates=20,
                                      batch_size=64, seed=cell.seed)  # fmt: skip
            fitted = dataclasses.replace(fitted, final_error=0.1 if np.isfinite(fitted.final_error) else float("nan"))
            easy = dataclasses.replace(data, test_targets=data.test_targets * 10)  # all that is finite has learned
            out.append(row_of(fitted, easy, variant=cell.variant, rate=cell.rate, seed=cell.seed))
        return out

    rows, complete = measure(made_up.probe(seeds=2, refine=3), run)
    assert complete
    found = summarize(made_up.probe(seeds=2, refine=3), rows)["qk"]
    assert found.bracket.stable is not None
    assert found.bracket.unstable is not None
    assert found.bracket.stable <= limit < found.bracket.unstable
    assert found.bracket.unstable / found.bracket.stable < 1.2
    assert found.first_failure == "2 of 2 R1"


def test_warm_up_is_linear_over_a_twentieth() -> None:
    assert [warmup(k, 100) for k in (1, 2, 5, 6, 100)] == [0.2, 0.4, 1.0, 1.0, 1.0]
    assert warmup(1, 10) == 1.0


def test_the_rate_that_the_optimiser_sees(data: RegressionSet, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Adam(torch.optim.Adam):
        def step(self, closure=None):
            seen.append(self.param_groups[0]["lr"])
            return super().step(closure)

    monkeypatch.setattr(regression.torch.optim, "Adam", Adam)
    train_regression(Linear(), data, rate=0.5, updates=40, batch_size=4, seed=0)
    assert seen == [0.25, 0.5, *[0.5] * 38]


@pytest.mark.parametrize("variant", [*NAMES, "soft_cap:10", "qk:auto"])
def test_every_variant_trains_a_step_and_is_measured(variant: str) -> None:
    (cell, *_) = CellMaker(made_up.probe(variants=(variant,), layers=1)).cells([variant], [0.01])
    row = run_regression(dataclasses.replace(cell, updates=4))
    assert row.health["update"] == [1.0, 2.0, 3.0, 4.0] or row.health["update"] == [2.0, 4.0]
    assert {"L0/qkv/y_rms", "L0/proj/y_rms", "L0/fc1/y_rms", "L0/fc2/y_rms", "L0/entropy"} < set(row.health)
    assert ("L0/cap_frac" in row.health) == ("cap" in variant or ":" in variant)
    assert row == run_regression(dataclasses.replace(cell, updates=4))


def test_the_seed_decides_task_and_weights() -> None:
    cells = CellMaker(made_up.probe(layers=1)).cells(["qk"], [0.01])
    rows = [run_regression(dataclasses.replace(cell, updates=2)) for cell in cells[:2]]
    assert rows[0].initial != rows[1].initial
    assert rows[0].trivial != rows[1].trivial
    other = CellMaker(made_up.probe(layers=1)).cells(["qk"], [0.04])[0]
    assert run_regression(dataclasses.replace(other, updates=2)).initial == rows[0].initial


def test_tokens_attend_to_each_other() -> None:
    cell = CellMaker(made_up.probe()).cells(["none"], [0.01])[0]
    model = TokenRegression(12, cell.config.policy, torch.Generator().manual_seed(0))
    x = torch.randn(1, 12, 12, requires_grad=True)
    model(x)[0, 0].sum().backward()
    assert x.grad is not None
    assert (x.grad[0].norm(dim=-1) > 0).all()


def test_what_hides_divergence_is_refused() -> None:
    config = CellMaker(made_up.probe()).configs["qk"]
    check_guards(config)
    for section, change in (
        ("ppo", {"target_kl": 0.05}),
        ("ppo", {"learning_rate_schedule": "linear"}),
        ("ppo", {"component_learning_rates": {"decoder": 1e-4}}),
        ("evaluation", {"eval_freq": 1000}),
        ("policy", {"freeze": ("encoder",)}),
    ):
        guarded = dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **change)})
        with pytest.raises(UserError, match=f"{section}.{next(iter(change))} hides divergence"):
            check_guards(guarded)


@pytest.mark.slow
def test_the_toy_of_the_paper_s_ordering() -> None:
    """At 0.12 attention without a norm collapses to the mean with one-hot weights; behind a norm it trains."""
    names = ("none", "qk", "qkv", "qk_fc")
    cells = CellMaker(dataclasses.replace(ProbeConfig.quick(), updates=200)).cells(names, [0.12])
    rows = {c.variant: run_regression(c) for c in cells if c.seed == 0}
    assert (rows["none"].status, rows["none"].reason) == ("diverged", "R2")
    assert min(rows["none"].health[f"L{k}/entropy"][-1] for k in range(3)) < 0.05
    assert [rows[name].status for name in names[1:]] == ["stable"] * 3
    assert mean([rows[name].score for name in names[1:]]).value < 0.3
