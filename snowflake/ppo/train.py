"""Train a run from its config, and continue one from its last checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback, CallbackList

import envs
from agents import Morphology
from agents.errors import UserError
from envs.physics import available_cores
from snowflake.compilation import resolve
from snowflake.config import TrainConfig
from snowflake.config.loader import to_yaml
from snowflake.files import dump_json, sweep_up, write_atomic
from snowflake.json_files import parse_entry
from snowflake.networks.native.library import choice
from snowflake.ppo.algorithm import SnowflakePPO
from snowflake.ppo.bad_numbers import BadNumbers
from snowflake.ppo.callbacks import ProgressCallback, RunCallback, TrainingStopped, hyperparameters
from snowflake.ppo.checkpoint import restore
from snowflake.ppo.events import cut_events
from snowflake.ppo.logger import HPARAMS_TAG, log_hyperparameters, make_logger
from snowflake.ppo.signals import stop_on_signal
from snowflake.ppo.starts import record_start
from snowflake.ppo.vec_env import LocomotionVecEnv
from snowflake.run import FINETUNE_FILE, Run, graph_of


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
    algorithm.begin()

    def fill(folder: Path) -> None:
        for name, note in (notes or {}).items():
            (folder / name).write_text(dump_json(note))
        if algorithm.policy.numerics is not None:
            (folder / "numerics.txt").write_text(algorithm.policy.numerics.report())
        algorithm.save(folder / "checkpoints" / f"step_{0:012d}")  # a run can be continued from its first moment on
        (folder / "checkpoints" / "index.json").write_text(dump_json({"last": 0}))
        record_start(folder, 0, config, command)

    run = Run.create(run_path, config, algorithm.env.vector_env.body_envs, command, fill)
    if progress and len(algorithm.env.body_names) > 1:
        print(_split_words(algorithm), file=sys.stderr)
    with run.locked():
        algorithm.set_logger(make_logger(run.path))
        log_hyperparameters(algorithm.logger, hyperparameters(run))
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
    command: Sequence[str] | None = None,
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
        command: what the user typed, for the log of starts; ``sys.argv`` if not given.
        callbacks: SB3 callbacks besides ours.
        progress: show progress on standard error.

    Raises:
        UserError: no run or no whole checkpoint there, another process trains it, or the new end lies behind it.
    """
    run = Run.open(run_path)
    changes = {"total_timesteps": total_timesteps, "device": device, "torch_threads": torch_threads}
    changes |= {"precision": precision}
    config = dataclasses.replace(run.config, **{key: value for key, value in changes.items() if value is not None})
    if num_threads is not None:
        config = dataclasses.replace(config, env=dataclasses.replace(config.env, num_threads=num_threads))
    with run.locked():
        folder, damaged = run.last_intact()
        done = int(folder.name[5:])
        if total_timesteps is not None and total_timesteps <= done:
            raise UserError(
                f"--total-timesteps {total_timesteps} lies behind the last checkpoint of {run_path} ({done} steps)"
            )
        for step, wrong in damaged.items():
            print(f"checkpoint at step {step:,} is damaged: {wrong}; going on from step {done:,}", file=sys.stderr)
        run = dataclasses.replace(run, config=config)
        algorithm = build(config, run.morphologies)
        restore(algorithm, folder)
        tags = _tidy(run, done, damaged, algorithm.milestones)
        write_atomic(run.path / "config.yaml", to_yaml(config))
        if different := record_start(run.path, done, config, command):
            print(f"no longer bit-exact from step {done:,} on: {', '.join(different)}", file=sys.stderr)
        algorithm.set_logger(make_logger(run.path, resume_step=done))
        if HPARAMS_TAG not in tags:
            log_hyperparameters(algorithm.logger, hyperparameters(run))
        first = (run.path / FINETUNE_FILE).exists()
        _learn(algorithm, run, config.total_timesteps - done, callbacks, progress, first)
    return run


def _tidy(run: Run, step: int, damaged: Iterable[int], milestones: Mapping[str, float]) -> set[str]:
    """Bring a run folder to where it stood when the checkpoint at ``step`` was written.

    Returns:
        The tags in its event files.
    """
    evaluated = milestones.get("evaluation", -1) == step
    _drop_evaluations_after(run, step, evaluated=evaluated)
    tags = cut_events(run.path / "tensorboard", step, evaluated=evaluated)
    best = {"best": int(milestones["best_step"])} if milestones.get("best_step") in run.checkpoints() else {}
    run.set_index({"last": step} | best)
    run.set_aside(damaged)
    run.drop_checkpoints_after(step)
    sweep_up(run.path)
    sweep_up(run.path / "checkpoints")
    return tags


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
    """Require that a device, whose name the config has checked, is there."""
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return
    if not torch.cuda.is_available():
        raise UserError(f"device = {device!r}: this machine or this torch build has no CUDA; use --device cpu")
    if int(number or 0) >= torch.cuda.device_count():
        raise UserError(f"device = {device!r}: this machine has {torch.cuda.device_count()}, counted from cuda:0")


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
    path = shlex.quote(str(run.path))
    if progress and algorithm.policy.numerics is not None:
        print(algorithm.policy.numerics.describe(), file=sys.stderr)
    try:
        if timesteps > 0:
            with stop_on_signal(keeper.request_stop):
                algorithm.learn(timesteps, callback=CallbackList(chain), reset_num_timesteps=False)
        algorithm.logger.close()
    except TrainingStopped:
        bar.stop()
        print(f"stopped at step {algorithm.num_timesteps:,}; continue with: snowflake resume {path}", file=sys.stderr)
        raise KeyboardInterrupt("stopped, saved") from None
    except BadNumbers as error:
        raise BadNumbers(
            f"{error}; the checkpoint at step {run.index()['last']:,} is good: lower learning_rate in "
            f"{run.path / 'config.yaml'} (or set on_non_finite: skip), then: snowflake resume {path}",
            error.update,
        ) from None
    except OSError as error:
        last = run.index()["last"]
        raise UserError(
            f"cannot write to {run.path} at step {algorithm.num_timesteps:,}: {error.strerror or error}; everything up "
            f"to step {last:,} is kept: make room, then: snowflake resume {path}"
        ) from error
    finally:
        bar.stop()
        with contextlib.suppress(OSError):  # what it cannot write was told above
            algorithm.logger.close()
        algorithm.env.close()


def _drop_evaluations_after(run: Run, step: int, *, evaluated: bool) -> None:
    """Forget evaluations that an interrupted run wrote after its last checkpoint.

    Raises:
        UserError: a line is damaged.
    """
    file = run.path / "evaluations.jsonl"
    if not file.exists():
        return
    last = step if evaluated else step - 1
    try:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    except ValueError:
        raise UserError(f"{file} is damaged: it is no text; delete it") from None
    kept = []
    for number, line in enumerate(lines, 1):
        if line.endswith("\n"):  # a kill may have cut the last line
            entry = parse_entry(line, file.with_name(f"{file.name}:{number}"), "delete that line")
            if entry["step"].count() <= last:
                kept.append(line)
    if kept != lines:
        write_atomic(file, "".join(kept))
