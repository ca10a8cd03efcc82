"""Finetuning: what is carried over, what moves when, what is refused, and exact resume."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from stable_baselines3.common.callbacks import BaseCallback

import agents
from agents.errors import UserError
from snowflake.config import TrainConfig, loader
from snowflake.ppo.finetune import base_settings, finetune, load_bodies
from snowflake.ppo.train import resume, train
from snowflake.run import Run
from tests.snowflake.ppo.helpers import tiny_config
from tests.snowflake.ppo.test_train import StopAt, assert_same, final_tensors

SMALL = {"hidden_size": 8, "propagation_steps": 1}
WARMUP = 2  # updates of 2 environments x 16 steps
SOURCE_STEPS = 96


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Run:
    """A run on centipede-3 under Snowflake's freezing."""
    config = tiny_config(
        policy=SMALL, agents=("centipede-3",), env={"n_envs": 2, "max_episode_steps": 10}, total_timesteps=SOURCE_STEPS
    )
    return train(config, tmp_path_factory.mktemp("source") / "run", progress=False)


def settings(source: Run, bodies: tuple[agents.Morphology, ...], total: int = 128, **ppo) -> TrainConfig:
    """The config of a short finetuned run with a checkpoint after every update."""
    changes = {
        "agents": tuple(body.name for body in bodies),
        "total_timesteps": total,
        "ppo": {"critic_warmup_updates": WARMUP, **ppo},
        "evaluation": {"checkpoint_freq": 32},
    }
    return loader.build([loader.Layer(base_settings(source, bodies)), loader.Layer(changes)])


def go_on(source: Run, path: Path, names: tuple[str, ...] = ("centipede-4",), **options) -> Run:
    bodies = load_bodies(source, names)
    config = options.pop("config", None) or settings(source, bodies)
    return finetune(source.path, config, path, bodies, progress=False, **options)


def tensors(run: Run, step: int, part: str = "actor") -> dict[str, torch.Tensor]:
    return load_file(run.checkpoint_path(step) / f"{part}.safetensors")


class Start(BaseCallback):
    """Keeps actor and critic as they are before the first step; with ``stop`` training ends there."""

    def __init__(self, stop: bool = False) -> None:
        super().__init__()
        self.stop = stop
        self.actor: dict[str, torch.Tensor] = {}
        self.critic: dict[str, torch.Tensor] = {}

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps == 0:
            policy = self.model.policy
            self.actor, self.critic = (
                {name: value.clone() for name, value in part.state_dict().items()}
                for part in (policy.actor, policy.critic)
            )
        if self.stop:
            raise KeyboardInterrupt


def start_of(source: Run, path: Path, names: tuple[str, ...] = ("centipede-4",), **options) -> dict[str, torch.Tensor]:
    """The actor before the first step of a finetuned run."""
    start = Start(stop=True)
    with pytest.raises(KeyboardInterrupt):
        go_on(source, path, names, callbacks=[start], **options)
    return start.actor


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.fixture(scope="module")
def finetuned(source, tmp_path_factory) -> tuple[Run, Start]:
    """Finetuned on centipede-4 with every component trainable."""
    start = Start()
    return go_on(source, tmp_path_factory.mktemp("finetuned") / "run", train=("all",), callbacks=[start]), start


@pytest.fixture(scope="module")
def run(finetuned) -> Run:
    return finetuned[0]


def test_the_actor_starts_as_it_was_and_rests_while_the_critic_warms_up(source: Run, finetuned) -> None:
    run, start = finetuned
    assert_same(start.actor, tensors(source, SOURCE_STEPS))
    counts = [value for name, value in start.actor.items() if name.endswith("count")]
    assert counts
    assert all(count.max() >= SOURCE_STEPS for count in counts)  # statistics of all that the source saw
    critics = [start.critic, *(tensors(run, step, "critic") for step in (32, 64))]
    for step, before, after in zip((32, 64), critics, critics[1:], strict=False):
        assert_same(tensors(run, step), start.actor)
        assert {name.split(".")[0] for name in moved(before, after)} >= {"hidden"}  # the critic learns meanwhile
        assert not any(name.startswith("actor/") for name in tensors(run, step, "optimizers"))
    changed = moved(start.actor, tensors(run, 96))
    for component in ("encoder", "message", "update", "decoder", "log_std"):
        assert any(name.startswith(component) for name in changed), component
    assert any("norm" in name for name in changed)  # statistics move again too


def test_the_critic_is_fresh_and_serves_the_new_body(source: Run, finetuned) -> None:
    run, start = finetuned
    assert not any(value.any() for name, value in start.critic.items() if name.endswith("count"))
    assert run.config.agents == ("centipede-4",)
    assert run.config.policy.freeze == ()
    shapes = [
        {k: tuple(v.shape) for k, v in c.items()} for c in (tensors(source, SOURCE_STEPS, "critic"), start.critic)
    ]
    assert shapes[0] != shapes[1]  # a flat critic is bound to its body
    assert run.load_policy("last").graphs[0].name == "centipede-4"


def test_the_source_is_recorded(source: Run, run: Run) -> None:
    note = json.loads((run.path / "finetune.json").read_text())
    actor = source.checkpoint_path(SOURCE_STEPS) / "actor.safetensors"
    assert note["source"] == {
        "run": str(source.path),
        "checkpoint": actor.parent.name,
        "step": SOURCE_STEPS,
        "actor_sha256": hashlib.sha256(actor.read_bytes()).hexdigest(),
        "agents": ["centipede-3"],
        "earlier_agents": [],
    }
    assert (note["from_scratch"], note["frozen"], note["critic_warmup_updates"]) == (False, [], WARMUP)
    assert not (source.path / "finetune.json").exists()


@pytest.mark.parametrize(
    ("choice", "trainable"), [(("same",), {"update", "log_std"}), (("decoder", "log_std"), {"decoder", "log_std"})]
)
def test_other_components_stay_as_they_were(source: Run, tmp_path, choice, trainable) -> None:
    run = go_on(source, tmp_path / "run", train=choice)
    changed = {n.split(".")[0] for n in moved(tensors(source, SOURCE_STEPS), tensors(run, 128)) if "norm" not in n}
    assert changed == trainable
    assert set(run.config.policy.freeze) == {"encoder", "message", "update", "decoder"} - trainable


def test_reset_log_std_changes_nothing_else(source: Run, tmp_path) -> None:
    start = start_of(source, tmp_path / "run", reset_log_std=-0.25)
    assert moved(tensors(source, SOURCE_STEPS), start) == {"log_std"}
    assert set(start["log_std"].tolist()) == {-0.25}


def test_from_scratch_carries_nothing_and_does_not_warm_up(source: Run, tmp_path) -> None:
    config = settings(source, load_bodies(source, ("centipede-4",)), total=64)
    start = Start()
    run = go_on(source, tmp_path / "run", config=config, from_scratch=True, callbacks=[start])
    assert "update" in {name.split(".")[0] for name in moved(tensors(source, SOURCE_STEPS), start.actor)}
    assert "update" in {name.split(".")[0] for name in moved(start.actor, tensors(run, 64))}
    assert json.loads((run.path / "finetune.json").read_text())["source"] is None
    plain = train(run.config, tmp_path / "plain", progress=False)  # the same as `snowflake train`
    assert_same(final_tensors(plain), final_tensors(run))


@pytest.mark.parametrize("stop", [32, 96])  # inside the warm-up, and after it
def test_resume_is_bit_equal(run: Run, source: Run, tmp_path, stop: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        go_on(source, tmp_path / "cut", train=("all",), callbacks=[StopAt(stop)])
    assert Run.open(tmp_path / "cut").index()["last"] == stop
    resumed = resume(tmp_path / "cut", progress=False)
    assert_same(final_tensors(run), final_tensors(resumed))


def test_several_bodies_take_a_graph_critic_and_a_multiple_of_environments(source: Run, tmp_path) -> None:
    flat = dataclasses.replace(source.config, policy=dataclasses.replace(source.config.policy, critic="flat"))
    bodies = load_bodies(source, ("centipede-3", "centipede-4", "centipede-6"))
    assert bodies[0] is source.morphologies[0]
    values = base_settings(dataclasses.replace(source, config=flat), bodies)
    assert (values["env"]["n_envs"], values["policy"]["critic"]) == (3, "auto")
    config = settings(source, bodies, total=144)
    assert_same(start_of(source, tmp_path / "run", config.agents, config=config), tensors(source, SOURCE_STEPS))


@pytest.mark.parametrize(
    ("names", "change", "options", "message"),
    [
        (("ant",), {}, {}, "body 'ant' has root, hinge_actuated"),
        (("centipede-4",), {"policy": {"hidden_size": 16}}, {}, "policy.hidden_size = 16: the actor of .* has 8"),
        (("centipede-4",), {"policy": {"aggregation": "sum"}}, {}, "policy.aggregation = 'sum'"),
        (("centipede-4",), {"env": {"features": "general"}}, {}, "reads 'paper' observations"),
        (("centipede-4",), {"method": "nervenet"}, {}, "was trained with snowflake"),
        (("centipede-4",), {"total_timesteps": 64}, {}, "warm-up alone takes 64 steps"),
        (("centipede-4",), {}, {"train": ("updat",)}, "did you mean 'update'"),
        (("centipede-4",), {"policy": {"freeze": ("decoder",)}}, {"train": ("all",)}, "--train and --freeze"),
        (("centipede-4",), {}, {"reset_log_std": 9.0}, "reset_log_std = 9.0 is out of range"),
        (("centipede-4",), {}, {"checkpoint": "77"}, "has no checkpoint '77'"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    source: Run, tmp_path, names, change, options, message
) -> None:
    bodies = load_bodies(source, names)
    base = loader.Layer(dataclasses.asdict(settings(source, bodies)))
    config = loader.build([base, loader.Layer(change)])
    with pytest.raises(UserError, match=message):
        go_on(source, tmp_path / "run", names, config=config, **options)
    assert not list(tmp_path.iterdir())


def test_an_mlp_goes_on_on_its_own_body_only(tmp_path) -> None:
    config = tiny_config("mlp", ("centipede-3",), policy={"hidden_size": 8}, env={"n_envs": 2}, total_timesteps=96)
    source = train(config, tmp_path / "source", progress=False)
    with pytest.raises(UserError, match="bound to its body centipede-3"):
        go_on(source, tmp_path / "other")
    config = settings(source, source.morphologies, total=96)
    assert_same(start_of(source, tmp_path / "own", ("centipede-3",), config=config), tensors(source, SOURCE_STEPS))
