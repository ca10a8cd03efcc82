"""The limb transformer: one token per node of a body, the stability methods of Rybakov et al. (2024) as options."""

from snowflake.networks.transformer.network import TransformerActor, TransformerCritic

__all__ = ["TransformerActor", "TransformerCritic"]
