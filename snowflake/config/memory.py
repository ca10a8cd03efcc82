"""Keys of the policy section that concern memory: what the actor keeps of past observations and actions."""

from __future__ import annotations

from dataclasses import dataclass

from agents.errors import UserError
from snowflake.config.checks import check_choice, check_range


@dataclass(frozen=True)
class MemoryOptions:
    """Temporal memory of the actor, and SparQ attention (Ribar et al. 2024) for its cache."""

    memory: str = "none"
    """Memory of past observations and actions: none, window (attention over the last steps) or gru."""
    memory_scope: str = "limb"
    """What has a history of its own: limb (every node of the graph) or body (one history, read by all nodes)."""
    memory_width: int = 32
    """Features of a step in memory; of the hidden state of gru."""
    memory_window: int = 64
    """Steps that window attends to in each layer, the present one included."""
    memory_layers: int = 1
    """Attention layers of window."""
    memory_heads: int = 2
    """Query heads of window; each has memory_width / memory_heads features, an even number."""
    memory_kv_heads: int = 0
    """Key and value heads of window, shared by the query heads in groups of equal size; 0 takes memory_heads."""
    memory_norm: str = "qk"
    """Layer norm per head of window: qk, qkv (which takes the place of the norm before the layer) or none."""
    memory_softcap: float = 0.0
    """Bound c of the attention logits of window, c tanh(logit / c); 0 = none."""
    sparq: str = "off"
    """SparQ attention over the cache of window: off, eval (when a trained policy acts) or rollout (in training too)."""
    sparq_r: int = 4
    """Components of a query that the approximate scores of SparQ read."""
    sparq_k: int = 8
    """Steps that SparQ attends to, of the window."""
    sparq_local: int = 2
    """The last steps, which SparQ always attends to; sparq_k counts them."""
    sparq_layout: str = "both"
    """Keys in the cache: both (by step and by component, 1.5 times the memory) or single (by step)."""
    sparq_reallocate: bool = True
    """Give the attention that SparQ leaves out to the mean of the window's values."""
    sparq_min_bytes: int = 1_000_000_000
    """Bytes of keys and values that a dense call reads below which SparQ is not used, since it would lose time."""

    def check_memory(self, network: str) -> None:
        """Require that the keys of the memory make sense together.

        Args:
            network: name of the actor.

        Raises:
            UserError: one is out of range, or two contradict each other.
        """
        check_choice("policy", "memory", self.memory, ("none", "window", "gru"))
        check_choice("policy", "memory_scope", self.memory_scope, ("limb", "body"))
        check_range("policy", "memory_width", self.memory_width, 2, 4096)
        check_range("policy", "memory_window", self.memory_window, 1, 65_536)
        check_range("policy", "memory_layers", self.memory_layers, 1, 32)
        check_range("policy", "memory_heads", self.memory_heads, 1, 256)
        check_range("policy", "memory_kv_heads", self.memory_kv_heads, 0, self.memory_heads)
        check_choice("policy", "memory_norm", self.memory_norm, ("qk", "qkv", "none"))
        check_range("policy", "memory_softcap", self.memory_softcap, 0.0, 1e6)
        check_choice("policy", "sparq", self.sparq, ("off", "eval", "rollout"))
        check_choice("policy", "sparq_layout", self.sparq_layout, ("both", "single"))
        check_range("policy", "sparq_min_bytes", self.sparq_min_bytes, 0, 10**15)
        if self.memory != "none" and network == "mlp":
            raise UserError(
                f"policy.memory = {self.memory!r} is for networks over nodes: choose another method than mlp"
            )
        if self.memory == "window":
            self._check_window()
        elif self.sparq != "off":
            raise UserError(f"policy.sparq = {self.sparq!r} is for the cache of policy.memory window: set both")

    def _check_window(self) -> None:
        if self.memory_width % (2 * self.memory_heads):
            raise UserError(
                f"policy.memory_width = {self.memory_width} with {self.memory_heads} heads: each head needs an even "
                f"number of features, use a multiple of {2 * self.memory_heads}"
            )
        if self.memory_heads % self.kv_heads:
            raise UserError(
                f"policy.memory_kv_heads = {self.memory_kv_heads} does not divide memory_heads = {self.memory_heads}: "
                "choose a divisor, or 0"
            )
        check_range("policy", "sparq_r", self.sparq_r, 1, 4096 if self.sparq == "off" else self.head_size)
        check_range("policy", "sparq_k", self.sparq_k, 1, 65_536 if self.sparq == "off" else self.memory_window)
        check_range("policy", "sparq_local", self.sparq_local, 0, 65_536 if self.sparq == "off" else self.sparq_k)

    @property
    def head_size(self) -> int:
        """Features of an attention head."""
        return self.memory_width // self.memory_heads

    @property
    def kv_heads(self) -> int:
        """Key and value heads of window."""
        return self.memory_kv_heads or self.memory_heads
