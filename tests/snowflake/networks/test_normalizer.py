"""The running statistics against NumPy on all data at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from snowflake.networks import RunningNorm


def test_statistics_are_those_of_all_data_ever_seen() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(loc=50.0 * i, scale=0.3 + i, size=(rows, 3, 4)) for i, rows in enumerate((1, 7, 400, 20))]
    group = torch.tensor([2, 0, 2])
    norm = RunningNorm(3, 4)
    for batch in batches:
        norm.update(torch.tensor(batch, dtype=torch.float64), group)
    data = np.concatenate(batches)
    for index, columns in ((0, [1]), (2, [0, 2])):
        rows = data[:, columns].reshape(-1, 4)
        np.testing.assert_allclose(norm.mean[index], rows.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(norm.var[index], rows.var(axis=0), rtol=1e-12)
        assert norm.count[index] == len(rows)
    assert norm.count[1] == 0


def test_forward_is_the_formula() -> None:
    rng = np.random.default_rng(1)
    data = rng.normal(loc=3.0, scale=[2.0, 0.001, 1.0], size=(500, 3)).astype(np.float32)
    norm = RunningNorm(1, 3)
    norm.update(torch.tensor(data))
    x = np.array([[4.0, 3.5, 1e4], [2.5, 3.001, -1e4]], dtype=np.float32)
    wide = data.astype(np.float64)
    scaled = (x - wide.mean(axis=0)) / np.sqrt(np.maximum(wide.var(axis=0), 0.01) + 1e-6)
    np.testing.assert_allclose(norm(torch.tensor(x)), np.clip(scaled, -5, 5), atol=1e-5)
    assert norm(torch.tensor(x))[:, 2].tolist() == [5.0, -5.0]


def test_many_small_batches_of_large_numbers_lose_nothing() -> None:
    """A float32 sum of squares would have no digit left here."""
    rng = np.random.default_rng(2)
    data = 10_000 + rng.normal(size=(2000, 1))
    norm = RunningNorm(1, 1)
    for rows in np.split(data, 200):
        norm.update(torch.tensor(rows))
    np.testing.assert_allclose(norm.var, data.var(axis=0, keepdims=True), rtol=1e-9)


def test_without_data_input_passes_unchanged() -> None:
    norm = RunningNorm(2, 3)
    x = 1000 * torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
    group = torch.tensor([0, 1])
    assert torch.equal(norm(x, group), x)
    norm.update(x[:0], group)
    assert torch.equal(norm(x, group), x)
    norm.update(x[:, :1], torch.tensor([0]))
    assert torch.equal(norm(x, group)[:, 1], x[:, 1])
    assert norm(x, group)[:, 0].abs().max() <= 5


def test_forward_moves_no_statistic() -> None:
    norm = RunningNorm(1, 2)
    norm.update(torch.randn(10, 2))
    before = {key: value.clone() for key, value in norm.state_dict().items()}
    norm.train()(torch.randn(10, 2))
    assert all(torch.equal(value, before[key]) for key, value in norm.state_dict().items())


@pytest.mark.parametrize("assign", [False, True])
def test_state_dict_holds_everything(assign: bool) -> None:
    norm, again = RunningNorm(2, 3), RunningNorm(2, 3)
    norm.update(3 + 2 * torch.randn(50, 3), 1)
    assert set(norm.state_dict()) == {"mean", "var", "count"}
    assert {value.dtype for value in norm.state_dict().values()} == {torch.float64}
    again.load_state_dict(norm.state_dict(), assign=assign)
    x = torch.randn(5, 3)
    assert torch.equal(again(x, 1), norm(x, 1))
    assert not torch.equal(again(x, 1), x)
