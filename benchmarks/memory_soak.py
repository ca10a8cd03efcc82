"""Does training keep its memory constant? Resident set over updates of a two-link body, and over many resets.

    .venv/bin/python benchmarks/memory_soak.py        # 100 updates to warm up, 1,000 measured; 100,000 resets

The exit code is 1 if either grows by more than 5 MB and by more than 1 %.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np

TWO_LINKS = """<mujoco model="two-link">
  <option timestep="0.01"/>
  <default><geom type="capsule" size="0.05" density="1000"/><joint type="hinge" axis="0 1 0" damping="0.1"/></default>
  <worldbody>
    <body name="upper" pos="0 0 2">
      <joint name="shoulder"/><geom fromto="0 0 0 0 0 -0.5"/>
      <body name="lower" pos="0 0 -0.5"><joint name="elbow"/><geom fromto="0 0 0 0 0 -0.5"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder" ctrlrange="-1 1"/><motor joint="elbow" ctrlrange="-1 1"/></actuator>
</mujoco>
"""
PAGE = os.sysconf("SC_PAGE_SIZE")
LIMIT_BYTES, LIMIT_SHARE = 5_000_000, 0.01


def resident() -> int:
    """Resident set of this process in bytes (Linux)."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def grew(what: str, before: int, after: int) -> bool:
    """Print how much the resident set grew, and return whether that is too much."""
    growth = after - before
    bad = growth > LIMIT_BYTES and growth > LIMIT_SHARE * before
    print(
        f"{what}: {before / 1e6:.1f} MB -> {after / 1e6:.1f} MB, {growth / 1e6:+.2f} MB ({growth / before:+.2%}): "
        f"{'TOO MUCH' if bad else 'constant'}"
    )
    return bad


def soak_updates(folder: Path, warm_up: int, updates: int) -> bool:
    """Train for ``warm_up + updates`` updates with logs, checkpoints and evaluations, and compare the resident set."""
    from stable_baselines3.common.callbacks import BaseCallback

    from snowflake.config import EnvConfig, EvaluationConfig, PolicyConfig, PPOConfig, TrainConfig
    from snowflake.ppo.train import train

    class Watch(BaseCallback):
        """Takes the resident set after the warm-up and at the end."""

        def __init__(self) -> None:
            super().__init__()
            self.sizes: list[int] = []
            self.updates = -1

        def _on_rollout_start(self) -> None:
            self.updates += 1
            if self.updates in (warm_up, warm_up + updates):
                self.sizes.append(resident())

        def _on_step(self) -> bool:
            return True

    (folder / "two-link.xml").write_text(TWO_LINKS)
    watch = Watch()
    config = TrainConfig(
        agents=(str(folder / "two-link.xml"),),
        total_timesteps=64 * (warm_up + updates + 1),
        env=EnvConfig(n_envs=4, max_episode_steps=20),
        policy=PolicyConfig(network="nervenet", freeze=("encoder", "message", "decoder")),
        ppo=PPOConfig(n_steps=16, batch_size=32, n_epochs=2),
        evaluation=EvaluationConfig(eval_freq=64 * 50, checkpoint_freq=64 * 50, eval_episodes=2),
    )
    train(config, folder / "run", callbacks=[watch], progress=False)
    return grew(f"{updates} updates after {warm_up}", *watch.sizes)


def soak_resets(resets: int) -> bool:
    """Reset environments again and again, the first tenth to warm up."""
    import envs

    env = envs.make_vector_env(("centipede-6",), 8, max_episode_steps=2, num_threads=2)
    env.reset(seed=0)
    actions, before = np.zeros(env.action_space.shape), 0
    for k in range(resets // 8):
        for _ in range(2):  # the time limit ends and resets every episode
            env.step(actions)
        if k == resets // 80:
            before = resident()
    after = resident()
    env.close()
    return grew(f"{resets} resets", before, after)


def main(argv: list[str] | None = None) -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--resets", type=int, default=100_000)
    flags = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="memory-soak-") as folder:
        bad = soak_updates(Path(folder), flags.warm_up, flags.updates)
    bad = soak_resets(flags.resets) or bad
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
