"""Attention and its stability methods: closed forms, bounds, a plain loop, gradients."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from snowflake.config.attention import AttentionConfig
from snowflake.config.attention_presets import VARIANTS
from snowflake.networks.transformer.attention import Attention, AttentionCore
from snowflake.networks.transformer.norms import LayerNorm, LayerScale, RMSNorm
from tests.snowflake.networks.transformer.helpers import attention_of, chain, normal, structure_of

EXACT = {"atol": 1e-10, "rtol": 0.0}


def queries(attention: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as the core gets them, each (N, h, V, d)."""
    seen: list[tuple[Tensor, ...]] = []
    hook = attention.core.register_forward_pre_hook(lambda _module, args: seen.append(args))
    attention(x, structure_of(chain(x.shape[1])))
    hook.remove()
    q, k, v, *_ = seen[0]
    return q.detach(), k.detach(), v.detach()


@pytest.mark.parametrize("c", [0.5, 5.0, 50.0])
def test_the_cap_bounds_keeps_order_and_barely_moves_small_logits(c: float) -> None:
    core = AttentionCore(AttentionConfig(softcap=str(c)), 16)
    x = torch.cat([torch.linspace(-4 * c, 4 * c, 2001, dtype=torch.float64), normal(500)]).sort().values
    x.requires_grad_(True)
    y = core.capped(x)
    assert bool((y.abs() <= c).all())
    assert bool((y.diff() >= 0).all())
    assert bool(((x - y).abs() <= x.abs() ** 3 / (3 * c * c) + 1e-12).all())
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert bool((slope > 0).all())
    assert bool((slope <= 1).all())
    off = AttentionCore(AttentionConfig(softcap="0"), 16)
    assert off.capped(x) is x


def test_the_cap_comes_before_bias_and_mask() -> None:
    core = AttentionCore(AttentionConfig(softcap="2"), 4)
    q, k, bias = 100 * normal(1, 1, 3, 4), normal(1, 1, 3, 4, seed=1), normal(1, 3, 3, seed=2) * 10
    visible = torch.tensor([[True, False, True], [True, True, False], [True, True, True]])
    weights = core.probabilities(core.capped(core.raw_logits(q, k)), bias, visible)[0, 0]
    assert bool((weights[~visible] == 0).all())
    logits = (2 * torch.tanh(q @ k.transpose(-2, -1) / 2 / 2) + bias)[0, 0]  # / sqrt(d), then / c
    for i in range(3):
        shares = torch.where(visible[i], logits[i].exp(), 0.0)
        torch.testing.assert_close(weights[i], shares / shares.sum(), **EXACT)


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e4])
def test_qk_norm_bounds_the_logits_whatever_the_input(scale: float) -> None:
    attention = attention_of(width=16, heads=2, norm="qk", pre_norm="off")
    q, k, _ = queries(attention, scale * normal(20, 5, 16))
    root = math.sqrt(8)
    assert float(attention.core.raw_logits(q, k).abs().max()) <= root + 1e-10
    same = attention.core.raw_logits(q, q).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(same, torch.full_like(same, root), atol=0.0, rtol=1e-4 if scale >= 1 else 0.5)
    attention.q_norm.weight.data, attention.k_norm.weight.data = normal(8, seed=3), normal(8, seed=4)
    q, k, _ = queries(attention, scale * normal(20, 5, 16))
    gains = float(attention.q_norm.weight.abs().max().detach() * attention.k_norm.weight.abs().max().detach())
    assert float(attention.core.raw_logits(q, k).abs().max()) <= root * gains + 1e-10


@pytest.mark.parametrize(("eps", "tolerance"), [(1e-5, 1e-3), (1e-12, 5e-11)])
def test_qk_norm_undoes_the_scale_of_weights_but_not_of_values(eps: float, tolerance: float) -> None:
    attention = attention_of(width=16, norm="qk")
    for norm in (attention.q_norm, attention.k_norm):
        norm.eps = eps
    x = normal(6, 5, 16)
    before = queries(attention, x)
    for layer in (attention.q, attention.k, attention.v):
        layer.weight.data *= 50.0
    after = queries(attention, x)
    for old, new in zip(before[:2], after[:2], strict=True):
        torch.testing.assert_close(new, old, atol=tolerance, rtol=0.0)
    torch.testing.assert_close(after[2], 50.0 * before[2], atol=0.0, rtol=1e-12)


def test_qkv_norm_undoes_the_scale_of_the_input() -> None:
    attention = attention_of(width=16, norm="qkv")
    assert isinstance(attention.norm, torch.nn.Identity)
    for norm in (attention.q_norm, attention.k_norm, attention.v_norm):
        norm.eps = 1e-13
    x = normal(6, 5, 16)
    for old, new in zip(queries(attention, x), queries(attention, 7.0 * x), strict=True):
        torch.testing.assert_close(new, old, **EXACT)


def reference(attention: Attention, x: Tensor, hops: np.ndarray, near: np.ndarray | None) -> np.ndarray:
    """`none` and `qk` with hop bias, in loops over plain numbers: x (V, H) -> what is added to it."""
    w = {name: getattr(attention, name).weight.detach().numpy() for name in ("q", "k", "v", "proj")}
    bias = attention.hop_bias.detach().numpy()
    nodes, width = x.shape
    head = width // attention.heads

    def normed(row: np.ndarray) -> np.ndarray:
        mean = sum(row) / len(row)
        return (row - mean) / math.sqrt(sum((value - mean) ** 2 for value in row) / len(row) + 1e-5)

    y = [normed(row) for row in x.numpy()]
    q, k, v = ([w[name] @ row for row in y] for name in ("q", "k", "v"))
    out = []
    for i in range(nodes):
        joined = []
        for h in range(attention.heads):
            part = slice(h * head, (h + 1) * head)
            logits = {
                j: sum(q[i][part] * k[j][part]) / math.sqrt(head) + bias[h, hops[i, j]]
                for j in range(nodes)
                if near is None or near[i, j]
            }
            total = sum(math.exp(value) for value in logits.values())
            joined += list(sum(math.exp(value) / total * v[j][part] for j, value in logits.items()))
        out.append(w["proj"] @ np.array(joined))
    return np.array(out)


@pytest.mark.parametrize("masked", [False, True])
def test_none_is_what_a_plain_loop_computes(masked: bool) -> None:
    attention, structure = attention_of(masked=masked, norm="none", max_hops=2), structure_of(chain(5), 2)
    x = normal(3, 5, 8)
    added = (attention(x, structure) - x).detach()
    assert structure.hops.tolist()[0] == [0, 1, 2, 2, 2]
    near = structure.near.numpy() if masked else None
    for row, wanted in zip(x, added, strict=True):
        got = reference(attention, row, structure.hops.numpy(), near)
        np.testing.assert_allclose(got, wanted.numpy(), atol=1e-10)


def test_gains_cannot_undo_qk_norm() -> None:
    """They restore the spread of queries and keys over all nodes, and still the weights are others: it acts by node."""
    plain, normed = attention_of(norm="none", bias="none"), attention_of(norm="qk", bias="none")
    x = normal(4, 5, 8)
    x[:, 0] *= 1e-3  # a node whose states hardly vary
    plain.norm = normed.norm = torch.nn.Identity()
    q, k, _ = queries(plain, x)
    for norm, values in ((normed.q_norm, q), (normed.k_norm, k)):
        norm.weight.data[:], norm.bias.data[:] = values.std(), values.mean()
    difference = plain(x, structure_of(chain(5))) - normed(x, structure_of(chain(5)))
    assert float(difference.detach().abs().max()) > 0.05


EXPECTED = {
    "none": set(),
    "soft_temp": set(),
    "soft_cap": set(),
    "soft_clip": set(),
    "layerscale": {"scale.factor"},
    "qk": {f"{part}_norm.{what}" for part in "qk" for what in ("weight", "bias")},
    "qkv": {f"{part}_norm.{what}" for part in "qkv" for what in ("weight", "bias")},
    "qk_fc": {f"{part}_norm.{what}" for part in ("q", "k", "out") for what in ("weight", "bias")},
}
EXPECTED["qk_cap"] = EXPECTED["qk"]


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_has_the_parameters_that_it_should(name: str) -> None:
    base = {f"{layer}.{what}" for layer in ("q", "k", "v", "proj") for what in ("weight", "bias")}
    base |= {"hop_bias", "norm.weight", "norm.bias"} if name != "qkv" else {"hop_bias"}
    assert {key for key, _ in attention_of(**VARIANTS[name]).named_parameters()} == base | EXPECTED[name]


def test_each_variant_computes_something_else() -> None:
    x, structure = 3 * normal(2, 5, 8), structure_of(chain(5))
    outputs = {}
    for name, settings in VARIANTS.items():
        attention = attention_of(**settings | {"softcap": "1" if settings["softcap"] != "0" else "0"})
        outputs[name] = attention(x, structure).detach()
    for a, b in itertools.combinations(outputs, 2):
        if {a, b} != {"qk", "qk_fc"}:  # which differ in the other half of a block, and here by the norm of proj
            assert float((outputs[a] - outputs[b]).abs().max()) > 1e-3, (a, b)


def test_temperature_clip_and_scale_in_closed_form() -> None:
    logits = torch.tensor([[[[math.log(1.0), math.log(4.0), math.log(15.0)]]]], dtype=torch.float64)
    core = AttentionCore(AttentionConfig(softmax="temp:0.5"), 4)
    roots = torch.tensor([1.0, 2.0, math.sqrt(15)], dtype=torch.float64)
    torch.testing.assert_close(core.probabilities(logits, None, None)[0, 0, 0], roots / roots.sum(), **EXACT)
    core = AttentionCore(AttentionConfig(softmax="clip:1.4,-0.2"), 4)
    clipped = core.stretched(core.probabilities(logits, None, None))[0, 0, 0]
    torch.testing.assert_close(
        clipped, torch.tensor([0.0, 0.12, 1.0], dtype=torch.float64), **EXACT
    )  # 1.6 p - 0.2 of 1/20, 4/20, 15/20
    scaled, bare = attention_of(residual="layerscale:0.125"), attention_of()
    x, structure = normal(2, 5, 8), structure_of(chain(5))
    torch.testing.assert_close(scaled(x, structure) - x, 0.125 * (bare(x, structure) - x), **EXACT)
    assert isinstance(scaled.scale, LayerScale)


@pytest.mark.parametrize("softmax", ["plain", "temp:0.5"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("norm", ["none", "qk", "qkv"])
def test_pytorchs_own_attention_agrees_with_the_steps(softmax: str, masked: bool, norm: str) -> None:
    attention = attention_of(masked=masked, norm=norm, softmax=softmax, bias="none")
    x, structure = normal(3, 6, 8), structure_of(chain(6))
    assert attention.core.fits_fused(*(queries(attention, x)[i] for i in (0, 2)), None)
    fused = attention(x, structure)
    attention.core.eager = True
    torch.testing.assert_close(attention(x, structure), fused, **EXACT)


def test_pytorchs_own_attention_is_not_asked_for_what_it_lacks() -> None:
    q, bias = normal(2, 2, 3, 4), normal(2, 3, 3)
    assert AttentionCore(AttentionConfig(), 4).fits_fused(q, q, None)
    assert not AttentionCore(AttentionConfig(), 4).fits_fused(q, q, bias)
    assert not AttentionCore(AttentionConfig(), 4).fits_fused(q[:1], q, None)
    assert not AttentionCore(AttentionConfig(softcap="50"), 4).fits_fused(q, q, None)
    assert not AttentionCore(AttentionConfig(softmax="clip:1.1,-0.1"), 4).fits_fused(q, q, None)


@pytest.mark.parametrize("name", ["soft_cap", "soft_temp", "qk_cap", "qkv", "qk_fc", "layerscale"])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients(name: str, masked: bool) -> None:
    attention = attention_of(width=4, masked=masked, **VARIANTS[name] | {"max_hops": 2})
    structure, x = structure_of(chain(4), 2), normal(2, 4, 4).requires_grad_(True)
    names, values = zip(*attention.named_parameters(), strict=True)

    def call(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(attention, dict(zip(names, parameters, strict=True)), (x, structure))

    assert torch.autograd.gradcheck(call, (x, *values), fast_mode=True)


def test_norms_are_computed_in_float32_and_return_the_type_that_they_got() -> None:
    x = normal(4, 8).to(torch.bfloat16)
    for norm, own in ((LayerNorm(8), torch.nn.LayerNorm(8)), (RMSNorm(8, eps=1e-5), torch.nn.RMSNorm(8, eps=1e-5))):
        y = norm(x)
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y, own(x.float()).to(torch.bfloat16), atol=0, rtol=0)


def test_logits_under_autocast_are_float32_before_the_softmax() -> None:
    core = AttentionCore(AttentionConfig(softcap="50"), 8)
    q = normal(2, 2, 3, 8).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = core.raw_logits(q, q)
        assert core.probabilities(core.capped(logits), None, None).dtype == torch.float32
        assert core(q, q, q.to(torch.bfloat16), None, None).dtype == torch.bfloat16
