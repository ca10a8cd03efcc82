"""Running normalisation of inputs, by group (node class) and feature."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

CLIP = 5.0
MIN_VARIANCE = 0.01
EPSILON = 1e-6


class RunningNorm(nn.Module):
    """clip((x - mean) / sqrt(max(var, 0.01) + 1e-6), -5, 5), statistics over all data ever given to `update`.

    The constants are those of NerveNet (Wang et al. 2018) and Snowflake (Blake et al. 2021). A group that has seen no
    data passes its input unchanged. Statistics move in `update` only, never in `forward`.

    Args:
        groups: number of groups G, each with statistics of its own.
        features: number of features F.

    Attributes:
        mean: (G, F) float64, in the state dict.
        var: (G, F) float64, biased (divided by the count), in the state dict.
        count: rows seen. (G,) float64, in the state dict.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    shift: Tensor
    scale: Tensor
    bound: Tensor

    def __init__(self, groups: int, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(groups, features, dtype=torch.float64))
        self.register_buffer("var", torch.ones(groups, features, dtype=torch.float64))
        self.register_buffer("count", torch.zeros(groups, dtype=torch.float64))
        # What `forward` needs of them, in float32: at rollout batch sizes, deriving it in every call is felt.
        self.register_buffer("shift", torch.zeros(groups, features), persistent=False)
        self.register_buffer("scale", torch.ones(groups, features), persistent=False)
        self.register_buffer("bound", torch.full((groups, 1), torch.inf), persistent=False)
        self.register_load_state_dict_post_hook(_refresh_after_load)

    def forward(self, x: Tensor, group: Tensor | int = 0) -> Tensor:
        """Normalise.

        Args:
            x: (N, R, F) with `group` an index tensor, (N, F) with one group for all.
            group: group of each row, (R,) int64, or one index.

        Returns:
            Same shape as `x`.
        """
        bound = self.bound[group]
        return torch.clamp((x - self.shift[group]) * self.scale[group], -bound, bound)

    def outside(self, x: Tensor, group: Tensor | int = 0) -> Tensor:
        """Say which entries `forward` cuts, for lying over 5 standard deviations from the mean; arguments as there.

        Returns:
            Same shape as `x`, bool; False throughout for a group that has seen no data.
        """
        return ((x - self.shift[group]) * self.scale[group]).abs() > self.bound[group]

    @torch.no_grad()
    def update(self, x: Tensor, group: Tensor | int = 0) -> None:
        """Merge a batch into the statistics, by the parallel formula of Chan, Golub and LeVeque (1979), in float64.

        Args:
            x: (M, R, F) with `group` an index tensor, (M, F) with one group for all; M may be 0.
            group: as in `forward`.
        """
        if isinstance(group, int):
            self._merge(group, x)
        else:
            for index in torch.unique(group).tolist():
                self._merge(index, x[:, group == index].reshape(-1, x.shape[-1]))
        self.refresh()

    def _merge(self, group: int, rows: Tensor) -> None:
        if len(rows) == 0:
            return
        rows = rows.to(torch.float64)
        batch_mean, batch_var = rows.mean(dim=0), rows.var(dim=0, correction=0)
        old, new = self.count[group].clone(), float(len(rows))
        total = old + new
        delta = batch_mean - self.mean[group]
        self.var[group] = (self.var[group] * old + batch_var * new + delta.square() * (old * new / total)) / total
        self.mean[group] += delta * (new / total)
        self.count[group] = total

    @torch.no_grad()
    def refresh(self) -> None:
        """Derive the constants of `forward` anew, after `mean`, `var` or `count` were written from outside."""
        seen = (self.count > 0)[:, None]
        self.shift.copy_(torch.where(seen, self.mean, 0.0))
        self.scale.copy_(torch.where(seen, (self.var.clamp(min=MIN_VARIANCE) + EPSILON).rsqrt(), 1.0))
        self.bound.copy_(torch.where(seen, CLIP, torch.inf))


class SlotNorm(RunningNorm):
    """`RunningNorm` for features that some rows lack, and which read 0 there.

    A missing feature stays 0 and adds nothing to the statistics, which are counted feature by feature: a body on a
    fixed base does not pull the mean height of the others towards 0. A feature that no row had yet is clipped, not
    scaled.

    Attributes:
        count: rows seen that had the feature. (G, F) float64, in the state dict.
    """

    def __init__(self, groups: int, features: int) -> None:
        super().__init__(groups, features)
        self.register_buffer("count", torch.zeros(groups, features, dtype=torch.float64))
        del self.bound  # it is the same for all

    def forward(self, x: Tensor, group: Tensor, present: Tensor) -> Tensor:  # type: ignore[override]
        """Normalise.

        Args:
            x: (N, R, F), 0 where a feature is missing.
            group: group of each row, (R,) int64.
            present: which features a row has, (R, F) bool.

        Returns:
            (N, R, F), 0 where a feature is missing.
        """
        return torch.clamp((x - self.shift[group] * present) * self.scale[group], -CLIP, CLIP)

    def outside(self, x: Tensor, group: Tensor, present: Tensor) -> Tensor:  # type: ignore[override]
        """See `RunningNorm.outside`; a missing feature is never outside."""
        return (((x - self.shift[group]) * self.scale[group]).abs() > CLIP) & present

    @torch.no_grad()
    def update(self, x: Tensor, group: Tensor, present: Tensor) -> None:  # type: ignore[override]
        """Merge a batch into the statistics; arguments as in `forward`, N may be 0."""
        for index in torch.unique(group).tolist():
            rows = group == index
            self._merge_present(index, x[:, rows].to(torch.float64), present[rows].to(torch.float64))
        self.refresh()

    def _merge_present(self, group: int, x: Tensor, weight: Tensor) -> None:
        new = len(x) * weight.sum(dim=0)  # (F,)
        some = new.clamp(min=1.0)
        batch_mean = (x * weight).sum(dim=(0, 1)) / some
        batch_var = ((x - batch_mean).square() * weight).sum(dim=(0, 1)) / some
        old = self.count[group].clone()
        total = old + new
        part = new / total.clamp(min=1.0)
        delta = batch_mean - self.mean[group]
        merged = self.var[group] * (1.0 - part) + batch_var * part + delta.square() * (1.0 - part) * part
        self.var[group] = torch.where(new > 0, merged, self.var[group])
        self.mean[group] += torch.where(new > 0, delta * part, 0.0)
        self.count[group] = total

    @torch.no_grad()
    def refresh(self) -> None:
        """See `RunningNorm.refresh`."""
        seen = self.count > 0
        self.shift.copy_(torch.where(seen, self.mean, 0.0))
        self.scale.copy_(torch.where(seen, (self.var.clamp(min=MIN_VARIANCE) + EPSILON).rsqrt(), 1.0))


def _refresh_after_load(module: nn.Module, _incompatible_keys: Any) -> None:
    assert isinstance(module, RunningNorm)
    module.refresh()
