"""SparQ attention against closed forms, and its traffic against an instrumented count."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from snowflake.config.policy import PolicyConfig
from snowflake.networks.init import Initializer
from snowflake.networks.memory.attention import WindowAttention
from snowflake.networks.memory.sparq import SparqSettings, dense_attention, sparq_attention
from snowflake.networks.memory.traffic import Traffic, dense_traffic, settings_for_ratio, sparq_traffic

COUNT, SIZE = 12, 8


def draw(*batch: int, groups: int = 2, seed: int = 0, count: int = COUNT, size: int = SIZE) -> tuple[Tensor, ...]:
    """Query, keys, values, valid positions (some are not), in float64."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(*batch, rows, size, generator=generator).double() for rows in (groups, count, count))
    valid = torch.rand(*batch, count, generator=generator) < 0.8
    valid[..., 0] = True
    return q, k, v, valid


def mean_of(v: Tensor, valid: Tensor) -> Tensor:
    return (v * valid[..., None]).sum(-2) / valid.sum(-1, keepdim=True)


def sparse(q: Tensor, k: Tensor, v: Tensor, valid: Tensor, r: int, top: int, **more: Any) -> Any:
    settings = SparqSettings(r, top, more.pop("reallocate", True), more.pop("softcap", 0.0))
    return sparq_attention(q, k, v, valid, mean_of(v, valid), settings, **more)


@pytest.mark.parametrize("softcap", [0.0, 1.0])
@pytest.mark.parametrize(("r", "top"), [(SIZE, COUNT), (2, COUNT), (1, 99)])
def test_all_positions_are_dense_attention_for_any_r(r: int, top: int, softcap: float) -> None:
    q, k, v, valid = draw(5, 3)
    result = sparse(q, k, v, valid, r, top, softcap=softcap)
    torch.testing.assert_close(
        result.output, dense_attention(q, k, v, valid[..., None, :], softcap), atol=1e-10, rtol=0
    )
    torch.testing.assert_close(result.alpha, torch.ones(5, 3, 2).double(), atol=1e-10, rtol=0)


def test_all_components_give_the_closed_form() -> None:
    q, k, v, valid = draw(5, groups=1)
    result = sparse(q, k, v, valid, SIZE, 3)
    weights = (q @ k.mT / math.sqrt(SIZE)).masked_fill(~valid[:, None], -torch.inf).softmax(-1)[:, 0]
    top = weights.topk(3).indices
    mass = weights.gather(-1, top)
    chosen = torch.stack([v[i, top[i]] for i in range(5)])
    y = (mass / mass.sum(-1, keepdim=True))[:, None] @ chosen
    alpha = mass.sum(-1)[:, None, None]
    torch.testing.assert_close(result.alpha, alpha[..., 0], atol=1e-10, rtol=0)
    torch.testing.assert_close(result.output, alpha * y + (1 - alpha) * mean_of(v, valid)[:, None], atol=1e-10, rtol=0)


@pytest.mark.parametrize(("r", "top"), [(1, 1), (3, 4), (8, 2)])
def test_weights_sum_to_one_and_equal_values_stay(r: int, top: int) -> None:
    q, k, _, valid = draw(50)
    value = torch.randn(SIZE, generator=torch.Generator().manual_seed(3)).double()
    result = sparse(q, k, value.expand(50, COUNT, SIZE), valid, r, top)
    torch.testing.assert_close(result.output, value.expand(50, 2, SIZE), atol=1e-10, rtol=0)
    assert (result.alpha >= 0).all()
    assert (result.alpha <= 1 + 1e-12).all()


def test_a_query_with_few_components_needs_no_more() -> None:
    q, k, v, valid = draw(20, groups=1)
    q[..., 3:] = 0.0
    few, all_ = (sparse(q, k, v, valid, r, 4) for r in (3, SIZE))
    torch.testing.assert_close(few.output, all_.output, atol=1e-10, rtol=0)
    zero = sparse(torch.zeros_like(q), k, v, valid, 2, COUNT)
    torch.testing.assert_close(zero.output, mean_of(v, valid)[:, None], atol=1e-10, rtol=0)


def test_order_of_the_cache_and_what_is_masked_do_not_matter() -> None:
    q, k, v, valid = draw(20)
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(4))
    plain = sparse(q, k, v, valid, 3, 4)
    moved = sparse(q, k[:, order], v[:, order], valid[:, order], 3, 4)
    torch.testing.assert_close(moved.output, plain.output, atol=1e-10, rtol=0)
    mean = mean_of(v, valid)
    for rubbish in (1e6, torch.nan):
        bad = [torch.where(valid[..., None], x, rubbish) for x in (k, v)]
        for top in (4, COUNT):
            got = sparq_attention(q, *bad, valid, mean, SparqSettings(3, top))
            want = sparq_attention(q, k, v, valid, mean, SparqSettings(3, top))
            torch.testing.assert_close(got.output, want.output, atol=1e-10, rtol=0)
    one = torch.zeros_like(valid)
    one[:, 5] = True
    torch.testing.assert_close(sparse(q, k, v, one, 3, 4).output, v[:, 5:6].expand(-1, 2, -1), atol=0, rtol=0)


def test_layouts_agree_exactly_and_groups_choose_together() -> None:
    q, k, v, valid = draw(20)
    both = sparse(q, k, v, valid, 3, 4, keys_by_component=k.mT.contiguous())
    single = sparse(q, k, v, valid, 3, 4)
    assert torch.equal(both.output, single.output)
    assert both.chosen.shape == (20, 4)  # one choice for the two query heads
    doubled = sparse(q[:, :1].expand(-1, 2, -1), k, v, valid, 3, 4)
    alone = sparse(q[:, :1], k, v, valid, 3, 4)
    torch.testing.assert_close(doubled.output, alone.output.expand(-1, 2, -1), atol=1e-12, rtol=0)


def test_forced_positions_are_always_chosen_and_counted() -> None:
    q, k, v, valid = draw(100)
    forced = torch.zeros_like(valid)
    forced[:, [2, 7]] = True
    forced &= valid
    result = sparse(q, k, v, valid, 2, 4, forced=forced)
    assert result.chosen.shape[-1] == 4
    marked = torch.zeros_like(valid).scatter(-1, result.chosen, torch.ones_like(result.used))
    assert marked[forced].all()


def test_error_falls_with_k_and_reallocation_helps() -> None:
    q, k, v, _ = draw(300, groups=1, count=40)
    valid = torch.ones(300, 40, dtype=torch.bool)
    exact = dense_attention(q, k, v, valid[..., None, :])
    errors = [
        [
            (sparse(q, k, v, valid, 4, top, reallocate=on).output - exact).abs().mean().item()
            for top in (2, 4, 8, 16, 32)
        ]
        for on in (True, False)
    ]
    for row in errors:
        assert row == sorted(row, reverse=True)
    assert all(a < b for a, b in zip(*errors, strict=True))


def test_coverage_of_a_gaussian_query() -> None:
    q, k, v, valid = draw(4000, groups=1, count=2, size=64)
    assert sparse(q, k, v, valid, 16, 2).coverage.mean().item() == pytest.approx(0.513, abs=0.01)


@pytest.mark.parametrize("reallocate", [True, False])
@pytest.mark.parametrize(("both", "dtype"), [(True, torch.float32), (True, torch.bfloat16), (False, torch.float32)])
def test_counted_traffic_is_the_formula(both: bool, dtype: torch.dtype, reallocate: bool) -> None:
    q, k, v, valid = (x.to(dtype) if x.is_floating_point() else x for x in draw(7, 3, count=32, size=16))
    traffic = Traffic()
    columns = k.mT.contiguous() if both else None
    sparse(q, k, v, valid, 4, 5, reallocate=reallocate, keys_by_component=columns, traffic=traffic)
    size = q.element_size()
    elements, sectors = sparq_traffic(16, 32, size, 4, 5, reallocate=reallocate, both_layouts=both)
    assert (traffic.queries, traffic.elements) == (21, 21 * elements)
    assert elements == 32 * 4 + 2 * 5 * 16 + (4 if reallocate else 2) * 16
    if both:  # r rows of S numbers, 2 k rows of d, and what is written
        assert traffic.sectors == 21 * sectors
        assert sectors == 4 * (32 * size // 32) + (2 * 5 + (4 if reallocate else 2)) * (16 * size // 32)
        assert traffic.scattered == 21 * 16
    else:  # the formula takes the expected number
        assert traffic.sectors / 21 == pytest.approx(sectors, rel=0.15)
    dense = Traffic()
    dense.dense(k)
    assert (dense.elements, dense.sectors) == tuple(21 * x for x in dense_traffic(16, 32, size))
    assert dense.elements == 21 * (2 * 32 * 16 + 2 * 16)


def test_ratio_of_the_settings_for_a_ratio() -> None:
    for ratio in (2, 4, 8):
        r, k = settings_for_ratio(128, 16_384, ratio)
        share = sparq_traffic(128, 16_384, 2, r, k)[0] / dense_traffic(128, 16_384, 2)[0]
        assert share == pytest.approx(1 / ratio, rel=0.01)


def test_running_mean_follows_the_window_through_wraps_and_resets() -> None:
    window = 16
    config = PolicyConfig(
        memory="window", memory_width=8, memory_window=window, sparq="rollout", sparq_min_bytes=0, sparq_k=4
    )
    generator = torch.Generator().manual_seed(0)
    layer = WindowAttention(config, 0, Initializer("independent", generator))
    state = {"clock": torch.zeros(3, dtype=torch.long), **layer.initial_state(3, 2, sparse=True)}
    worst = 0.0
    with torch.no_grad():
        for t in range(20 * window):
            x = 100.0 + 50.0 * torch.randn(3, 2, 8, generator=generator)
            layer.step(x, state)
            for row in range(3):
                seen = min(int(state["clock"][row]) + 1, window)
                exact = state["values0"][row, :, :, :seen].double().sum(-2)
                worst = max(worst, float(((state["sum0"][row] - exact) / seen).abs().max()))
            assert torch.equal(state["columns0"], state["keys0"].mT)
            state["clock"] += 1
            for row in (0, 2) if t % 37 == 36 else ():
                state["clock"][row], state["sum0"][row] = 0, 0
    assert worst < 1e-4 * 150
