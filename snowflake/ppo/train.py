"""Train a run from its config, and continue one from its last checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import TensorBoardOutputFormat

import envs
from agents import Morphology
from agents.errors import UserError
from envs.physics import available_cores
from snowflake.config import TrainConfig
from snowflake.config.loader import to_yaml
from snowflake.files import write_atomic
from snowflake.ppo.algorithm import SnowflakePPO
from snowflake.ppo.callbacks import ProgressCallback, RunCallback, hyperparameters
from snowflake.ppo.checkpoint import restore
from snowflake.ppo.logger import make_logger
from snowflake.ppo.vec_env import LocomotionVecEnv
from snowflake.run import Run, graph_of


def train(
    config: TrainConfig,
    run_path: str | Path,
    *,
    command: Sequence[str] | None = None,
    callbacks: Sequence[BaseCallback] = (),
    progress: bool = True,
) -> Run:
    """Train ``config`` in a new run folder.

    Args:
        config: resolved config.
        run_path: folder to make.
        command: what the user typed, for ``command.txt``; ``sys.argv`` if not given.
        callbacks: SB3 callbacks besides ours.
        progress: show progress on standard error.

    Raises:
        UserError: the folder exists, a body is unknown or has no task, or training diverged.
    """
    Run.check_free(run_path)
    algorithm = build(config)
    run = Run.create(run_path, config, algorithm.env.vector_env.body_envs, command)
    logger = make_logger(run.path)
    _writer(logger).add_text("hyperparameters", hyperparameters(run), 0)
    algorithm.set_logger(logger)
    _learn(algorithm, run, config.total_timesteps, callbacks, progress)
    return run


def resume(
    run_path: str | Path,
    total_timesteps: int | None = None,
    *,
    callbacks: Sequence[BaseCallback] = (),
    progress: bool = True,
) -> Run:
    """Continue a run exactly from its last checkpoint, in the same folder and the same curves.

    Args:
        run_path: run folder.
        total_timesteps: new end of the run; the learning-rate schedule then follows the new end.
        callbacks: SB3 callbacks besides ours.
        progress: show progress on standard error.

    Raises:
        UserError: no run or no checkpoint there, or the new end lies behind it.
    """
    run = Run.open(run_path)
    folder = run.find_checkpoint("last")
    done = int(folder.name[5:])
    if total_timesteps is not None:
        if total_timesteps <= done:
            raise UserError(
                f"--total-timesteps {total_timesteps} lies behind the last checkpoint of {run_path} ({done} steps)"
            )
        run = dataclasses.replace(run, config=dataclasses.replace(run.config, total_timesteps=total_timesteps))
    algorithm = build(run.config, run.morphologies)
    restore(algorithm, folder)
    if total_timesteps is not None:
        write_atomic(run.path / "config.yaml", to_yaml(run.config))
    algorithm.set_logger(make_logger(run.path, resume_step=done))
    _drop_evaluations_after(run, done)
    _learn(algorithm, run, run.config.total_timesteps - done, callbacks, progress)
    return run


def build(config: TrainConfig, morphologies: Sequence[Morphology] | None = None) -> SnowflakePPO:
    """Environment, policy and algorithm of a config, at step 0.

    Args:
        config: resolved config.
        morphologies: the bodies; those that ``config.agents`` names if not given.
    """
    torch.set_num_threads(config.torch_threads or available_cores())
    _check_device(config.device)
    env = LocomotionVecEnv(
        envs.make_vector_env(
            morphologies or config.agents,
            config.env.n_envs,
            max_episode_steps=config.env.max_episode_steps,
            num_threads=config.env.num_threads,
            task_options=config.task,
            features=config.env.features,
            root_body=config.env.root_body,
        )
    )
    edges = config.policy.equality_edges
    graphs = tuple(graph_of(body, equality_edges=edges) for body in env.vector_env.body_envs)
    return SnowflakePPO.from_config(config, env, graphs)


def _check_device(device: str) -> None:
    if device == "auto":
        return
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise UserError(f"device = {device!r} is not a device: use cpu, cuda or cuda:N") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device = {device!r}: this machine or this torch build has no CUDA; use --device cpu")


def _learn(
    algorithm: SnowflakePPO, run: Run, timesteps: int, callbacks: Sequence[BaseCallback], progress: bool
) -> None:
    bar = ProgressCallback(run.config.total_timesteps)
    chain = [RunCallback(run), *([bar] if progress else []), *callbacks]
    resumed = algorithm.num_timesteps > 0
    try:
        if timesteps > 0:
            algorithm.learn(timesteps, callback=CallbackList(chain), reset_num_timesteps=not resumed)
    finally:
        bar.stop()
        algorithm.logger.close()
        algorithm.env.close()


def _drop_evaluations_after(run: Run, step: int) -> None:
    """Forget evaluations that an interrupted run wrote after its last checkpoint."""
    import json

    file = run.path / "evaluations.jsonl"
    if file.exists():
        lines = file.read_text().splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        write_atomic(file, "".join(kept))


def _writer(logger):
    (output,) = (f for f in logger.output_formats if isinstance(f, TensorBoardOutputFormat))
    return output.writer
