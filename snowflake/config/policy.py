"""Policy section of the training config: actor, critic, and what is frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from tyro.conf import Fixed, Suppress

from agents.errors import UserError
from snowflake.config.attention import AttentionConfig
from snowflake.config.checks import check_choice, check_range
from snowflake.config.memory import MemoryOptions


@dataclass(frozen=True)
class PolicyConfig(MemoryOptions):
    """Network of the actor and the critic. Sizes are those of NerveNet (Wang et al. 2018)."""

    network: str = "nervenet"
    """Actor network: nervenet (graph), transformer (over the nodes) or mlp (flat)."""
    hidden_size: int = 64
    """Width of node states and messages; of the hidden layers of flat networks."""
    propagation_steps: int = 4
    """Rounds of message passing."""
    aggregation: str = "mean"
    """Aggregation of messages at the receiving node: mean, sum or max."""
    gru: str = "reset_before"
    """Update of a node's state: reset_before (the gate before the product, the paper's) or reset_after (GRUCell's)."""
    message_layer: str = "mlp"
    """Message function: mlp (NerveNet's), or the name of a torch_geometric.nn convolution, for instance GATv2Conv."""
    message_layer_args: Annotated[dict[str, Any], Fixed, Suppress] = field(default_factory=dict)
    """Arguments of the convolution by name, in YAML only: {heads: 1}. Its widths are hidden_size unless given."""
    freeze: tuple[str, ...] = ()
    """Actor components kept at their initial values (Snowflake: encoder, message, decoder)."""
    train_node_table: bool = False
    """Train the node-class table although the encoder is frozen (the split of the official code)."""
    log_std: str = "per_class"
    """Log standard deviation of the action: per_class (transfers to any body) or per_actuator (the paper's)."""
    log_std_init: float = -1.0
    """Initial log standard deviation."""
    critic: str = "auto"
    """Critic: flat (one body), graph or transformer (any body), or auto: flat for one body, graph for several."""
    critic_readout: str = "mean"
    """Graph and transformer critic: value from the mean or sum of node states, or from the root."""
    freeze_critic: tuple[str, ...] = ()
    """Critic components kept at their initial values."""
    equality_edges: bool = False
    """Also link joints that an equality constraint ties together (feature set general)."""
    parametrization: str = "standard"
    """standard, or unit: weights, activations and gradients of RMS 1 at the start, with the rates of --config unit."""
    kernels: str = "auto"
    """Rounds of messages on the CPU: compiled (in C++, at first use), fused (hand-written forward and backward in
    PyTorch), reference (autograd), or auto: compiled where there is a C++ compiler, else fused."""
    init: str = "independent"
    """Initial matrices: independent, or shared_seed (all matrices of one shape equal, as the official code)."""
    actuator_wiring: str = "correct"
    """correct (by actuator id) or official (in node order, the official code's defect)."""
    attention: AttentionConfig = field(default_factory=AttentionConfig)

    def __post_init__(self) -> None:
        check_range("policy", "hidden_size", self.hidden_size, 2, 8192)
        check_range("policy", "propagation_steps", self.propagation_steps, 0, 64)
        check_choice("policy", "aggregation", self.aggregation, ("mean", "sum", "max"))
        check_choice("policy", "gru", self.gru, ("reset_before", "reset_after"))
        self._check_message_layer()
        self.check_memory(self.network)
        if "memory" in self.freeze and self.memory == "none":
            raise UserError("policy.freeze names 'memory', which policy.memory = 'none' leaves empty: leave it out")
        check_choice("policy", "log_std", self.log_std, ("per_class", "per_actuator"))
        check_range("policy", "log_std_init", self.log_std_init, -20.0, 2.0)
        check_choice("policy", "critic_readout", self.critic_readout, ("mean", "sum", "root"))
        check_choice("policy", "kernels", self.kernels, ("auto", "compiled", "fused", "reference"))
        check_choice("policy", "parametrization", self.parametrization, ("standard", "unit"))
        if self.gru == "reset_after" and self.parametrization == "unit":
            raise UserError(
                "policy.gru = 'reset_after' has no unit-scaled form: choose reset_before, or parametrization standard"
            )
        check_choice("policy", "init", self.init, ("independent", "shared_seed"))
        check_choice("policy", "actuator_wiring", self.actuator_wiring, ("correct", "official"))
        self._check_attention()

    def check_bodies(self, names: Sequence[str]) -> None:
        """Require that the networks can serve these bodies together.

        Raises:
            UserError: There are several, and one of the networks serves one only.
        """
        if len(names) < 2:
            return
        these = f"serves one body, not {', '.join(names)}"
        if self.network == "mlp":
            raise UserError(
                f"policy.network = 'mlp' {these}: choose --method nervenet or snowflake, or train one run each"
            )
        if self.network in ("nervenet", "transformer") and self.log_std == "per_actuator":
            raise UserError(f"policy.log_std = 'per_actuator' {these}: choose --log-std per_class")
        if self.critic == "flat":
            raise UserError(f"policy.critic = 'flat' {these}: choose --critic graph, or auto")

    def _check_message_layer(self) -> None:
        """Refuse settings that would have no effect."""
        if self.message_layer == "mlp":
            if self.message_layer_args:
                raise UserError("policy.message_layer_args are a convolution's: name it in policy.message_layer")
            return
        if self.aggregation != "mean":
            raise UserError(
                f"policy.aggregation = {self.aggregation!r} is for message_layer mlp: {self.message_layer} aggregates "
                "by itself, give it aggr in policy.message_layer_args where it takes that"
            )
        graph_critic = ("graph",) if self.network == "mlp" else ("graph", "auto")  # which several bodies get
        if self.network in ("mlp", "transformer") and self.critic not in graph_critic:
            raise UserError(
                f"policy.message_layer = {self.message_layer!r} is for graph networks: choose --method nervenet or "
                "snowflake"
            )

    def _check_attention(self) -> None:
        """Refuse settings that would have no effect, and widths that do not fit."""
        if "transformer" in (self.network, self.critic):
            self.attention.check_width(self.hidden_size)
        elif self.network in ("nervenet", "mlp") and self.attention != AttentionConfig():
            raise UserError(
                f"policy.attention has no effect with policy.network = {self.network!r}: choose --method transformer"
            )
