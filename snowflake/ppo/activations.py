"""Activations and attention of limb transformers during training, for TensorBoard."""

from __future__ import annotations

import torch

from snowflake.networks.transformer.network import TransformerNetwork
from snowflake.networks.transformer.statistics import ActivationStatistics
from snowflake.policy import GraphActorCriticPolicy

MAX_ROWS = 1024
"""Observations that are looked at, at most: enough for a mean, and few enough for memory."""


@torch.no_grad()
def measure_activations(policy: GraphActorCriticPolicy, obs: torch.Tensor, rows: int, seed: int) -> dict[str, float]:
    """Return statistics of actor and critic, as far as they are limb transformers, on some of the observations.

    Uncompiled and in one forward pass each, with hooks that are gone afterwards. Draws from no generator but its own,
    and changes nothing.

    Args:
        policy: before an update.
        obs: observations of the rollout, (M, D).
        rows: how many to look at, as many as a minibatch has; at most `MAX_ROWS`.
        seed: of their choice.

    Returns:
        What `ActivationStatistics.scalars` describes, with the network after the first part of the tag:
        ``act/actor/L0/qkv/y_rms``, ``attn/critic/L2/entropy``. Empty without a limb transformer.
    """
    networks = {
        name: network
        for name, network in (("actor", policy.actor), ("critic", policy.critic))
        if isinstance(network, TransformerNetwork)
    }
    if not networks:
        return {}
    generator = torch.Generator().manual_seed(seed)
    index = torch.randperm(len(obs), generator=generator)[: min(rows, MAX_ROWS)].to(obs.device)
    chosen, body = obs[index], policy.body_index(obs[index])
    result: dict[str, float] = {}
    for name, network in networks.items():
        with ActivationStatistics(network) as statistics:
            for k in body.unique().tolist():
                network.final_states(network.prepare(chosen[body == k], k), k)
        for tag, value in statistics.scalars().items():
            kind, _, rest = tag.partition("/")
            result[f"{kind}/{name}/{rest}"] = value
    return result
