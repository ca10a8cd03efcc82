"""Backends: the probe, the choice of one, padding, and what each refuses."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from agents.errors import UserError
from snowflake.numerics import E4M3, E5M2, OperandConfig
from snowflake.numerics.backends import Emulate, ScaledMM, Verdict, backend_names, base, choose, find_backend, verdict
from snowflake.numerics.config import MixtureConfig
from snowflake.numerics.operand import Operand, Quantiser, bf16_operand
from snowflake.numerics.stats import Statistics

CPU = torch.device("cpu")


def operand(x: Tensor, codes: bool = True, **config: object) -> Operand:
    quantiser = Quantiser("x", OperandConfig(**config), MixtureConfig(), Statistics(["x"]))  # type: ignore[arg-type]
    return quantiser(x, codes=codes)


def normal(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))


def test_names_and_errors() -> None:
    assert set(backend_names()) >= {"auto", "emulate", "scaled_mm", "triton"}
    assert isinstance(find_backend("scaled_mm"), ScaledMM)
    with pytest.raises(UserError, match=r"backend = 'scaled_nn' is not one: did you mean 'scaled_mm'"):
        find_backend("scaled_nn")


def test_triton_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_FACTORIES", {})
    for name in [name for name in sys.modules if name.startswith("snowflake.numerics.kernels")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(UserError, match=r"backend 'triton' cannot be used here \(.*triton.*\): choose emulate"):
        find_backend("triton")


def test_cpu_emulates_and_says_so() -> None:
    backend, reason = choose("auto", CPU)
    assert isinstance(backend, Emulate)
    assert reason == "no 8-bit products on cpu"
    assert choose("scaled_mm", CPU)[1] == "as asked for"


def test_verdict_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(base, "_VERDICTS", {})
    with caplog.at_level(logging.INFO, logger="snowflake.numerics"):
        assert verdict(ScaledMM(), CPU).works
        assert verdict(ScaledMM(), CPU).works
    assert [r.getMessage() for r in caplog.records] == ["scaled_mm on cpu: works"]


@pytest.mark.parametrize("wrong", ["raises", "differs"])
def test_a_backend_that_fails_its_probe_is_refused_by_name(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def product(a: Tensor, b: Tensor, *args: object, **kwargs: object) -> Tensor:
        if wrong == "raises":
            raise RuntimeError("CUBLAS_NOT_SUPPORTED\nand more")
        return torch.zeros(a.shape[0], b.shape[1])

    monkeypatch.setattr(base, "_VERDICTS", {})
    monkeypatch.setattr("snowflake.numerics.backends.scaled_mm._scaled_mm", product)
    why = {"raises": "CUBLAS_NOT_SUPPORTED", "differs": "its product differs"}[wrong]
    with pytest.raises(UserError, match=f"backend 'scaled_mm' does not work on cpu: {why}.*choose emulate"):
        choose("scaled_mm", CPU)


def test_auto_on_a_gpu_without_8_bit_products_emulates_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(base, "_VERDICTS", {("scaled_mm", "cuda:0"): Verdict(False, "needs 8.9")})
    backend, reason = choose("auto", cuda)
    assert (backend.name, reason) == ("emulate", "scaled_mm does not work on cuda:0: needs 8.9")
    monkeypatch.setattr(base, "_VERDICTS", {("scaled_mm", "cuda:0"): Verdict(True, "")})
    assert choose("auto", cuda)[0].name == "scaled_mm"


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(("a", "b"), [("tensor", "tensor"), ("row", "row"), ("row", "tensor"), ("tensor", "row")])
def test_scales_of_tensors_and_rows(a: str, b: str, legacy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if legacy:  # torch 2.11
        monkeypatch.delattr(F, "scaled_mm", raising=False)
    x, w = operand(normal(9, 48), granularity=a), operand(normal(17, 48), granularity=b)
    assert ScaledMM().refuses(x, w) == ""
    torch.testing.assert_close(ScaledMM().product(x, w), x.values() @ w.values().t(), rtol=1e-5, atol=1e-5)


def test_padding_is_exact() -> None:
    from snowflake.numerics.backends.scaled_mm import _pad

    x = operand(normal(5, 13)).data
    padded = _pad(x, rows=True)
    assert padded.shape == (16, 16)
    assert padded.dtype == x.dtype
    assert torch.equal(padded[:5, :13].float(), x.float())
    assert padded.float().abs().sum() == x.float().abs().sum()
    assert _pad(x, rows=False).shape == (5, 16)
    assert _pad(operand(normal(16, 32)).data, rows=True).shape == (16, 32)


Refusal = Callable[[], tuple[Operand, Operand]]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (lambda: (operand(normal(4, 8)), bf16_operand(normal(3, 8))), "an operand in BF16"),
        (lambda: (operand(normal(8, 4), granularity="row").t(), operand(normal(3, 8))), "scales along the sum"),
        (lambda: (operand(normal(4, 8), granularity="block"), operand(normal(3, 8))), "scales of blocks"),
        (lambda: (Operand(normal(4, 8), None, None, False), operand(normal(3, 8))), "numbers of several formats"),
    ],
)
def test_refusals(pair: Refusal, reason: str) -> None:
    a, b = pair()
    assert ScaledMM().refuses(a, b) == reason
    assert Emulate().refuses(a, b) == ""
    torch.testing.assert_close(Emulate().product(a, b), a.values() @ b.values().t())


def test_two_e5m2_operands_work_on_the_cpu() -> None:
    a, b = operand(normal(4, 16), formats=("e5m2",)), operand(normal(3, 16), formats=("e5m2",))
    assert a.format is E5M2
    torch.testing.assert_close(ScaledMM().product(a, b), a.values() @ b.values().t())


def test_emulation_and_codes_stand_for_the_same_numbers() -> None:
    x = normal(7, 20)
    for config in ({}, {"granularity": "row"}, {"kind": "fp32"}, {"scale": "const", "exponent": 3}, {"scale": "gam"}):
        coded, plain = operand(x, **config), operand(x, codes=False, **config)
        assert coded.data.dtype == E4M3.dtype
        assert torch.equal(coded.values(), plain.values())
        assert torch.equal(coded.t().values(), plain.values().t())


def test_power_of_two_values_are_exact_in_bf16() -> None:
    for config in ({}, {"granularity": "row"}, {"scale": "const", "exponent": -7}):
        values = operand(normal(7, 20), codes=False, **config)
        assert values.exact_bf16
        assert torch.equal(values.data.to(torch.bfloat16).float(), values.data)
    assert not operand(normal(7, 20), codes=False, kind="fp32").exact_bf16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 192), (3, 50, 5)])
@pytest.mark.parametrize("granularity", ["tensor", "row"])
def test_scaled_mm_on_the_gpu(m: int, k: int, n: int, granularity: str) -> None:
    device = torch.device("cuda")
    backend, reason = choose("auto", device)
    if backend.name != "scaled_mm":
        pytest.skip(reason)
    x, w = operand(normal(m, k).to(device), granularity=granularity), operand(normal(n, k).to(device))
    wanted = x.values() @ w.values().t()
    # Row-wise products are rounded to BF16.
    torch.testing.assert_close(backend.product(x, w), wanted, rtol=1e-2 if granularity == "row" else 1e-4, atol=1e-2)
