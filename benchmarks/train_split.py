"""Where a training step spends its time: physics, rollout inference, update, per body.

    .venv/bin/python benchmarks/train_split.py --agents centipede-6 centipede-12 --iterations 4

Prints one JSON line per body: environment steps per second of the whole loop and of each part, after one iteration
of warm-up, with the constants of the default config.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from snowflake.config.loader import resolve
from snowflake.ppo.train import build
from snowflake.run import versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", nargs="+", default=["centipede-6"])
    parser.add_argument("--method", default="snowflake")
    parser.add_argument("--iterations", type=int, default=4)
    arguments = parser.parse_args()
    for body in arguments.agents:
        config = resolve(method=arguments.method, overrides={"agents": (body,)})
        algorithm = build(config)
        batch = config.ppo.n_steps * config.env.n_envs
        seen: list[dict[str, float]] = []
        log = algorithm._log

        def record(statistics, settings, algorithm=algorithm, seen=seen, log=log) -> None:
            seen.append({k: v for k, v in algorithm._rollout_statistics.items() if k.startswith("time/")})
            log(statistics, settings)

        algorithm._log = record
        algorithm.learn(batch)
        start = time.perf_counter()
        algorithm.learn(batch * arguments.iterations, reset_num_timesteps=False)
        seconds = time.perf_counter() - start
        split = {k.removeprefix("time/"): round(sum(s[k] for s in seen[1:]) / (len(seen) - 1)) for k in seen[0]}
        result = {
            "body": body,
            "method": arguments.method,
            "fps": round(batch * arguments.iterations / seconds),
            **split,
        }
        print(json.dumps(result | {"torch_threads": torch.get_num_threads(), "versions": versions()}))


if __name__ == "__main__":
    main()
