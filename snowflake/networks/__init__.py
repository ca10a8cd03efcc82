"""Actor and critic networks: graph (NerveNet, Snowflake), transformer over the nodes, and flat (MLP)."""

from snowflake.networks.base import Actor, Critic, Network
from snowflake.networks.graph_critic import GraphCritic
from snowflake.networks.log_std import map_log_std
from snowflake.networks.mlp import MLP, FlatCritic, MLPActor
from snowflake.networks.mlp_transfer import map_mlp
from snowflake.networks.nervenet import NerveNetActor
from snowflake.networks.normalizer import RunningNorm
from snowflake.networks.registry import build_actor, build_critic, register_actor, register_critic
from snowflake.networks.transformer import TransformerActor, TransformerCritic

__all__ = [
    "MLP",
    "Actor",
    "Critic",
    "FlatCritic",
    "GraphCritic",
    "MLPActor",
    "NerveNetActor",
    "Network",
    "RunningNorm",
    "TransformerActor",
    "TransformerCritic",
    "build_actor",
    "build_critic",
    "map_log_std",
    "map_mlp",
    "register_actor",
    "register_critic",
]
