"""Objective ``ppo``: a real training run on the bodies, judged by its curves."""

from __future__ import annotations

import math
import shutil
from functools import partial
from pathlib import Path

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from snowflake.evaluation.controllers import random_action
from snowflake.evaluation.curves import Curve, read_curves
from snowflake.evaluation.rollout import evaluate
from snowflake.ppo.bad_numbers import BadNumbers
from snowflake.ppo.train import resume, train
from snowflake.probe.cells import ProbeCell, check_guards
from snowflake.probe.health import health_name
from snowflake.probe.regression import warmup
from snowflake.probe.row import ProbeRow, thinned
from snowflake.probe.rules import judge_ppo, window
from snowflake.run import Run

RANDOM_EPISODES = 20
"""Episodes of random play per body, to know what a policy gains."""

RANDOM_SEED = 2_000_000
"""Seed of their first start state, beyond those of training and of evaluations during it."""


class WarmUp(BaseCallback):
    """Raises the actor's learning rate linearly over the first updates, and then holds it.

    Args:
        rate: The rate that is held.
        updates: Updates of the whole run.
    """

    def __init__(self, rate: float, updates: int) -> None:
        super().__init__()
        self.rate, self.updates = rate, updates

    def _on_training_start(self) -> None:
        self.model.lr_schedule = lambda left: self.rate * warmup(round((1.0 - left) * self.updates), self.updates)

    def _on_step(self) -> bool:
        return True


def run_ppo(cell: ProbeCell, path: Path) -> ProbeRow:
    """Train a cell, or continue it, and judge it.

    Args:
        cell: The cell.
        path: Its run folder.

    Raises:
        KeyboardInterrupt: A signal stopped the training, saved.
    """
    check_guards(cell.config)
    stopped_at = None
    try:
        _train(cell, path)
    except BadNumbers as stop:
        stopped_at = stop.update
    run = Run.open(path)
    curves = read_curves(path, None)
    updates = stopped_at if stopped_at is not None else cell.updates
    returns = np.mean(
        [_on_updates(curves, f"rollout/{m.name}/ep_rew_mean", cell, updates) for m in run.morphologies], 0
    )
    kl = _on_updates(curves, "snowflake/kl_batch", cell, updates)
    explained = _on_updates(curves, "train/explained_variance", cell, updates)
    chance, error = random_play(run)
    verdict = judge_ppo(kl, explained, returns, chance, error, stopped_at)
    end = returns[-window(updates) :]
    return ProbeRow.of(
        verdict,
        variant=cell.variant,
        rate=cell.rate,
        seed=cell.seed,
        score=float(np.mean(end)) if stopped_at is None else float("nan"),
        initial=chance,
        trivial=chance,
        curve=thinned(returns),
        health=_health(curves, cell),
    )


def random_play(run: Run) -> tuple[float, float]:
    """Mean return of random actions, over the bodies of a run, and its standard error."""
    means, squares = [], []
    for morphology in run.morphologies:
        returns = evaluate(
            random_action(run.graph_of(morphology).act_dim, RANDOM_SEED),
            morphology,
            episodes=RANDOM_EPISODES,
            seed=RANDOM_SEED,
            max_episode_steps=run.config.env.max_episode_steps,
            make_env=partial(run.make_env, morphology, num_threads=1),
        ).returns
        means.append(returns.mean())
        squares.append(returns.var(ddof=1) / len(returns))
    return float(np.mean(means)), float(np.sqrt(np.sum(squares)) / len(squares))


def _train(cell: ProbeCell, path: Path) -> None:
    callbacks = [WarmUp(cell.rate, cell.updates)]
    started = (path / "config.yaml").exists()
    done = Run.open(path).index().get("last", -1) if started else -1
    if path.exists() and done < 0:  # killed before the first checkpoint, at step 0
        shutil.rmtree(path)
    if done < 0:
        command = ["python", "-m", "snowflake.probe.worker", "FOLDER", cell.name]
        train(cell.config, path, command=command, callbacks=callbacks, progress=False)
    elif done < cell.config.total_timesteps:
        resume(path, callbacks=callbacks, progress=False)


def _on_updates(curves: dict[str, Curve], tag: str, cell: ProbeCell, updates: int) -> np.ndarray:
    """A curve as one value an update, NaN where there is none."""
    values = np.full(updates, np.nan)
    if tag in curves:
        size = cell.config.ppo.n_steps * cell.config.env.n_envs
        index = curves[tag].steps // size - 1
        inside = (index >= 0) & (index < updates)
        values[index[inside]] = curves[tag].values[inside]
    return values


def _health(curves: dict[str, Curve], cell: ProbeCell) -> dict[str, list[float]]:
    """What was logged of the actor's activations and attention, by name, with the updates at which it was."""
    found = {
        name: curve for tag, curve in curves.items() if (name := health_name(tag)) and tag.split("/")[1] == "actor"
    }
    steps = sorted({int(step) for curve in found.values() for step in curve.steps})
    size = cell.config.ppo.n_steps * cell.config.env.n_envs
    known = {name: dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True)) for name, curve in found.items()}
    series = {name: [values.get(step, math.nan) for step in steps] for name, values in known.items()}
    return {"update": [step / size for step in steps], **series} if series else {}
