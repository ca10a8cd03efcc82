"""One attention layer over a sliding window of time, in two forms that agree: step by step, and a whole sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from snowflake.config.policy import PolicyConfig
from snowflake.networks.base import linear
from snowflake.networks.init import Initializer
from snowflake.networks.memory.past import Past, State, positions
from snowflake.networks.memory.rotary import rotate
from snowflake.networks.memory.sparq import SparqResult, SparqSettings, dense_attention, sparq_attention
from snowflake.networks.memory.traffic import Traffic

Probe = Callable[[Tensor, Tensor, Tensor, Tensor, SparqResult], None]
"""Is shown queries, keys, values, which are valid, and the result of every step of SparQ."""


@dataclass(frozen=True)
class Timeline:
    """Which steps see which, for T steps after a cache of W.

    Attributes:
        position: steps since the episode began. (T, E) int64
        prefix: slots of the cache in the order of time, oldest first. (E, W) int64
        visible: whether step t sees key s, of W cached ones and T new ones. (E, T, W + T) bool
    """

    position: Tensor
    prefix: Tensor
    visible: Tensor

    @classmethod
    def of(cls, past: Past, window: int) -> Timeline:
        """Work it out: a step sees those of its own episode that are less than a window old, itself included."""
        clock, count = past.state["clock"], len(past.starts)
        position = positions(clock, past.starts)
        age = torch.arange(count, device=clock.device)[:, None] - torch.arange(-window, count, device=clock.device)
        visible = (age >= 0) & (age < window) & (age <= position.t()[..., None])
        slots = (clock[:, None] + torch.arange(window, device=clock.device)) % window
        return cls(position, slots, visible)


class WindowAttention(nn.Module):
    """Multi-head attention to the last W steps of the same episode, with rotary positions and a ring buffer.

    State of layer i: ``keys<i>`` and ``values<i>`` (N, S, K, W, d), step t of an episode in slot t mod W; for SparQ
    also ``sum<i>`` (N, S, K, d) float32, the sum of the values that are seen, and ``columns<i>`` (N, S, K, d, W), the
    keys by component.

    Args:
        config: the policy section of the config.
        layer: its number i.
        init: fills the weights.

    Attributes:
        traffic: counts what `step` moves, if set.
        probe: looks at what SparQ does in `step`, if set.
    """

    def __init__(self, config: PolicyConfig, layer: int, init: Initializer) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = config.memory_heads, config.kv_heads, config.head_size
        self.window, self.softcap, self.layer = config.memory_window, config.memory_softcap, layer
        self.local, self.both_layouts = config.sparq_local, config.sparq_layout == "both"
        self.settings = SparqSettings(config.sparq_r, config.sparq_k, config.sparq_reallocate, config.memory_softcap)
        self.projection = linear(config.memory_width, (self.heads + 2 * self.kv_heads) * self.size, bias=False)
        self.output = linear(self.heads * self.size, config.memory_width)
        init.orthogonal(self.projection)
        init.orthogonal(self.output, bias=0.0)
        normed = {"none": 0, "qk": 2, "qkv": 3}[config.memory_norm]
        self.norms = nn.ModuleList(nn.LayerNorm(self.size) if i < normed else nn.Identity() for i in range(3))
        self.traffic: Traffic | None = None
        self.probe: Probe | None = None

    def initial_state(self, n: int, streams: int, sparse: bool) -> State:
        """Return the empty cache of ``n`` environments with ``streams`` histories each, for SparQ too if ``sparse``."""
        shape, weight, i = (n, streams, self.kv_heads), self.projection.weight, self.layer
        state = {f"{name}{i}": weight.new_zeros(*shape, self.window, self.size) for name in ("keys", "values")}
        if sparse:
            state[f"sum{i}"] = weight.new_zeros(*shape, self.size, dtype=torch.promote_types(weight.dtype, torch.float))
            if self.both_layouts:
                state[f"columns{i}"] = weight.new_zeros(*shape, self.size, self.window)
        return state

    def _project(self, x: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (..., K, G, d), keys and values (..., K, d) of x (..., D) at positions (...)."""
        sizes = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        q, k, v = (part.unflatten(-1, (-1, self.size)) for part in self.projection(x).split(sizes, dim=-1))
        q, k, v = (norm(part) for norm, part in zip(self.norms, (q, k, v), strict=True))
        position = position[..., None]
        q, k = rotate(q, position), rotate(k, position)
        return q.unflatten(-2, (self.kv_heads, -1)), k, v

    def step(self, x: Tensor, state: State) -> Tensor:
        """Attend from one step x (E, S, D), which enters the cache in place. Returns (E, S, D)."""
        clock, streams, i = state["clock"], x.shape[1], self.layer
        q, k, v = self._project(x, clock[:, None].expand(-1, streams))
        rows, slot = torch.arange(len(x), device=x.device), clock % self.window
        keys, values = state[f"keys{i}"][:, :streams], state[f"values{i}"][:, :streams]
        sparse = f"sum{i}" in state
        if sparse:
            self._add_to_mean(state[f"sum{i}"][:, :streams], values, v.detach(), clock)
            if self.both_layouts:
                state[f"columns{i}"][:, :streams][rows, :, :, :, slot] = k.detach()
        keys[rows, :, :, slot], values[rows, :, :, slot] = k.detach(), v.detach()
        age = (clock[:, None] - torch.arange(self.window, device=x.device)) % self.window
        valid = (age <= clock[:, None])[:, None, None]  # (E, 1, 1, W)
        if not sparse:
            if self.traffic is not None:
                self.traffic.dense(keys)
            return self._merge(dense_attention(q, keys, values, valid[..., None, :], self.softcap))
        count = (clock + 1).clamp_max(self.window)[:, None, None, None]
        mean = (state[f"sum{i}"][:, :streams] / count).to(v.dtype)
        columns = state[f"columns{i}"][:, :streams] if self.both_layouts else None
        forced = valid & (age < self.local)[:, None, None]
        result = sparq_attention(
            q,
            keys,
            values,
            valid,
            mean,
            self.settings,
            forced=forced,
            keys_by_component=columns,
            traffic=self.traffic,
        )
        if self.probe is not None:
            self.probe(q, keys, values, valid, result)
        return self._merge(result.output)

    def _add_to_mean(self, total: Tensor, values: Tensor, new: Tensor, clock: Tensor) -> None:
        """Let a new value enter the running sum, and the one that it takes the place of leave."""
        rows, slot = torch.arange(len(clock), device=clock.device), clock % self.window
        full = (clock >= self.window)[:, None, None, None]
        total += new - torch.where(full, values[rows, :, :, slot], 0.0)
        # Rounding errors would add up: once a window the sum is taken anew, of the values as they are after this step.
        anew = torch.nonzero(slot == self.window - 1)[:, 0]
        if len(anew):
            total[anew] = values[anew, :, :, :-1].to(total.dtype).sum(dim=-2) + new[anew]

    def sequence(self, x: Tensor, past: Past, timeline: Timeline) -> Tensor:
        """Attend from all steps x (T, E, S, D), each as `step` would. Returns (T, E, S, D)."""
        streams, i = x.shape[2], self.layer
        q, k, v = self._project(x, timeline.position[..., None].expand(-1, -1, streams))
        q = q.permute(1, 2, 3, 4, 0, 5)  # (E, S, K, G, T, d)
        keys, values = (
            torch.cat([self._prefix(past.state[f"{name}{i}"][:, :streams], timeline), new.permute(1, 2, 3, 0, 4)], 3)
            for name, new in (("keys", k), ("values", v))
        )
        if f"sum{i}" in past.state:
            output = self._sparse_sequence(q, keys, values, timeline.position)
        else:
            visible = timeline.visible[:, None, None].repeat(1, 1, 1, q.shape[3], 1)  # the heads of a group in turn
            output = dense_attention(q.flatten(3, 4), keys, values, visible, self.softcap).unflatten(3, q.shape[3:5])
        return self._merge(output.permute(4, 0, 1, 2, 3, 5))

    def _prefix(self, cache: Tensor, timeline: Timeline) -> Tensor:
        return torch.take_along_dim(cache, timeline.prefix[:, None, None, :, None], dim=3).detach()

    def _sparse_sequence(self, q: Tensor, keys: Tensor, values: Tensor, position: Tensor) -> Tensor:
        """SparQ attention of every step (E, S, K, G, T, d) to its own window of (E, S, K, W + T, d)."""
        columns, value_columns = (
            part[..., 1:, :].unfold(3, self.window, 1) for part in (keys, values)
        )  # (E, S, K, T, d, W)
        age = torch.arange(self.window - 1, -1, -1, device=q.device)
        valid = (age <= position.t()[..., None])[:, None, None]  # (E, 1, 1, T, W)
        some = torch.where(valid[..., None, :], value_columns, 0.0)
        mean = some.sum(dim=-1) / valid.sum(dim=-1)[..., None]
        result = sparq_attention(
            q.movedim(3, 4),
            columns.mT,
            value_columns.mT,
            valid,
            mean,
            self.settings,
            forced=valid & (age < self.local),
            keys_by_component=columns,
        )
        return result.output.movedim(4, 3)

    def _merge(self, heads: Tensor) -> Tensor:
        """Join (..., K, G, d) and project: (..., D)."""
        return self.output(heads.flatten(-3))
