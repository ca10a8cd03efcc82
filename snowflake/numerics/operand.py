"""Quantised matrices, and what turns a tensor into one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from snowflake.numerics import mor, scales
from snowflake.numerics.config import MixtureConfig, OperandConfig
from snowflake.numerics.formats import BF16, Format, find_format, quantise, quantise_
from snowflake.numerics.stats import Statistics


class Operand(NamedTuple):
    """A matrix (R, C) as a GEMM takes it.

    Attributes:
        data: numbers of `format` in its own type, to be multiplied by `decode`; or, without `decode`, float32 values.
        decode: 1 / scale, float32 () or (R, 1) (after `t`: (1, C)).
        format: None where groups of numbers have different ones.
        exact_bf16: whether the values are numbers of BF16.
    """

    data: Tensor
    decode: Tensor | None
    format: Format | None
    exact_bf16: bool

    def values(self) -> Tensor:
        """Return what it stands for, float32."""
        data = self.data.to(torch.float32)
        return data if self.decode is None else data * self.decode

    def t(self) -> Operand:
        """Return the transpose."""
        decode = self.decode if self.decode is None or self.decode.dim() == 0 else self.decode.t()
        return self._replace(data=self.data.t(), decode=decode)


def bf16_operand(x: Tensor) -> Operand:
    """Return a matrix rounded to BF16."""
    return Operand(quantise(x, BF16), None, BF16, True)


class Quantiser:
    """Turns tensors of one operand of one layer into `Operand`s, and keeps the state that this takes.

    Args:
        key: names the operand in statistics and state, like `update.joint.gates/x`.
        config: how.
        mixture: when formats change.
        statistics: where totals go.
    """

    def __init__(self, key: str, config: OperandConfig, mixture: MixtureConfig, statistics: Statistics) -> None:
        self.key = key
        self.config = config
        self.mixture = mixture
        self.formats = tuple(find_format(name) for name in config.formats)
        self.choice = mor.CachedChoice(config, mixture) if config.mixture and mixture.choice == "cached" else None
        self.tensors = 0
        self.demoted = False  # to BF16
        self.exponent = config.exponent
        self._statistics = statistics
        self._history = torch.zeros(config.history)  # newest first, 0 where nothing was seen
        self._largest = torch.zeros(())  # since the last step
        self._errors = torch.zeros(len(self.formats))  # sums over tensors of the error in each format; then how many

    @property
    def format(self) -> Format | None:
        """Return the format that every number takes, None if groups choose for themselves."""
        if self.demoted:
            return BF16
        if self.choice is not None:
            return self.formats[self.choice.index]
        return None if self.config.mixture else self.formats[0]

    def __call__(self, x: Tensor, *, codes: bool = False, sample: bool = False) -> Operand:
        """Quantise a matrix.

        A group whose largest magnitude is not finite is left in BF16, and counted; with codes, which have no room for
        that, all of it is NaN.

        Args:
            x: (R, C), any float type.
            codes: return 8-bit data with a decode factor where the config allows.
            sample: add the tensor to the statistics and to what the next choice of format rests on.
        """
        x = x.detach().to(torch.float32)
        self.tensors += 1
        largest = scales.amax(x, self.config.granularity, self.config.block)
        bad = self._count_nonfinite(largest)
        if self.config.scale == "delayed":
            self._largest = torch.maximum(self._largest.to(x.device), torch.where(torch.isfinite(largest), largest, 0))
        if sample and self.choice is not None:
            self._measure(x)
        fmt = self.format
        if fmt is None:
            return self._mixed(x, largest, bad, sample)
        if fmt is BF16:
            operand = bf16_operand(x)
            if sample:
                self._add(
                    x, operand.data, torch.ones((), device=x.device), [(fmt, torch.ones_like(x, dtype=torch.bool))]
                )
            return operand
        return self._fixed(x, largest, bad, fmt, codes, sample)

    def _fixed(self, x: Tensor, largest: Tensor, bad: Tensor | None, fmt: Format, codes: bool, sample: bool) -> Operand:
        """Return a matrix in one 8-bit format."""
        scale = self._scale(x, largest, fmt)
        inverse = 1.0 / scale
        expanded = mor.over_matrix(scale, self.config, tuple(x.shape))  # type: ignore[arg-type]
        grid = quantise_(x * expanded, fmt)
        decode = mor.over_matrix(inverse, self.config, tuple(x.shape))  # type: ignore[arg-type]
        values = None
        if sample or not (codes and self.config.granularity != "block"):
            values = self._keep_nonfinite(x, grid * decode, bad)
        if sample and values is not None:
            self._add(x, values, expanded, [(fmt, torch.ones_like(x, dtype=torch.bool))])
        if codes and self.config.granularity != "block":
            if bad is not None and self.config.scale == "const":
                grid = torch.where(bad, torch.nan, grid)
            elif bad is not None:
                inverse = torch.where(bad, torch.nan, inverse)
            return Operand(grid.to(fmt.dtype), inverse, fmt, self._pow2)
        assert values is not None
        return Operand(values, None, fmt, self._pow2)

    def _mixed(self, x: Tensor, largest: Tensor, bad: Tensor | None, sample: bool) -> Operand:
        """Return a matrix in which every group has taken its own format."""
        config, shape = self.config, (x.shape[0], x.shape[1])
        candidates, expanded = [], []
        for fmt in self.formats:
            scale = self._scale(x, largest, fmt)
            expanded.append(mor.over_matrix(scale, config, shape))
            decode = mor.over_matrix(1.0 / scale, config, shape)
            candidates.append(quantise(x, BF16) if fmt is BF16 else quantise_(x * expanded[-1], fmt).mul_(decode))
        errors = [mor.relative_errors(x, values, config.granularity, config.block) for values in candidates[:-1]]
        choice = mor.over_matrix(mor.select(errors, config.thresholds), config, shape)
        values, scale = candidates[-1], expanded[-1]
        for i in range(len(candidates) - 1):
            values = torch.where(choice == i, candidates[i], values)
            scale = torch.where(choice == i, expanded[i], scale)
        values = self._keep_nonfinite(x, values, bad)
        if sample:
            self._add(x, values, scale, [(fmt, choice == i) for i, fmt in enumerate(self.formats)])
        return Operand(values, None, None, False)

    @property
    def _pow2(self) -> bool:
        return self.config.scale == "const" or (self.config.scale != "gam" and self.config.kind == "pow2")

    def _scale(self, x: Tensor, largest: Tensor, fmt: Format) -> Tensor:
        """Return the scale of every group."""
        config = self.config
        if fmt is BF16:
            return torch.ones_like(largest)
        if config.scale == "const":
            return torch.full((), 2.0**self.exponent, device=x.device)
        if config.scale == "gam" and config.group == config.granularity:
            return scales.fp32_scale(largest, fmt)  # every group is one block, whose mantissa is its own
        if config.scale == "gam":
            group = scales.amax(x, config.group)
            if config.group == "row" and config.granularity == "block":
                rows = torch.nn.functional.pad(group, (0, 0, 0, -len(group) % config.block[0]))
                group = rows.reshape(-1, config.block[0]).amax(1, keepdim=True)
            return scales.gam_scale(largest, group, fmt)
        if config.scale == "delayed":
            self._history = self._history.to(x.device)
            seen = self._history.max()
            largest = torch.where(seen > 0, seen, largest)
        if config.kind == "fp32":
            return scales.fp32_scale(largest, fmt, config.margin)
        return scales.pow2_scale(largest, fmt, config.margin, config.limit)

    def _count_nonfinite(self, largest: Tensor) -> Tensor | None:
        """Count groups with infinity or NaN, and return which they are; None if the host knows that there are none."""
        bad = ~torch.isfinite(largest)
        if bad.device.type == "cpu":
            count = int(bad.sum())
            if not count:
                return None
            self._statistics.count_nonfinite(self.key, count, bad.device)
            return bad
        self._statistics.count_nonfinite(self.key, bad.sum(), bad.device)
        return bad

    def _keep_nonfinite(self, x: Tensor, values: Tensor, bad: Tensor | None) -> Tensor:
        """Put BF16 numbers where a group is not finite."""
        if bad is None:
            return values
        return torch.where(mor.over_matrix(bad, self.config, (x.shape[0], x.shape[1])), quantise(x, BF16), values)

    def _add(self, x: Tensor, values: Tensor, scale: Tensor, formats: list[tuple[Format, Tensor]]) -> None:
        self._statistics.add(self.key, x, values, scale, formats)

    def _measure(self, x: Tensor) -> None:
        """Add the error that a sample of rows would have in every format but the last."""
        rows = mor.sample_rows(x, self.mixture.rows)
        largest = scales.amax(rows, self.config.granularity, self.config.block)
        errors = []
        for fmt in self.formats[:-1]:
            scale = self._scale(rows, largest, fmt)
            decode = mor.over_matrix(1.0 / scale, self.config, (rows.shape[0], rows.shape[1]))
            scaled = rows * mor.over_matrix(scale, self.config, (rows.shape[0], rows.shape[1]))
            errors.append(mor.relative_errors(rows, quantise(scaled, fmt) * decode, "tensor", self.config.block))
        sums = torch.stack([*errors, torch.ones((), device=x.device)])
        self._errors = self._errors.to(x.device) + sums

    def pending(self) -> Tensor:
        """Return what `step` needs of the device, as one vector."""
        return torch.cat([self._errors, self._largest.reshape(1).to(self._errors.device)])

    def step(self, pending: Tensor) -> bool:
        """Move the window of delayed scales and reconsider the format; return whether it has changed.

        Args:
            pending: what `pending` returned, on the host.
        """
        *errors, tensors, largest = pending.tolist()
        if self.config.scale == "delayed" and largest > 0:
            self._history = torch.cat([self._history.new_full((1,), largest), self._history[:-1]])
        changed = self.choice is not None and tensors > 0 and self.choice.check([e / tensors for e in errors])
        self._largest, self._errors = torch.zeros_like(self._largest), torch.zeros_like(self._errors)
        return changed

    def state(self) -> dict[str, Tensor]:
        """Return what a later run needs, by name."""
        state = {}
        if self.config.scale == "delayed":
            state["amax_history"] = self._history.cpu().clone()
        if self.config.scale == "const":
            state["exponent"] = torch.tensor(self.exponent)
        if self.choice is not None:
            state["choice"] = self.choice.state()
        return state

    def load(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` returned."""
        if "amax_history" in state:
            self._history = state["amax_history"].clone()
        if "exponent" in state:
            self.exponent = int(state["exponent"])
        if self.choice is not None and "choice" in state:
            self.choice.load(state["choice"])
