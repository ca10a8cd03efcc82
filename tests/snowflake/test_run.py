"""Run folders: made once, opened exactly, refused when broken."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import snowflake
from agents.errors import UserError
from envs import LocomotionVectorEnv
from snowflake.freezing import trainable_parameters
from snowflake.manifest import write_manifest
from snowflake.ppo.train import train
from snowflake.run import Run, graph_of, pretrained_names
from tests.snowflake.ppo.helpers import tiny_config


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A trained run of 128 steps with two kept checkpoints."""
    config = tiny_config(evaluation={"checkpoint_freq": 64})
    return train(config, tmp_path_factory.mktemp("runs") / "run", progress=False)


def test_folder_explains_itself(run) -> None:
    names = {p.name for p in run.path.iterdir()}
    assert {"config.yaml", "command.txt", "versions.json", "bodies", "checkpoints", "tensorboard"} <= names
    assert {"torch", "mujoco", "snowflake-rl", "git_commit"} <= json.loads(
        (run.path / "versions.json").read_text()
    ).keys()
    assert Run.open(run.path).config == run.config
    assert run.checkpoints() == (0, 64, 128)
    assert not list(run.path.rglob(".tmp-*"))


def test_an_existing_folder_is_never_touched(run, tmp_path) -> None:
    before = sorted((p, p.stat().st_mtime_ns) for p in run.path.rglob("*"))
    with pytest.raises(UserError, match="exists"):
        train(run.config, run.path, progress=False)
    assert sorted((p, p.stat().st_mtime_ns) for p in run.path.rglob("*")) == before
    (tmp_path / "empty").mkdir()
    Run.create(tmp_path / "empty", run.config, [run.make_env(run.morphologies[0])])


def test_policy_predicts_the_same_in_a_fresh_interpreter(run, tmp_path) -> None:
    policy = snowflake.load(run.path, checkpoint=64)
    obs = np.random.default_rng(0).normal(size=(3, policy.observation_space.shape[0])).astype(np.float32)
    np.save(tmp_path / "obs.npy", obs)
    script = (
        "import sys, numpy as np, snowflake, torch; torch.set_num_threads(int(sys.argv[3]));"
        "p = snowflake.load(sys.argv[1], checkpoint=64);"
        "np.save(sys.argv[2] + '/out.npy', p.predict(np.load(sys.argv[2] + '/obs.npy'), deterministic=True)[0])"
    )
    arguments = [str(run.path), str(tmp_path), str(torch.get_num_threads())]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, timeout=120)
    here, state = policy.predict(obs, deterministic=True)
    assert np.array_equal(np.load(tmp_path / "out.npy"), here)
    assert here.shape == (3, 10)
    assert state is None
    # One observation at a time gives the same as the batch, to rounding.
    np.testing.assert_allclose(policy.predict(obs[0], deterministic=True)[0], here[0], atol=1e-5)
    # Negative control: another checkpoint acts differently.
    assert not np.allclose(snowflake.load(run.path, checkpoint=128).predict(obs, deterministic=True)[0], here)


def test_missing_checkpoints_and_runs_are_named(run, tmp_path) -> None:
    with pytest.raises(UserError, match=r"no checkpoint '99'; it has: last, 0, 64, 128"):
        run.find_checkpoint("99")
    with pytest.raises(UserError, match="does not exist"):
        Run.open(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"has no config\.yaml"):
        Run.open(tmp_path)
    with pytest.raises(UserError, match="no pretrained policy 'nope'"):
        Run.open("pretrained:nope")


def copy_of(run: Run, folder) -> Run:
    import shutil

    shutil.copytree(run.path, folder)
    return Run.open(folder)


def test_damaged_checkpoint_and_changed_body_are_refused(run, tmp_path) -> None:
    damaged = copy_of(run, tmp_path / "damaged")
    file = damaged.find_checkpoint("last") / "actor.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UserError, match=r"is damaged: actor.safetensors has 100 bytes .*; whole ones: 0, 64"):
        damaged.load_policy("last")
    (file.parent / "manifest.json").unlink()  # as a checkpoint of the first format
    with pytest.raises(UserError, match="missing or damaged"):
        damaged.load_policy("last")
    copy_of(run, tmp_path / "changed")
    body = tmp_path / "changed" / "bodies" / "centipede-4.json"
    stored = json.loads(body.read_text())
    stored["source"]["arguments"]["crippled_legs"] = [0]
    body.write_text(json.dumps(stored))
    with pytest.raises(UserError, match="no longer compiles to the model"):
        Run.open(tmp_path / "changed")


def test_actor_of_another_kind_is_refused(run, tmp_path) -> None:
    """A checkpoint of another node type or network does not load; the message names the body."""
    other = train(tiny_config("mlp"), tmp_path / "mlp", progress=False)
    mixed = copy_of(run, tmp_path / "mixed")
    source, target = (r.find_checkpoint("last") / "actor.safetensors" for r in (other, mixed))
    target.write_bytes(source.read_bytes())
    write_manifest(target.parent)
    with pytest.raises(UserError, match=r"does not fit body 'centipede-4'"):
        mixed.load_policy("last")

    centipede, ant = (graph_of(LocomotionVectorEnv(name)) for name in ("centipede-4", "ant"))
    with pytest.raises(UserError, match="node types"):
        centipede.check_compatible(ant)
    with pytest.raises(UserError, match="bound to its body"):
        other.load_policy("last").for_bodies([centipede])


def test_actor_acts_on_larger_and_crippled_bodies_with_the_same_bytes(run) -> None:
    import agents

    policy = run.load_policy("last")
    weights = policy.actor.state_dict()
    for name in ("centipede-20", "centipede-6-crippled"):
        target = policy.for_bodies([run.graph_of(agents.load(name))])
        moved = target.actor.state_dict()
        assert weights.keys() == moved.keys()
        assert all(torch.equal(weights[k], moved[k]) for k in weights)
        obs = np.zeros((2, *target.observation_space.shape), np.float32)
        assert target.predict(obs, deterministic=True)[0].shape == (2, *target.action_space.shape)


def test_export_opens_like_a_run(run, tmp_path) -> None:
    small = run.export(tmp_path / "small", "last")
    obs = np.zeros((1, 97), np.float32)
    expected = run.load_policy("last").predict(obs, deterministic=True)[0]
    assert np.array_equal(small.load_policy().predict(obs, deterministic=True)[0], expected)
    assert sum(p.stat().st_size for p in small.path.rglob("*") if p.is_file()) < 1_000_000
    with pytest.raises(UserError, match="exists"):
        run.export(tmp_path / "small", "last")


def test_shipped_policies_load_and_act() -> None:
    assert pretrained_names()
    for name in pretrained_names():
        policy = snowflake.load(f"pretrained:{name}")
        action, _ = policy.predict(np.zeros(policy.observation_space.shape, np.float32), deterministic=True)
        assert np.isfinite(action).all()


def test_optimisers_hold_trainable_parameters_only(run) -> None:
    policy = run.load_policy("last")
    held = [p for group in policy.optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in held} == {id(p) for p in trainable_parameters(policy.actor)}
    assert sum(p.numel() for p in held) == 49_536 + 6


def test_a_folder_that_cannot_be_made_is_told_beforehand(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    Run.check_free(tmp_path / "a" / "b" / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    for path in (tmp_path / "file" / "run", tmp_path / "file" / "a" / "run"):
        with pytest.raises(UserError, match=r"cannot make run folder .*/run: .*; choose another --run"):
            Run.check_free(path)
