"""What happens at the boundary between an update and the next rollout: evaluation, checkpoints, progress."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback

from snowflake.config import loader
from snowflake.evaluation.controllers import policy_controller
from snowflake.evaluation.rollout import evaluate
from snowflake.files import append_line, dump_json
from snowflake.freezing import FrozenBytes, table
from snowflake.networks.native.library import choice
from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.events import sync_events
from snowflake.run import Run

if TYPE_CHECKING:
    from snowflake.ppo.algorithm import SnowflakePPO

EVALUATION_SEED_OFFSET = 1_000_000
"""Evaluation start states are drawn from ``seed + this``, so that training never sees them."""


def evaluate_bodies(policy: GraphActorCriticPolicy, run: Run) -> dict[str, dict[str, Any]]:
    """Play ``eval_episodes`` episodes per body with the mean action.

    Returns:
        Per body: ``returns`` and ``lengths`` of each episode, and mean ``distance`` in m.
    """
    config = run.config
    results = {}
    for k, morphology in enumerate(run.morphologies):
        batch = evaluate(
            policy_controller(policy, body=k, deterministic=True),
            morphology,
            episodes=config.evaluation.eval_episodes,
            seed=config.seed + EVALUATION_SEED_OFFSET,
            max_episode_steps=config.env.max_episode_steps,
            make_env=partial(run.make_env, morphology, num_threads=config.env.num_threads),
        )
        results[morphology.name] = {
            "returns": np.asarray(batch.returns).tolist(),
            "lengths": np.asarray(batch.lengths).tolist(),
            "distance": float(np.mean(batch.distance)),
        }
    return results


class TrainingStopped(Exception):
    """Training stopped on request, between an update and the next rollout, with everything saved."""


class RunCallback(BaseCallback):
    """Evaluates and saves at fixed numbers of environment steps, always between an update and the next rollout.

    Args:
        run: where to write.
        evaluate_first: also evaluate at step 0.
    """

    model: SnowflakePPO  # type: ignore[assignment]

    def __init__(self, run: Run, evaluate_first: bool = False) -> None:
        super().__init__()
        self.run, self.evaluate_first = run, evaluate_first
        self.stop_requested = False
        """Whether to save and stop once the current update is done."""

    def request_stop(self) -> None:
        """Save and stop once the current update is done."""
        self.stop_requested = True

    def _on_training_start(self) -> None:
        self.frozen = FrozenBytes(self.model.policy.actor)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        config = self.run.config.evaluation
        save = self._due("checkpoint", config.checkpoint_freq)
        first = self.evaluate_first and self.model.num_timesteps == 0 and "evaluation" not in self.model.milestones
        if config.eval_freq and (first or self._due("evaluation", config.eval_freq)):
            save = self._evaluate() or save
            if self.model.policy.numerics is not None:
                self.model.policy.numerics.forget_flops()
        if save or self.stop_requested:
            self._save()
        if self.stop_requested:
            raise TrainingStopped

    def _on_training_end(self) -> None:
        if self.run.config.evaluation.eval_freq and self.model.milestones.get("evaluation") != self.model.num_timesteps:
            self._evaluate()
        self._save()

    def _due(self, name: str, frequency: int) -> bool:
        """Whether ``num_timesteps`` passed a multiple of ``frequency`` since the last time."""
        return self.model.num_timesteps // frequency > int(self.model.milestones.get(name, 0)) // frequency

    def _evaluate(self) -> bool:
        """Evaluate, log, and say whether this is the best so far."""
        model = self.model
        results = evaluate_bodies(model.policy, self.run)
        mean = float(np.mean([np.mean(r["returns"]) for r in results.values()]))
        record = model.logger.record
        record("eval/mean_reward", mean)
        record("eval/mean_ep_length", float(np.mean([np.mean(r["lengths"]) for r in results.values()])))
        for name, result in results.items():
            record(f"eval/{name}/mean_reward", float(np.mean(result["returns"])))
            record(f"eval/{name}/distance", result["distance"])
        model.logger.dump(step=model.num_timesteps)
        line = {"step": model.num_timesteps, "mean_reward": mean, "deterministic": True, "bodies": results}
        append_line(self.run.path / "evaluations.jsonl", dump_json(line, indent=None))
        model.milestones["evaluation"] = model.num_timesteps
        if mean > model.milestones.get("best_return", float("-inf")):
            model.milestones |= {"best_return": mean, "best_step": model.num_timesteps}
            return True
        return False

    def _save(self) -> None:
        """Write a checkpoint here, point ``last`` (and ``best``) at it, and drop those that no rule keeps."""
        model, run = self.model, self.run
        step = model.num_timesteps
        self.frozen.assert_unchanged()
        config, milestones = run.config.evaluation, model.milestones
        if self._due("checkpoint", config.checkpoint_freq):
            milestones["checkpoint"] = step
        sync_events(run.path / "tensorboard")  # a checkpoint on the disk without its curve would leave a gap
        if step not in run.checkpoints():
            model.save(run.checkpoint_path(step))
        best = milestones.get("best_step")
        run.set_index({"last": step} | ({"best": int(best)} if best in run.checkpoints() else {}))
        run.prune(config.keep_checkpoints)


class ProgressCallback(BaseCallback):
    """Progress with steps, return, frames per second and time left: a bar on a terminal, else a line now and then.

    Args:
        total_timesteps: where the run ends.
        seconds: least time between two lines off a terminal.
    """

    def __init__(self, total_timesteps: int, seconds: float = 15.0) -> None:
        super().__init__()
        self.total, self.seconds = total_timesteps, seconds
        self.console = Console(file=sys.stderr)
        self.progress: Progress | None = None

    def _on_training_start(self) -> None:
        self.begin, self.first, self.last_line = time.monotonic(), self.model.num_timesteps, time.monotonic()
        policy = cast(GraphActorCriticPolicy, self.model.policy)
        print(table(policy.actor), file=sys.stderr, flush=True)
        if self.model.device.type == "cpu" and policy.numerics is None:
            print(choice(policy.config), file=sys.stderr, flush=True)
        elif policy.numerics is not None and policy.numerics.whole_batches:
            line = (
                f"kernels: PyTorch's for layers of the recipe, {policy.config.kernels} (policy.kernels) for the others"
            )
            print(line, file=sys.stderr, flush=True)
        if self.console.is_terminal:
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.task = self.progress.add_task("training", total=self.total)
            self.progress.start()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        now = time.monotonic()
        rate = (self.model.num_timesteps - self.first) / max(now - self.begin, 1e-9)
        episodes = self.model.ep_info_buffer
        mean = f"{np.mean([e['r'] for e in episodes]):.1f}" if episodes else "-"
        text = f"step {self.model.num_timesteps:,}/{self.total:,}  return {mean}  {rate:,.0f} steps/s"
        if self.progress is not None:
            self.progress.update(self.task, completed=min(self.model.num_timesteps, self.total), description=text)
        elif now - self.last_line >= self.seconds:
            self.last_line = now
            left = max(self.total - self.model.num_timesteps, 0) / max(rate, 1e-9)
            print(f"{text}  {left / 60:.1f} min left", file=sys.stderr, flush=True)

    def _on_training_end(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self.progress is not None:
            self.progress.stop()
            self.progress = None


def hyperparameters(run: Run) -> dict[str, Any]:
    """The config as one flat table, ``section.key`` to value."""
    return loader.flat(run.config)
