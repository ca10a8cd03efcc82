"""Finetuning: a trained actor goes on learning on other bodies, with a fresh critic.

torch is imported inside functions, so that a mistake in the arguments is told at once.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agents
from agents.errors import UserError, nearest
from snowflake.body_files import check_names
from snowflake.config import TrainConfig
from snowflake.config.body_sets import expand_sets
from snowflake.config.checks import check_range
from snowflake.config.task import TaskOptions
from snowflake.evaluation.choice import own_body
from snowflake.files import read_tensors
from snowflake.run import FINETUNE_FILE, Run

if TYPE_CHECKING:
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    from snowflake.graph import MorphologyGraph

_FREE = {"freeze", "train_node_table", "critic", "critic_readout", "freeze_critic", "log_std_init"}
"""Keys of the policy section that a finetuned run may set anew: they say nothing of what the actor computes."""


def load_bodies(source: Run, names: Sequence[str]) -> tuple[agents.Morphology, ...]:
    """Bodies by name; a name of one of the source's bodies, varied or not, means that one, as its folder keeps it.

    Raises:
        UserError: a body is unknown, or two are the same or have one name.
    """
    spelt = expand_sets(names)
    own = [own_body(source.morphologies, name) for name in spelt]
    bodies = tuple(agents.load(name) if body is None else body for name, body in zip(spelt, own, strict=True))
    check_names(bodies, spelt)
    return bodies


def base_settings(source: Run, bodies: Sequence[agents.Morphology]) -> dict[str, Any]:
    """Settings that a finetuned run starts from, before flags: the source's, as far as they fit the new bodies.

    The number of environments is rounded up to a multiple of the bodies. What belongs to the source's bodies is left
    behind: body weights, the root body, a flat critic where there are several bodies, and task options where a body
    has another task.

    Returns:
        Nested like a config.
    """
    config, count = source.config, max(1, len(bodies))
    n_envs = -(-config.env.n_envs // count) * count
    env = dataclasses.replace(config.env, features=source.features, n_envs=n_envs, body_weights=(), root_body=None)
    critic = "auto" if config.policy.critic == "flat" and count > 1 else config.policy.critic
    policy = dataclasses.replace(config.policy, critic=critic, freeze_critic=())
    same_task = {body.task for body in bodies} <= {body.task for body in source.morphologies}
    task = config.task if same_task else TaskOptions()
    changed = {"env": env, "policy": policy, "task": task}
    return dataclasses.asdict(config) | {name: dataclasses.asdict(section) for name, section in changed.items()}


def check_fits(source: Run, config: TrainConfig) -> None:
    """Require that the source's actor is the one that ``config`` describes.

    Raises:
        UserError: another method, network or feature set.
    """
    if config.method != source.config.method:
        raise UserError(
            f"--method {config.method}: {source.path} was trained with {source.config.method}, and its actor goes on; "
            "choose what learns with --train"
        )
    if config.env.features != source.features:
        raise UserError(
            f"env.features = {config.env.features!r}: the actor of {source.path} reads {source.features!r} observations"
        )
    for field in dataclasses.fields(config.policy):
        ours, theirs = (getattr(c.policy, field.name) for c in (config, source.config))
        if ours != theirs and field.name not in _FREE:
            raise UserError(
                f"policy.{field.name} = {ours!r}: the actor of {source.path} has {theirs!r}, which finetuning keeps"
            )


def check_bodies(source: Run, bodies: Sequence[agents.Morphology]) -> None:
    """Require that the source's actor can serve the bodies.

    Raises:
        UserError: it is bound to another body, or reads other features or node types.
    """
    policy = source.config.policy
    if policy.network == "mlp" and (len(bodies) > 1 or source.own_index(bodies[0]) is None):
        names = ", ".join(morphology.name for morphology in source.morphologies)
        raise UserError(
            f"the mlp policy of {source.path} is bound to its body {names}: on another, finetune a graph policy "
            "(--method snowflake or nervenet)"
        )
    if policy.log_std == "per_actuator" and len(bodies) > 1:
        raise UserError(
            f"the policy of {source.path} has a log_std per_actuator, so it goes on with one body at a time: name one"
        )
    for body in bodies:
        if source.own_index(body) is None:
            source.graphs[0].check_compatible(source.graph_of(body))


def check_warmup(config: TrainConfig) -> None:
    """Require that the actor moves before the run ends.

    Raises:
        UserError: the warm-up of the critic takes all steps.
    """
    steps = config.ppo.critic_warmup_updates * config.ppo.n_steps * config.env.n_envs
    if steps >= config.total_timesteps:
        raise UserError(
            f"total_timesteps = {config.total_timesteps}: the critic's warm-up alone takes {steps} steps "
            "(critic_warmup_updates x n_steps x n_envs), the actor would never move: raise it, or lower one of these"
        )


def check_train(train: Sequence[str], components: Sequence[str]) -> None:
    """Require that ``train`` is ``all``, ``same``, or names of components.

    Raises:
        UserError: it is something else, or nothing.
    """
    options = ("all", "same", *components)
    if not train:
        raise UserError(f"--train names nothing that learns: write {', '.join(options[:-1])} or {options[-1]}")
    for word in ("all", "same"):
        if word in train and len(train) > 1:
            others = ", ".join(name for name in train if name != word)
            raise UserError(f"--train {word} stands alone: leave out {others or 'the other'}, or name components only")
    for name in train:
        if name not in options:
            raise UserError(f"--train {name}: {nearest(name, options)}")


def finetune(
    source: str | Path,
    config: TrainConfig,
    run_path: str | Path,
    bodies: Sequence[agents.Morphology],
    *,
    checkpoint: str | int | None = None,
    train: Sequence[str] = ("same",),
    reset_log_std: float | None = None,
    from_scratch: bool = False,
    command: Sequence[str] | None = None,
    callbacks: Sequence[BaseCallback] = (),
    progress: bool = True,
) -> Run:
    """Train the actor of ``source`` on other bodies, in a new run folder.

    Actor weights, log standard deviation and observation statistics are carried over; the critic, the optimisers and
    the learning-rate schedule are fresh. The first ``ppo.critic_warmup_updates`` updates train the critic alone.

    Args:
        source: run folder, or ``pretrained:NAME``.
        config: resolved config, from :func:`base_settings`.
        run_path: folder to make.
        bodies: to train on.
        checkpoint: of the source; ``best``, else ``last``, if not given.
        train: actor components to train; ``("all",)``, or ``("same",)`` for what the config says.
        reset_log_std: new log standard deviation of every action, in [-20, 2]; the source's if not given.
        from_scratch: carry nothing over: the run to compare a finetuned one with.
        command: what the user typed; ``sys.argv`` if not given.
        callbacks: SB3 callbacks besides ours.
        progress: show progress on standard error.

    Raises:
        UserError: the actor does not fit the bodies or the config, or what ``snowflake.ppo.train.train`` refuses.
    """
    from snowflake.freezing import rows
    from snowflake.ppo.train import build, start

    run = Run.open(source)
    Run.check_free(run_path)
    check_bodies(run, bodies)
    check_fits(run, config)
    if reset_log_std is not None:
        check_range("", "reset_log_std", reset_log_std, -20.0, 2.0)
    folder = run.find_checkpoint(checkpoint)
    config = _with_trainable(config, train, run)
    if not from_scratch:
        check_warmup(config)
    algorithm = build(config, bodies)
    actor = algorithm.policy.actor
    if not from_scratch:
        algorithm.policy.load_actor(_carried(run, folder, algorithm.policy.graphs, config))
        if reset_log_std is not None:
            actor.log_std.data.fill_(reset_log_std)
        algorithm.critic_warmup_left = config.ppo.critic_warmup_updates
    note = {
        "format": 1,
        "from_scratch": from_scratch,
        "source": None if from_scratch else _provenance(str(source), run, folder),
        "trainable": [row.component for row in rows(actor) if row.trainable],
        "frozen": [row.component for row in rows(actor) if not row.trainable],
        "reset_log_std": reset_log_std,
        "critic_warmup_updates": algorithm.critic_warmup_left,
    }
    return start(
        algorithm,
        config,
        run_path,
        command=command,
        callbacks=callbacks,
        progress=progress,
        notes={FINETUNE_FILE: note},
        evaluate_first=True,
    )


def _with_trainable(config: TrainConfig, train: Sequence[str], source: Run) -> TrainConfig:
    """The config with ``policy.freeze`` set to the components that ``train`` leaves out."""
    if tuple(train) == ("same",):
        return config
    import torch

    from snowflake.networks import build_actor

    components = build_actor(source.graphs, config.policy, torch.Generator()).components
    check_train(train, components)
    if config.policy.freeze != source.config.policy.freeze:
        raise UserError("--train and --freeze both say what learns: give one of them")
    frozen = () if tuple(train) == ("all",) else tuple(name for name in components if name not in train)
    return dataclasses.replace(config, policy=dataclasses.replace(config.policy, freeze=frozen, train_node_table=False))


def _carried(
    source: Run, folder: Path, graphs: Sequence[MorphologyGraph], config: TrainConfig
) -> Mapping[str, torch.Tensor]:
    """The actor's state of a checkpoint, for the new bodies."""
    from snowflake.networks import map_log_std

    own = source.graphs[0]
    state = read_tensors(folder / "actor.safetensors")
    if config.policy.network != "mlp" and config.policy.log_std == "per_actuator":
        return map_log_std(state, own, graphs[0])
    return state


def _provenance(name: str, source: Run, folder: Path) -> dict[str, Any]:
    """Where the carried actor came from."""
    return {
        "run": name,
        "checkpoint": folder.name,
        "step": int(folder.name.removeprefix("step_")),
        "actor_sha256": hashlib.sha256((folder / "actor.safetensors").read_bytes()).hexdigest(),
        "agents": list(source.config.agents),
        "earlier_agents": list(source.earlier_bodies),
    }
