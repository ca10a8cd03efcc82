"""One run folder: config, versions, bodies, checkpoints, event files."""

from __future__ import annotations

import dataclasses
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import agents
import envs
import snowflake
from agents.errors import UserError, nearest
from snowflake.body_files import ADVICE, check_names, read_body, write_body
from snowflake.checkpoints import Checkpoints
from snowflake.config import TrainConfig
from snowflake.config.loader import load as load_config
from snowflake.config.loader import to_yaml
from snowflake.files import RECIPE_FILE, dump_json, new_folder, read_tensors
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.json_files import read_entry
from snowflake.locks import Busy, held

if TYPE_CHECKING:
    from snowflake.policy import GraphActorCriticPolicy

PRETRAINED = "pretrained:"
FINETUNE_FILE = "finetune.json"
"""Where a finetuned run keeps what its actor came from."""
_PACKAGES = ("torch", "mujoco", "numpy", "gymnasium", "stable-baselines3", "torch-geometric")


def versions() -> dict[str, str]:
    """Versions of what decides numbers: this package, Python, libraries, machine, git commit."""
    found = {"snowflake-rl": snowflake.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found | {"platform": platform.platform(), "git_commit": _git_commit()}


def _git_commit() -> str:
    """Commit of the checkout that this package runs from, with ``-dirty`` where it was changed; else ``none``."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return "none"
    try:
        answers = [
            subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, timeout=10, check=True).stdout
            for args in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answers[0].strip() + ("-dirty" if answers[1].strip() else "")


def graph_of(env: envs.LocomotionVectorEnv, *, equality_edges: bool = False) -> MorphologyGraph:
    """Morphology graph of the body of an environment, under the observations that the environment gives."""
    classes = env.morphology.node_class(env.model)
    return build_graph(env.model, env.layout, classes, env.morphology.name, env.robot, equality_edges)


@dataclass(frozen=True)
class Run(Checkpoints):
    """A run folder.

    Args:
        path: the folder.
        config: the resolved training config.
        morphologies: the bodies, rebuilt from their stored source.
    """

    config: TrainConfig
    morphologies: tuple[agents.Morphology, ...]

    # --- creating and opening -----------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | Path,
        config: TrainConfig,
        body_envs: Sequence[envs.LocomotionVectorEnv],
        command: Sequence[str] | None = None,
        fill: Callable[[Path], None] | None = None,
    ) -> Run:
        """Make a new run folder; an existing one is never overwritten.

        The folder is self-contained: files that a body is made of are copied, and the stored config names bodies and
        feature set as they are in the folder.

        Args:
            path: the folder.
            config: the resolved config.
            body_envs: an environment of each body.
            command: what the user typed, word by word; ``sys.argv`` if not given.
            fill: adds to the folder before it gets its name, so that it appears with all of it or not at all.

        Raises:
            UserError: the folder exists and is not empty, cannot be made, or two bodies have one name.
        """
        path = Path(path)
        morphologies = tuple(env.morphology for env in body_envs)
        check_names(morphologies)
        own = dataclasses.replace(config.env, features=body_envs[0].layout.feature_set)
        config = dataclasses.replace(config, agents=tuple(m.name for m in morphologies), env=own)
        cls.check_free(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                path.rmdir()
            with new_folder(path) as folder:
                (folder / "checkpoints").mkdir()
                (folder / "bodies").mkdir()
                (folder / "config.yaml").write_text(to_yaml(config))
                (folder / "command.txt").write_text(shlex.join(command or sys.argv) + "\n")
                (folder / "versions.json").write_text(dump_json(versions()))
                for env in body_envs:
                    write_body(folder / "bodies", env, graph_of(env, equality_edges=config.policy.equality_edges))
                if fill is not None:
                    fill(folder)
        except OSError as error:
            raise UserError(
                f"cannot make run folder {path}: {error.strerror or error}; choose another --run"
            ) from error
        return cls(path, config, morphologies)

    @staticmethod
    def check_free(path: str | Path) -> None:
        """Require that a run folder can be made at ``path``.

        Raises:
            UserError: something is there already, or nothing can be written there.
        """
        path = Path(path)
        try:
            taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
        except OSError as error:
            raise UserError(f"run folder {str(path)[:80]}: {error.strerror or error}; choose another --run") from error
        if taken:
            raise UserError(
                f"run folder {path} exists: choose another --run, or continue it with `snowflake resume {path}`"
            )
        parent = next(folder for folder in path.absolute().parents if os.path.exists(folder))
        try:  # permissions do not tell: file systems like /proc take nothing from anybody
            os.rmdir(tempfile.mkdtemp(prefix=".tmp-", dir=parent))
        except OSError as error:
            raise UserError(
                f"cannot make run folder {path}: {parent}: {error.strerror or error}; choose another --run"
            ) from error

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run folder, or a policy that ships with the package (``pretrained:NAME``).

        Raises:
            UserError: no run there, a file is broken, or a body no longer compiles to the model that was trained.
        """
        path = _locate(path)
        config = load_config(path / "config.yaml")
        return cls(path, config, tuple(read_body(path / "bodies" / f"{name}.json") for name in config.agents))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the one process that trains in the folder.

        Raises:
            UserError: another one does, or nothing can be written there.
        """
        try:
            with held(self.path / ".lock"):
                yield
        except Busy:
            raise UserError(f"run {self.path} is being trained by another process: wait for it, or stop it") from None
        except PermissionError as error:
            raise UserError(f"run {self.path} cannot be written to: {error.strerror}; copy it, or mend it") from error

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.name

    @cached_property
    def graphs(self) -> tuple[MorphologyGraph, ...]:
        """Morphology graph of each body."""
        return tuple(self.graph_of(morphology) for morphology in self.morphologies)

    @property
    def features(self) -> str:
        """Feature set that the policy reads, for any body."""
        features = self.config.env.features
        return self.graphs[0].feature_set if features == "auto" else features

    def own_index(self, morphology: agents.Morphology) -> int | None:
        """Which of the run's bodies this is, None for another.

        Raises:
            UserError: it has the name of one of them and is another model, as a file that was changed since.
        """
        for k, own in enumerate(self.morphologies):
            if own.name == morphology.name:
                if own != morphology and agents.model_hash(own.compile()) != agents.model_hash(morphology.compile()):
                    raise UserError(
                        f"body {own.name!r} is not the one that {self.path} was trained on, which has the same name: "
                        "rename the file, or leave it out for the run's own"
                    )
                return k
        return None

    def make_env(
        self, morphology: agents.Morphology, num_envs: int = 1, num_threads: int = 1
    ) -> envs.LocomotionVectorEnv:
        """Batched environment of a body, its own or another, as this run's policy knows environments.

        Raises:
            UserError: the body has no such task, or its model is refused.
        """
        config = self.config
        own = morphology in self.morphologies
        trained = {body.task for body in self.morphologies}
        return envs.LocomotionVectorEnv(
            morphology,
            num_envs,
            # Weights belong to the task that they were set for; another one may refuse them.
            task_options=config.task if own or morphology.task in trained else None,
            features=config.env.features if own else self.features,
            root_body=config.env.root_body if own else None,
            max_episode_steps=config.env.max_episode_steps,
            num_threads=num_threads,
        )

    def graph_of(self, morphology: agents.Morphology) -> MorphologyGraph:
        """Morphology graph of a body, its own or another, as this run's policy reads it."""
        env = self.make_env(morphology)
        try:
            return graph_of(env, equality_edges=self.config.policy.equality_edges)
        finally:
            env.close()

    @cached_property
    def earlier_bodies(self) -> tuple[str, ...]:
        """Names of the bodies that the actor of a finetuned run was trained on before, its own left out.

        Raises:
            UserError: ``finetune.json`` is damaged.
        """
        file = self.path / FINETUNE_FILE
        source = read_entry(file, ADVICE).get("source") if file.exists() else None
        if source is None or source.is_null:
            return ()
        lists = [found for key in ("earlier_agents", "agents") if (found := source.get(key)) is not None]
        own = {morphology.name for morphology in self.morphologies}
        names = dict.fromkeys(name.text() for found in lists for name in found)
        return tuple(name for name in names if name not in own)

    # --- acting -------------------------------------------------------------------------------------------------

    def at_precision(self, recipe: str | None) -> Run:
        """This run, its policies computed by another recipe than the one it was trained with; None changes nothing.

        Raises:
            UserError: no such recipe, or it does not suit the networks.
        """
        if recipe is None:
            return self
        return dataclasses.replace(self, config=dataclasses.replace(self.config, precision=recipe))

    def load_policy(self, checkpoint: str | int | None = None) -> GraphActorCriticPolicy:
        """The policy of a checkpoint, on the CPU, for the bodies of the run, computed by the config's recipe.

        The critic is restored where the checkpoint holds one (a shipped policy does not).
        """
        from snowflake.policy import GraphActorCriticPolicy

        folder = self.find_checkpoint(checkpoint)
        policy = GraphActorCriticPolicy.for_graphs(self.graphs, self.config.policy, seed=self.config.seed)
        policy.load_actor(read_tensors(folder / "actor.safetensors"))
        if (folder / "critic.safetensors").exists():
            policy.load_critic(read_tensors(folder / "critic.safetensors"))
        policy.set_training_mode(False)
        policy.set_precision(self.config.precision, sampling="off")
        policy.load_recipe_state(folder)
        return policy

    def export(self, path: str | Path, checkpoint: str | int | None = None) -> Run:
        """Copy what acting needs (config, bodies, one actor) into a new folder that opens like a run.

        Raises:
            UserError: the folder exists.
        """
        path, source = Path(path), self.find_checkpoint(checkpoint)
        if path.exists():
            raise UserError(f"{path} exists: choose another folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(path) as folder:
            for name in ("config.yaml", "command.txt", "versions.json", FINETUNE_FILE):
                if name != FINETUNE_FILE or (self.path / name).exists():
                    shutil.copy2(self.path / name, folder / name)
            shutil.copytree(self.path / "bodies", folder / "bodies")
            target = folder / "checkpoints" / source.name
            target.mkdir(parents=True)
            for name in ("actor.safetensors", RECIPE_FILE):
                if name != RECIPE_FILE or (source / name).exists():
                    shutil.copy2(source / name, target / name)
            (folder / "checkpoints" / "index.json").write_text(dump_json({"best": int(source.name[5:])}))
        return Run.open(path)


def load(
    path: str | Path, checkpoint: str | int | None = None, *, precision: str | None = None
) -> GraphActorCriticPolicy:
    """Load a trained policy: ``snowflake.load(run).predict(obs, deterministic=True)``.

    Args:
        path: run folder, or ``pretrained:NAME``.
        checkpoint: ``best`` (default), ``last``, or a number of steps.
        precision: recipe to compute it by (`snowflake.numerics`); the one it was trained with if None.

    Raises:
        UserError: no such run, checkpoint or recipe, or it does not fit.
    """
    return Run.open(path).at_precision(precision).load_policy(checkpoint)


def pretrained_names() -> tuple[str, ...]:
    """Policies that ship with the package."""
    folder = Path(__file__).resolve().parent / "pretrained"
    return tuple(sorted(p.name for p in folder.glob("*") if (p / "config.yaml").exists()))


def _locate(path: str | Path) -> Path:
    text = str(path)
    if text.startswith(PRETRAINED):
        name = text.removeprefix(PRETRAINED)
        if name not in pretrained_names():
            raise UserError(f"no pretrained policy {name!r}: {nearest(name, pretrained_names())}")
        return Path(__file__).resolve().parent / "pretrained" / name
    folder = Path(path)
    if not os.path.isfile(folder / "config.yaml"):
        what = "is not a run folder (it has no config.yaml)" if os.path.isdir(folder) else "does not exist"
        raise UserError(f"run {text} {what}: give the folder that `snowflake train` printed, or pretrained:NAME")
    return folder
