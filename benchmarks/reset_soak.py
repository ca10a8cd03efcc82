"""Resets environments and compiles bodies for as long as an hour of training would, and watches the memory.

Usage: ``python benchmarks/reset_soak.py [--resets N] [--compiles N] [--bodies NAME ...]``. An hour of training at
20,000 steps a second with episodes of 200 steps ends 360,000 episodes: the default. After a tenth of each series as
warm-up the resident set may grow by less than 1 % or 5 MB over the rest. Prints a table; exit code 1 if something grew
more.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import agents
import envs
from snowflake.run import graph_of

BODIES = ("centipede-6", "hopper-3", "ant", "humanoid")
_MEGABYTES, _SHARE = 5.0, 0.01
_ENVS = 16


def resident() -> float:
    """Return the resident set of this process [MB]."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def grows(before: float, after: float) -> bool:
    """Return whether the memory [MB] grew by more than is allowed."""
    return after - before >= max(_MEGABYTES, _SHARE * before)


def soak(name: str, count: int, act: Callable[[int], None]) -> bool:
    """Repeat something, print a line of how the memory went, and return whether it grew too much.

    Args:
        name: of the line.
        count: how often, a tenth of it as warm-up.
        act: what; it gets the number of the repetition.
    """
    begin = time.monotonic()
    warm = max(1, count // 10)
    for i in range(warm):
        act(i)
    before = resident()
    for i in range(warm, count):
        act(i)
    after = resident()
    bad = grows(before, after)
    row = f"{name:<34}{count:>9}{before:>10.1f}{after:>10.1f}{after - before:>+9.1f}"
    print(f"{row}{(time.monotonic() - begin) / 60:>9.1f}  {'GROWS' if bad else 'constant'}", flush=True)
    return bad


def main() -> int:
    """Run all series; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--resets", type=int, default=360_000, help="of single environments, over all bodies")
    parser.add_argument("--compiles", type=int, default=2000, help="of bodies, and of environments made and closed")
    parser.add_argument("--bodies", nargs="+", default=list(BODIES))
    options = parser.parse_args()
    print(f"{'what':<34}{'times':>9}{'MB before':>10}{'MB after':>10}{'growth':>9}{'minutes':>9}")
    bad = []
    for body in options.bodies:
        env = envs.make_vector_env([body], _ENVS, num_threads=1)
        actions = np.zeros(env.action_space.shape, np.float32)  # type: ignore[arg-type]

        def reset(i: int, env: envs.LocomotionVectorEnv = env, actions: np.ndarray = actions) -> None:
            env.reset(seed=i if i % 2 else None)
            env.step(actions)

        rounds = max(10, options.resets // len(options.bodies) // _ENVS)
        bad.append(soak(f"reset {_ENVS} x {body}", rounds, reset))
        env.close()
    cycle = itertools.cycle(options.bodies)

    def build(_: int) -> None:
        body = next(cycle)
        agents.load(body).compile()
        env = envs.make_vector_env([body], 2, num_threads=2)
        graph_of(env.body_envs[0])
        env.reset()
        env.close()

    bad.append(soak("compile, make, reset and close", options.compiles, build))
    return int(any(bad))


if __name__ == "__main__":
    sys.exit(main())
