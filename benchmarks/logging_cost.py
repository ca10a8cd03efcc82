"""What share of training goes into checkpoints and logging at default intervals?

    .venv/bin/python benchmarks/logging_cost.py --config centipede-6

Trains for some updates and takes the time of every TensorBoard write and every checkpoint. The share is what they take
at the default intervals: a write an update, and a checkpoint every ``checkpoint_freq`` and at most every ``eval_freq``
environment steps, as if every evaluation found a new best policy. Evaluations are not counted on either side.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 0.02


def timed(owner: Any, name: str, seconds: list[float]) -> None:
    """Add the wall time of every call of a method to ``seconds``."""
    original: Callable[..., Any] = getattr(owner, name)

    def method(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - begin)

    setattr(owner, name, method)


def main(argv: list[str] | None = None) -> int:
    """Measure; returns 1 if the share is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="centipede-6")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--saves", type=int, default=5)
    flags = parser.parse_args(argv)
    from snowflake.config import loader
    from snowflake.ppo.algorithm import SnowflakePPO
    from snowflake.ppo.callbacks import RunCallback
    from snowflake.ppo.train import train

    plain = loader.resolve(None, (flags.config,), {})
    batch = plain.ppo.n_steps * plain.env.n_envs
    freq = {"eval_freq": 0, "checkpoint_freq": batch * max(1, flags.updates // flags.saves)}
    config = loader.resolve(None, (flags.config,), {"total_timesteps": batch * flags.updates, "evaluation": freq})
    writes, saves, updates, rollouts = [], [], [], []
    timed(SnowflakePPO, "_log_counts", writes)
    timed(RunCallback, "_save", saves)
    timed(SnowflakePPO, "train", updates)
    timed(SnowflakePPO, "collect_rollouts", rollouts)
    with tempfile.TemporaryDirectory(prefix="logging-cost-") as folder:
        train(config, Path(folder) / "run", progress=False)
    write, save = statistics.median(writes[1:]), statistics.median(saves)
    # Checkpoints are written at the start of a rollout; all but the few with one have none of it.
    iteration = statistics.median(updates[1:]) + statistics.median(rollouts[1:])
    evaluation = plain.evaluation
    per_step = 1 / evaluation.checkpoint_freq + (1 / evaluation.eval_freq if evaluation.eval_freq else 0.0)
    share = (write + save * batch * per_step) / iteration
    print(
        f"{flags.config}: an update with its rollout ({batch} steps) {iteration * 1e3:.0f} ms, a TensorBoard write "
        f"{write * 1e3:.1f} ms, a checkpoint {save * 1e3:.0f} ms\n"
        f"share of training at a write an update and a checkpoint every {1 / per_step:,.0f} steps: {share:.2%} "
        f"(limit {LIMIT:.0%})\n"
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    )
    return int(share > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
