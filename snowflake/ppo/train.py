"""Train a run from its config, and continue one from its last checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat
from torch.utils.tensorboard import SummaryWriter

import envs
from agents import Morphology
from agents.errors import UserError
from envs.physics import available_cores
from snowflake.compilation import resolve
from snowflake.config import TrainConfig
from snowflake.config.loader import to_yaml
from snowflake.files import dump_json, write_atomic
from snowflake.networks.native.library import choice
from snowflake.ppo.algorithm import SnowflakePPO
from snowflake.ppo.callbacks import ProgressCallback, RunCallback, TrainingStopped, hyperparameters
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
    return start(build(config), config, run_path, command=command, callbacks=callbacks, progress=progress)


def start(
    algorithm: SnowflakePPO,
    config: TrainConfig,
    run_path: str | Path,
    *,
    command: Sequence[str] | None = None,
    callbacks: Sequence[BaseCallback] = (),
    progress: bool = True,
    notes: Mapping[str, Mapping[str, Any]] | None = None,
    evaluate_first: bool = False,
) -> Run:
    """Train an algorithm at step 0 in a new run folder.

    Args:
        algorithm: what :func:`build` made of ``config``.
        config: resolved config.
        run_path: folder to make.
        command: what the user typed; ``sys.argv`` if not given.
        callbacks: SB3 callbacks besides ours.
        progress: show progress on standard error.
        notes: JSON files to add to the folder, by name.
        evaluate_first: also evaluate at step 0.

    Raises:
        UserError: the folder exists, or training diverged.
    """
    config = dataclasses.replace(config, compile="on" if algorithm.policy.calls.compiled else "off")
    run = Run.create(run_path, config, algorithm.env.vector_env.body_envs, command)
    for name, note in (notes or {}).items():
        write_atomic(run.path / name, dump_json(note))
    if algorithm.policy.numerics is not None:
        write_atomic(run.path / "numerics.txt", algorithm.policy.numerics.report())
    if progress and len(algorithm.env.body_names) > 1:
        print(_split_words(algorithm), file=sys.stderr)
    logger = make_logger(run.path)
    _writer(logger).add_text("hyperparameters", hyperparameters(run), 0)
    algorithm.set_logger(logger)
    _learn(algorithm, run, config.total_timesteps, callbacks, progress, evaluate_first)
    return run


def _split_words(algorithm: SnowflakePPO) -> str:
    """One line: how the environments, and with them the steps, are split among the bodies."""
    total = algorithm.n_envs
    counts = [len(columns) for columns in algorithm.rollout_buffer.envs_of_body]
    parts = [f"{name} {n} ({n / total:.1%})" for name, n in zip(algorithm.env.body_names, counts, strict=True)]
    return f"{total} environments, share of the steps in brackets: {', '.join(parts)}"


def resume(
    run_path: str | Path,
    total_timesteps: int | None = None,
    *,
    device: str | None = None,
    precision: str | None = None,
    torch_threads: int | None = None,
    num_threads: int | None = None,
    callbacks: Sequence[BaseCallback] = (),
    progress: bool = True,
) -> Run:
    """Continue a run exactly from its last checkpoint, in the same folder and the same curves.

    Args:
        run_path: run folder.
        total_timesteps: new end of the run; the learning-rate schedule then follows the new end.
        device: where to go on; as before if not given. Elsewhere the run is no longer bit-exact.
        precision: recipe to go on with; as before if not given. Under another the run is no longer bit-exact.
        torch_threads: threads of the update; as before if not given. On the CPU the run stays bit-exact all the same.
        num_threads: physics threads; as before if not given.
        callbacks: SB3 callbacks besides ours.
        progress: show progress on standard error.

    Raises:
        UserError: no run or no checkpoint there, or the new end lies behind it.
    """
    run = Run.open(run_path)
    folder = run.find_checkpoint("last")
    done = int(folder.name[5:])
    config = run.config
    if total_timesteps is not None and total_timesteps <= done:
        raise UserError(
            f"--total-timesteps {total_timesteps} lies behind the last checkpoint of {run_path} ({done} steps)"
        )
    changes = {"total_timesteps": total_timesteps, "device": device, "torch_threads": torch_threads}
    changes |= {"precision": precision}
    config = dataclasses.replace(config, **{key: value for key, value in changes.items() if value is not None})
    if num_threads is not None:
        config = dataclasses.replace(config, env=dataclasses.replace(config.env, num_threads=num_threads))
    run = dataclasses.replace(run, config=config)
    algorithm = build(config, run.morphologies)
    restore(algorithm, folder)
    _drop_evaluations_after(run, done)
    write_atomic(run.path / "config.yaml", to_yaml(config))
    run.drop_checkpoints_after(done)
    algorithm.set_logger(make_logger(run.path, resume_step=done))
    _learn(algorithm, run, config.total_timesteps - done, callbacks, progress)
    return run


def build(config: TrainConfig, morphologies: Sequence[Morphology] | None = None) -> SnowflakePPO:
    """Environment, policy and algorithm of a config, at step 0.

    Args:
        config: resolved config.
        morphologies: the bodies; those that ``config.agents`` names if not given.
    """
    _check_device(config.device)
    compiled = resolve(config.compile, config.device, config.precision) == "on"
    if config.policy.kernels == "compiled":
        choice(config.policy)  # refuses it where there is no compiler
    # Uncompiled, an update on the CPU has threads of its own, and a step of the environments is too little to share.
    torch.set_num_threads(config.torch_threads or available_cores() if compiled else 1)
    env = LocomotionVecEnv(
        envs.make_vector_env(
            morphologies or config.agents,
            config.env.n_envs,
            body_weights=config.env.body_weights,
            max_episode_steps=config.env.max_episode_steps,
            num_threads=config.env.num_threads,
            task_options=config.task,
            features=config.env.features,
            root_body=config.env.root_body,
        )
    )
    edges = config.policy.equality_edges
    graphs = tuple(graph_of(body, equality_edges=edges) for body in env.vector_env.body_envs)
    algorithm = SnowflakePPO.from_config(config, env, graphs)
    if compiled:
        algorithm.policy.calls.compile()
    return algorithm


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
    algorithm: SnowflakePPO,
    run: Run,
    timesteps: int,
    callbacks: Sequence[BaseCallback],
    progress: bool,
    evaluate_first: bool = False,
) -> None:
    bar, keeper = ProgressCallback(run.config.total_timesteps), RunCallback(run, evaluate_first)
    chain = [keeper, *([bar] if progress else []), *callbacks]
    resumed = algorithm._last_obs is not None
    if progress and algorithm.policy.numerics is not None:
        print(algorithm.policy.numerics.describe(), file=sys.stderr)
    try:
        if timesteps > 0:
            with _stop_on_signal(keeper):
                algorithm.learn(timesteps, callback=CallbackList(chain), reset_num_timesteps=not resumed)
    except TrainingStopped:
        bar.stop()
        step = algorithm.num_timesteps
        path = shlex.quote(str(run.path))
        print(f"stopped at step {step:,}; continue with: snowflake resume {path}", file=sys.stderr)
        raise KeyboardInterrupt("stopped, saved") from None
    finally:
        bar.stop()
        algorithm.logger.close()
        algorithm.env.close()


@contextlib.contextmanager
def _stop_on_signal(keeper: RunCallback) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the run after the current update, saved; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python takes signals in the main thread only
        return

    def stop(number: int, frame: object) -> None:
        if keeper.stop_requested:
            raise KeyboardInterrupt
        keeper.stop_requested = True
        print("stopping after this update (once more: at once, losing it)", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _drop_evaluations_after(run: Run, step: int) -> None:
    """Forget evaluations that an interrupted run wrote after its last checkpoint."""
    file = run.path / "evaluations.jsonl"
    if not file.exists():
        return
    kept = []
    for number, line in enumerate(file.read_text().splitlines(keepends=True), 1):
        try:
            if line.endswith("\n") and json.loads(line)["step"] <= step:  # a kill may have cut the last line
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{file}:{number} is damaged: delete that line") from None
    write_atomic(file, "".join(kept))


def _writer(logger: Logger) -> SummaryWriter:
    (output,) = (f for f in logger.output_formats if isinstance(f, TensorBoardOutputFormat))
    return output.writer
