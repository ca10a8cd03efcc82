"""What an iteration writes to TensorBoard beside the statistics of its rollout."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from snowflake.freezing import rows

if TYPE_CHECKING:
    from snowflake.ppo.algorithm import SnowflakePPO
    from snowflake.ppo.update import UpdateSettings

_SB3 = ("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction", "explained_variance")
_OURS = ("kl_batch", "first_ratio_error", "rollout_ratio_error")


def update_records(
    algorithm: SnowflakePPO, statistics: Mapping[str, float], settings: UpdateSettings
) -> dict[str, float]:
    """Return the metrics of an update of actor and critic by tag, SB3's under ``train/``.

    Args:
        algorithm: after the update, with its rollout still in the buffer.
        statistics: of the update, see :class:`snowflake.ppo.update.PPOUpdate`.
        settings: of the update.
    """
    records = {f"train/{name}": statistics[name] for name in _SB3}
    loss = statistics["policy_gradient_loss"] + algorithm.ent_coef * statistics["entropy_loss"]
    records["train/loss"] = loss + statistics["weight_decay_loss"]
    if algorithm.weight_decay:
        records["train/weight_decay_loss"] = statistics["weight_decay_loss"]
    records["train/clip_range"] = settings.clip_range
    with torch.no_grad():
        _, log_std, mask = algorithm.policy.distribution(algorithm.rollout_buffer.obs[-1])
        records["train/std"] = float((log_std.exp() * mask).sum() / mask.sum())
    ours = (*_OURS, *(name for name in statistics if name.startswith("grad_norm")))
    return records | {f"snowflake/{name}": statistics[name] for name in ours}


def count_records(algorithm: SnowflakePPO) -> dict[str, float]:
    """Return what every kind of update has, by tag: counts, and the episodes of each body."""
    counts = rows(algorithm.policy.actor)
    records: dict[str, float] = {
        "train/n_updates": algorithm._n_updates,
        "snowflake/trainable_parameters": sum(n for _, n, trainable in counts if trainable),
        "snowflake/frozen_parameters": sum(n for _, n, trainable in counts if not trainable),
        "snowflake/unstable_resets": algorithm.unstable_resets,
        "snowflake/skipped_updates": algorithm.skipped_updates,
    }
    if algorithm.policy.calls.compiled and not algorithm.compile_time_told:
        algorithm.compile_time_told = True
        seconds = records["time/compile_seconds"] = algorithm.policy.calls.compile_seconds()
        print(f"compiling took {seconds:.0f} s", file=sys.stderr)
    for name, episodes in algorithm.body_episodes.items():
        if episodes:
            records[f"rollout/{name}/ep_rew_mean"] = float(np.mean([r for r, _ in episodes]))
            records[f"rollout/{name}/ep_len_mean"] = float(np.mean([length for _, length in episodes]))
    if len(algorithm.body_episodes) > 1:
        for name, columns in zip(algorithm.body_episodes, algorithm.rollout_buffer.envs_of_body, strict=True):
            records[f"rollout/{name}/step_share"] = len(columns) / algorithm.n_envs
    return records
