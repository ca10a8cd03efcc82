"""The product x w^T of a linear layer with three GEMMs that are quantised each by its own rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from snowflake.numerics.backends import Backend, choose, dequantised_product
from snowflake.numerics.config import GEMMS, OPERANDS, Recipe
from snowflake.numerics.formats import Format
from snowflake.numerics.operand import Operand, Quantiser, bf16_operand
from snowflake.numerics.stats import Statistics

SAMPLES = 4
"""Tensors of an operand that statistics look at between two readings."""


class QuantisedGemm:
    """x w^T of one layer, differentiable in both.

    The weight is quantised when it has changed: once per optimiser step, not once per call. Whoever changes weights in
    a way that leaves their version counter (through `.data`, a flat tensor that they are views of, a fused optimiser)
    calls `forget_weight`; a `Conversion` does so after the steps of optimisers.

    Args:
        key: names the layer in statistics and state.
        recipe: formats, scales and GEMMs.
        statistics: has a row for each of key/x, key/w, key/g.
        backend: auto, or a name.
        sampling: which tensors statistics see: training (those of differentiated calls), always, or off.

    Attributes:
        gemms: how many of each GEMM were computed.
        flops: floating-point operations of each GEMM since `take_flops`.
        arithmetic: how each GEMM was computed last: a backend's name, or why not by it.
        backend: the backend, after the first call.
    """

    def __init__(
        self, key: str, recipe: Recipe, statistics: Statistics, backend: str = "auto", sampling: str = "training"
    ) -> None:
        self.key = key
        self.recipe = recipe
        self.quantisers = {
            name: Quantiser(f"{key}/{name}", recipe.operand(name), recipe.mixture, statistics) for name in OPERANDS
        }
        self.sampling = sampling
        self.gemms = dict.fromkeys(GEMMS, 0)
        self.flops = dict.fromkeys(GEMMS, 0)
        self.arithmetic: dict[str, str] = {}
        self.owner: object = None  # lives as long as the layer: it notices the steps of optimisers
        self.backend: Backend | None = None
        self.backend_reason = ""
        self._wanted_backend = backend
        self._device: torch.device | None = None
        self._sampled = dict.fromkeys(OPERANDS, 0)
        self._weight_key: tuple[Any, ...] | None = None
        self._weight: dict[bool, Operand] = {}

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return x w^T.

        Args:
            x: (..., K).
            weight: (N, K) on the same device.

        Returns:
            (..., N) float32.
        """
        if self.backend is None or self._device != x.device:
            self._device = x.device
            self.backend, self.backend_reason = choose(self._wanted_backend, x.device)
            self.forget_weight()
        rows = x.reshape(-1, x.shape[-1])
        recorded = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
        y = _Product.apply(rows, weight, self, recorded)
        return y.reshape(*x.shape[:-1], weight.shape[0])  # type: ignore[no-any-return]

    def forget_weight(self) -> None:
        """Quantise the weight anew in the next call."""
        self._weight_key = None
        self._weight = {}

    def quantise(self, name: str, matrix: Tensor, recorded: bool, *, quantised: bool = True) -> Operand:
        """Return x, w or g (R, C) as an operand, in its recipe's format or, if not `quantised`, in BF16."""
        if name == "w":
            return self._quantise_weight(matrix, quantised)
        return self._quantise(name, matrix, recorded) if quantised else bf16_operand(matrix)

    def _quantise(self, name: str, matrix: Tensor, recorded: bool) -> Operand:
        assert self.backend is not None
        sample = self.sampling == "always" or (
            self.sampling == "training" and recorded and self._sampled[name] < SAMPLES
        )
        self._sampled[name] += sample
        return self.quantisers[name](matrix, codes=self.backend.codes, sample=sample)

    def _quantise_weight(self, weight: Tensor, quantised: bool) -> Operand:
        # Inference tensors have no version counter; what cannot be told to be unchanged is not kept.
        if weight.is_inference():
            self.forget_weight()
        else:
            key = (weight._version, weight.data_ptr(), tuple(weight.shape), weight.dtype, self._format_of("w"))
            if key != self._weight_key:
                self.forget_weight()
                self._weight_key = key
        if quantised not in self._weight:
            # Inside inference mode a new tensor could not be saved for a later backward.
            with torch.inference_mode(False):
                w = weight.detach()
                self._weight[quantised] = self._quantise("w", w, True) if quantised else bf16_operand(w)
        return self._weight[quantised]

    def _format_of(self, name: str) -> Format | None:
        return self.quantisers[name].format

    def product(self, gemm: str, a: Operand, b: Operand) -> Tensor:
        """Return a b^T as one of the three GEMMs, and count it."""
        assert self.backend is not None
        self.gemms[gemm] += 1
        self.flops[gemm] += 2 * a.data.shape[0] * a.data.shape[1] * b.data.shape[0]
        refusal = self.backend.refuses(a, b)
        self.arithmetic[gemm] = f"dequantised: {refusal}" if refusal else self.backend.name
        if refusal:
            return dequantised_product(a, b)
        return self.backend.product(a, b, getattr(self.recipe, gemm).fast_accum)

    def quantised(self, gemm: str) -> bool:
        """Return whether a GEMM takes operands as the recipe says, not in BF16."""
        return getattr(self.recipe, gemm).operands == "quantised"  # type: ignore[no-any-return]

    @property
    def demoted(self) -> bool:
        """Return whether the layer has gone over to BF16."""
        return any(quantiser.demoted for quantiser in self.quantisers.values())

    def demote(self, demoted: bool = True) -> None:
        """Compute the layer in BF16 from now on, or not any more."""
        for quantiser in self.quantisers.values():
            quantiser.demoted = demoted

    def take_flops(self) -> dict[str, int]:
        """Return the floating-point operations of each GEMM since the last time."""
        flops, self.flops = self.flops, dict.fromkeys(GEMMS, 0)
        return flops

    def step(self, pending: list[Tensor]) -> list[str]:
        """Start a new interval: see `Quantiser.step`; return the operands whose format has changed."""
        self._sampled = dict.fromkeys(OPERANDS, 0)
        return [name for name, row in zip(OPERANDS, pending, strict=True) if self.quantisers[name].step(row)]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, gemm: QuantisedGemm, recorded: bool) -> Tensor:
        needs_x, needs_w = (needed and recorded for needed in ctx.needs_input_grad[:2])
        quantised = gemm.quantised("output")
        x_operand = gemm.quantise("x", x, recorded, quantised=quantised)
        w_operand = gemm.quantise("w", weight, recorded, quantised=quantised)
        y = gemm.product("output", x_operand, w_operand)
        # What output had in 8 bits is what backward has; what it had in BF16 may be asked for in 8.
        if needs_w and not quantised and gemm.quantised("grad_weight"):
            x_operand = gemm.quantise("x", x, recorded)
        if needs_x and not quantised and gemm.quantised("grad_input"):
            w_operand = gemm.quantise("w", weight, recorded)
        ctx.gemm, ctx.recorded = gemm, recorded
        saved: list[Tensor] = []
        ctx.x = _save(x_operand, saved) if needs_w else None
        ctx.w = _save(w_operand, saved) if needs_x else None
        ctx.save_for_backward(*saved)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        gemm: QuantisedGemm = ctx.gemm
        saved = iter(ctx.saved_tensors)
        x, w = (None if rest is None else _restore(rest, saved) for rest in (ctx.x, ctx.w))
        gradients: dict[bool, Operand] = {}

        def gradient(name: str) -> Operand:
            quantised = gemm.quantised(name)
            if quantised not in gradients:
                gradients[quantised] = gemm.quantise("g", grad, ctx.recorded, quantised=quantised)
            return gradients[quantised]

        dx = None if w is None else gemm.product("grad_input", gradient("grad_input"), w.t())
        dw = None if x is None else gemm.product("grad_weight", gradient("grad_weight").t(), x.t())
        return dx, dw, None, None


def _save(operand: Operand, saved: list[Tensor]) -> Operand:
    """Append an operand's tensors to a list, and return the rest of it.

    Emulated values that BF16 holds are saved in it on CUDA; on the CPU the conversion costs more than the memory.
    """
    data, decode = operand.data, operand.decode
    if data.dtype == torch.float32 and operand.exact_bf16 and data.device.type == "cuda":
        data = data.to(torch.bfloat16)
    saved.append(data)
    if decode is not None:
        saved.append(decode)
    return operand._replace(data=data.new_empty(0), decode=None if decode is None else decode.new_empty(0))


def _restore(rest: Operand, saved: Iterator[Tensor]) -> Operand:
    return rest._replace(data=next(saved), decode=None if rest.decode is None else next(saved))
