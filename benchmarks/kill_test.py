"""Kills training at random moments, goes on each time, and compares the end with that of an undisturbed run.

    .venv/bin/python benchmarks/kill_test.py                        # 40 kills, some minutes
    .venv/bin/python benchmarks/kill_test.py --kills 6 --seed 1

Every run trains in a process of its own. SIGKILL ends it at a random moment: in one case of six a random time after its
start, else a random part of an update after a random number of updates, which may be while it collects, updates,
evaluates or saves. The next process goes on with ``resume``, or starts anew where there is no run folder yet. Once a
run has come to its end, weights, optimisers and environments of its last checkpoint must equal the undisturbed run's
to the bit, every TensorBoard curve must have the same steps and values, none missing and none twice, and so must the
log of evaluations. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # before torch starts, here and in the processes to come
    os.environ.setdefault(_name, "1")

CASES = ("snowflake", "mlp", "nervenet on two bodies", "finetune")
UPDATES, STEPS = 20, 64
FILES = ("actor", "critic", "optimizers", "environments", "generators")


def config_of(case: str) -> Any:
    """A run of 20 updates with a checkpoint after each and an evaluation after every fourth."""
    from snowflake.config import EnvConfig, EvaluationConfig, PolicyConfig, PPOConfig, TrainConfig

    frozen = ("encoder", "message", "decoder") if case in ("snowflake", "finetune") else ()
    return TrainConfig(
        agents=("centipede-4", "centipede-6") if "two bodies" in case else ("centipede-4",),
        method="mlp" if case == "mlp" else "nervenet" if "two bodies" in case else "snowflake",
        total_timesteps=UPDATES * STEPS,
        torch_threads=1,
        env=EnvConfig(n_envs=4, num_threads=1, max_episode_steps=23),
        policy=PolicyConfig(network="mlp" if case == "mlp" else "nervenet", freeze=frozen, hidden_size=8),
        ppo=PPOConfig(n_steps=STEPS // 4, batch_size=32, n_epochs=2, critic_warmup_updates=3),
        evaluation=EvaluationConfig(eval_freq=4 * STEPS, checkpoint_freq=STEPS, eval_episodes=1, keep_checkpoints=3),
    )


def work(case: str, path: Path, source: Path | None) -> None:
    """Start or continue the run; this is what gets killed."""
    import torch

    from snowflake.ppo.finetune import finetune, load_bodies
    from snowflake.ppo.train import resume, train
    from snowflake.run import Run

    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 the process ends with it
    if path.exists():
        resume(path, progress=False)
    elif source is None:
        train(config_of(case), path, command=["kill_test"], progress=False)
    else:
        bodies = load_bodies(Run.open(source), ("centipede-4",))
        finetune(source, config_of(case), path, bodies, command=["kill_test"], progress=False)


def same(whole: Path, killed: Path) -> list[str]:
    """What differs between two finished runs."""
    from safetensors.torch import load_file

    from snowflake.run import Run

    problems = []
    folders = [Run.open(path).find_checkpoint("last") for path in (whole, killed)]
    for name in FILES:
        one, two = (load_file(folder / f"{name}.safetensors") for folder in folders)
        wrong = sorted(one.keys() ^ two.keys()) or [k for k in one if not one[k].equal(two[k])]
        problems += [f"{name}: {wrong[0]} and {len(wrong) - 1} more differ"] if wrong else []
    curves = [read_events(path / "tensorboard") for path in (whole, killed)]
    if curves[0].keys() != curves[1].keys():
        problems.append(f"curves: {sorted(curves[0].keys() ^ curves[1].keys())}")
    for tag, points in curves[0].items():
        other = curves[1].get(tag, [])
        if [s for s, _ in points] != [s for s, _ in other]:
            problems.append(f"{tag}: steps {[s for s, _ in other]} instead of {[s for s, _ in points]}")
        elif not tag.startswith("time/") and points != other:
            problems.append(f"{tag}: values differ")
    logs = [(path / "evaluations.jsonl").read_text() for path in (whole, killed)]
    return problems + (["evaluations.jsonl differs"] if logs[0] != logs[1] else [])


def read_events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every curve as TensorBoard reads it; steps must increase strictly."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    curves = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    for tag, points in curves.items():
        steps = [s for s, _ in points]
        assert steps == sorted(set(steps)), f"{tag}: steps {steps} do not increase"
    return curves


def last_step(path: Path) -> int:
    """Step of the newest checkpoint of a run; -1 without one."""
    if not (path / "checkpoints").exists():
        return -1
    steps = (name[5:] for name in os.listdir(path / "checkpoints") if name.startswith("step_"))
    return max(map(int, steps), default=-1)


class Killer:
    """Runs one case to its end again and again, and counts what it kills.

    Args:
        folder: for the runs.
        seed: of the moments.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["snowflake.ppo.train", "snowflake.ppo.finetune"])
        idle = self.context.Process(
            target=time.sleep, args=(0,)
        )  # the server imports torch once, before any clock runs
        idle.start()
        idle.join()
        self.kills, self.half_written, self.before_start, self.runs = 0, 0, 0, 0
        self.whole: dict[str, Path] = {}
        self.start_seconds = 1.0
        self.source: Path | None = None

    def process(self, case: str, path: Path, *, kill: bool) -> bool:
        """Work on a run; whether it came to its end before it was killed."""
        child = self.context.Process(target=work, args=(case, path, self.source if case == "finetune" else None))
        begin = time.monotonic()
        child.start()
        if kill:
            self._wait(child, path)
            if child.exitcode is None:
                child.kill()
        child.join()
        if child.exitcode not in (0, -9):
            raise RuntimeError(f"{case}: the process ended with exit code {child.exitcode}")
        if not kill:
            self.start_seconds = (time.monotonic() - begin) / 3
        return child.exitcode == 0

    def _wait(self, child: multiprocessing.process.BaseProcess, path: Path) -> None:
        """Wait for the moment to kill."""
        if self.random.random() < 1 / 6:
            child.join(self.random.uniform(0.0, self.start_seconds))
            return
        updates, part = self.random.randint(0, 6), self.random.random()
        seen, times = last_step(path), [time.monotonic()]
        while child.is_alive() and len(times) <= updates + 1:
            time.sleep(0.001)
            if (now := last_step(path)) != seen:
                seen = now
                times.append(time.monotonic())
        child.join(part * (times[-1] - times[-2]) if len(times) > 2 else part * 0.1)

    def reference(self, case: str) -> Path:
        """The undisturbed run of a case."""
        if case not in self.whole:
            if case == "finetune" and self.source is None:
                self.source = self.reference("snowflake")
            path = self.folder / f"{case.replace(' ', '-')}-whole"
            self.process(case, path, kill=False)
            self.whole[case] = path
        return self.whole[case]

    def run(self, case: str, kills: int, told: Callable[[str], None]) -> list[str]:
        """One run of a case, killed at most that often; what differs at its end."""
        whole = self.reference(case)
        path = self.folder / f"{case.replace(' ', '-')}-{self.runs}"
        self.runs += 1
        at: list[str] = []
        while len(at) < kills and not self.process(case, path, kill=True):
            at.append(str(last_step(path)))
            self.kills += 1
            self.before_start += not path.exists()
            self.half_written += any(self.folder.rglob(".tmp-*"))
        if len(at) == kills:
            self.process(case, path, kill=False)
        problems = same(whole, path)
        told(f"{case}: killed with a last checkpoint at {' '.join(at) or '-'}: {'; '.join(problems) or 'equal'}")
        return problems


def main(argv: list[str] | None = None) -> int:
    """Run the test; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seed", type=int, default=0, help="of the moments; the training seed is always 0")
    flags = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="kill-test-") as folder:
        killer = Killer(Path(folder), flags.seed)
        failed = 0
        for case in itertools.cycle(flags.cases):
            if killer.kills >= flags.kills:
                break
            failed += bool(killer.run(case, min(10, flags.kills - killer.kills), lambda line: print(line, flush=True)))
        print(
            f"{killer.kills} kills in {killer.runs} runs ({killer.half_written} left half-written files, "
            f"{killer.before_start} came before there was a run folder): "
            + ("all ends equal the undisturbed runs'" if not failed else f"{failed} runs differ")
        )
        print(f"seed {flags.seed}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
