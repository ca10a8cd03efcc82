"""Blocks of attention over a window of time: the memory `window`."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from snowflake.config.policy import PolicyConfig
from snowflake.networks.base import linear
from snowflake.networks.init import Initializer
from snowflake.networks.memory.attention import Timeline, WindowAttention
from snowflake.networks.memory.past import Past, State


class Block(nn.Module):
    """x + attention(norm(x)), then x + W2 gelu(W1 norm(x)); under norm `qkv` nothing is normalised before attention.

    Args:
        config: the policy section of the config.
        layer: its number.
        init: fills the weights.
    """

    def __init__(self, config: PolicyConfig, layer: int, init: Initializer) -> None:
        super().__init__()
        width = config.memory_width
        self.attention = WindowAttention(config, layer, init)
        self.before = nn.Identity() if config.memory_norm == "qkv" else nn.LayerNorm(width)
        self.between = nn.LayerNorm(width)
        self.up, self.down = linear(width, 2 * width), linear(2 * width, width)
        init.orthogonal(self.up, bias=0.0)
        init.orthogonal(self.down, bias=0.0)

    def step(self, x: Tensor, state: State) -> Tensor:
        """Take one step, (E, S, D) to (E, S, D); the state changes in place."""
        return self._feed(x + self.attention.step(self.before(x), state))

    def sequence(self, x: Tensor, past: Past, timeline: Timeline) -> Tensor:
        """Take T steps, (T, E, S, D) to (T, E, S, D)."""
        return self._feed(x + self.attention.sequence(self.before(x), past, timeline))

    def _feed(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.between(x))))


class WindowMemory(nn.Module):
    """Attention to the last steps of an episode, in layers; see `WindowAttention` for its state.

    Args:
        config: the policy section of the config.
        init: fills the weights.
    """

    def __init__(self, config: PolicyConfig, init: Initializer) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(Block(config, layer, init) for layer in range(config.memory_layers))
        self.last_norm = nn.LayerNorm(config.memory_width)

    def layers(self) -> list[WindowAttention]:
        """Return the attention layers, first to last."""
        return [cast(Block, block).attention for block in self.blocks]

    def dense_bytes(self, n: int, streams: int) -> int:
        """Return the bytes of keys and values that dense attention reads in one call of a layer."""
        config = self.config
        numbers = 2 * n * streams * config.kv_heads * config.memory_window * config.head_size
        return numbers * self.last_norm.weight.element_size()

    def sparse(self, n: int, streams: int, deployed: bool) -> bool:
        """Return whether SparQ attends to the caches of ``n`` environments with ``streams`` histories each."""
        wanted = self.config.sparq == "rollout" or (self.config.sparq == "eval" and deployed)
        return wanted and self.dense_bytes(n, streams) >= self.config.sparq_min_bytes

    def initial_state(self, n: int, streams: int, deployed: bool) -> State:
        """Return the empty caches of ``n`` environments with ``streams`` histories each."""
        sparse = self.sparse(n, streams, deployed)
        state: State = {}
        for layer in self.layers():
            state |= layer.initial_state(n, streams, sparse)
        return state

    def step(self, x: Tensor, state: State) -> Tensor:
        """Take one step, (E, S, D) to (E, S, D); the state changes in place."""
        for block in self.blocks:
            x = cast(Block, block).step(x, state)
        return self.last_norm(x)

    def sequence(self, x: Tensor, past: Past) -> Tensor:
        """Take T steps, (T, E, S, D) to (T, E, S, D), each as `step` would; the state is only read."""
        timeline = Timeline.of(past, self.config.memory_window)
        for block in self.blocks:
            x = cast(Block, block).sequence(x, past, timeline)
        return self.last_norm(x)
