"""Numbers that are not finite: named with step, body and component; skipped and counted if that is wished."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from snowflake.cli import main
from snowflake.ppo import update
from snowflake.ppo.bad_numbers import BadNumbers, Snapshot, fault_of_networks, fault_of_statistics
from snowflake.ppo.train import build, resume, train
from snowflake.ppo.vec_env import LocomotionVecEnv
from snowflake.run import Run
from tests.snowflake.ppo.helpers import tiny_config

BODIES = ("centipede-4", "centipede-6")
SMALL = {"hidden_size": 4}


class Poison:
    """Spoils one number of one step of the environments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, what: str, at: int, env: int, value: float) -> None:
        self.what, self.at, self.env, self.value, self.count = what, at, env, value, 0
        original = LocomotionVecEnv.step_batch

        def spoil(vec_env: LocomotionVecEnv, actions: np.ndarray) -> Any:
            self.count += 1
            step = original(vec_env, actions)
            if self.count == self.at:
                array = getattr(step, self.what)
                array[(self.env,) if array.ndim == 1 else (self.env, 5)] = self.value
            return step

        monkeypatch.setattr(LocomotionVecEnv, "step_batch", spoil)


@pytest.mark.parametrize(
    ("what", "value", "words"),
    [
        ("obs", math.nan, r"observation \S+ of body centipede-6 in environment 2, step 4 of the rollout"),
        ("rewards", math.inf, r"reward of body centipede-6 in environment 2, step 3 of the rollout"),
        ("rewards", math.nan, r"reward of body centipede-6 in environment 2, step 3 of the rollout"),
    ],
)
def test_a_bad_number_of_an_environment_is_named_and_nothing_is_lost(tmp_path, monkeypatch, what, value, words) -> None:
    settings: dict[str, Any] = {"policy": SMALL, "ppo": {"n_epochs": 1, "batch_size": 64}}
    config = tiny_config("nervenet", BODIES, total_timesteps=128, evaluation={"checkpoint_freq": 64}, **settings)
    with monkeypatch.context() as patched:
        Poison(patched, what, at=16 + 4, env=2, value=value)
        with pytest.raises(BadNumbers) as caught:
            train(config, tmp_path / "run", progress=False)
    told = str(caught.value)
    assert caught.match(f"training diverged at step 128: {words} is not finite; the checkpoint at step 64 is good")
    assert told.endswith(f"then: snowflake resume {tmp_path / 'run'}")
    assert Run.open(tmp_path / "run").last_intact()[0].name == "step_000000000064"
    if what == "obs":  # with the cause gone, the end is the one without it
        whole, again = train(config, tmp_path / "whole", progress=False), resume(tmp_path / "run", progress=False)
        actors = [load_file(run.find_checkpoint("last") / "actor.safetensors") for run in (whole, again)]
        assert all(torch.equal(actors[0][k], actors[1][k]) for k in actors[0])


def test_the_first_bad_statistic_is_named_with_its_component() -> None:
    names = ("policy_gradient_loss", "grad_norm", "grad_norm/update", "grad_norm/decoder", "value_loss")
    rows = torch.ones(4, 5)
    good = dict.fromkeys(names, 1.0)
    assert fault_of_statistics(good | {"explained_variance": math.nan}, names, rows) is None
    rows[2, 1] = rows[2, 3] = rows[3] = math.nan  # everything is lost after the first
    bad = dict(zip(names, rows.mean(0).tolist(), strict=True))
    assert fault_of_statistics(bad, names, rows) == (
        "gradient of the actor's component decoder in minibatch 3 of the update"
    )
    assert fault_of_statistics({"value_loss": math.inf}) == "loss of the critic (value_loss)"
    assert fault_of_statistics({"kl_batch": math.nan}) == "loss of the actor (kl_batch)"


def test_a_bad_gradient_is_told_before_it_reaches_a_checkpoint(tmp_path, monkeypatch) -> None:
    add_up, count = update.add_up, 0

    def spoilt(parts: Any) -> Any:
        nonlocal count
        count += 1
        grads = add_up(parts)
        if count == 7:  # actor and critic in turn, 4 minibatches an epoch
            next(g for g in grads if g is not None).flatten()[0] = math.inf
        return grads

    monkeypatch.setattr(update, "add_up", spoilt)
    config = tiny_config("mlp", policy=SMALL, ppo={"batch_size": 16})
    with pytest.raises(
        BadNumbers, match=r"gradient of the actor's component .* in minibatch 4 of .*the checkpoint at step 0"
    ):
        train(config, tmp_path / "run", progress=False)
    actor = load_file(Run.open(tmp_path / "run").find_checkpoint("last") / "actor.safetensors")
    assert all(value.isfinite().all() for value in actor.values())


def test_bad_parameters_and_statistics_of_observations_are_found() -> None:
    policy = build(tiny_config(policy=SMALL)).policy
    assert fault_of_networks(policy) is None
    name, tensor = next((n, t) for n, t in policy.critic.state_dict().items() if t.is_floating_point() and t.numel())
    tensor.flatten()[-1] = math.nan
    assert fault_of_networks(policy) == f"parameter critic {name}"
    tensor.flatten()[-1] = 3e38  # large, and finite: its square is not
    assert fault_of_networks(policy) is None


def test_skipping_leaves_every_byte_and_counts(tmp_path, monkeypatch) -> None:
    ppo = {"on_non_finite": "skip", "n_epochs": 1, "scale_returns": True}
    config = tiny_config("mlp", total_timesteps=256, evaluation={"checkpoint_freq": 64}, policy=SMALL, ppo=ppo)
    with monkeypatch.context() as patched:
        Poison(patched, "rewards", at=16 + 4, env=1, value=math.nan)
        run = train(config, tmp_path / "run", progress=False)
    for file in ("actor", "critic", "optimizers"):
        before, after, later = (load_file(run.checkpoint_path(step) / f"{file}.safetensors") for step in (64, 128, 192))
        assert all(torch.equal(before[k], after[k]) for k in before), file
        assert any(not torch.equal(after[k], later[k]) for k in after), file
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    assert [e.value for e in events.Scalars("snowflake/skipped_updates")] == [0, 1, 1, 1]
    algorithm = build(config)
    from snowflake.ppo.checkpoint import restore

    restore(algorithm, run.checkpoint_path(256))
    assert algorithm.skipped_updates == 1


def test_an_update_that_is_undone_leaves_no_trace() -> None:
    """After restoring, the next update is the same to the bit as without the one between."""
    results = []
    for disturbed in (False, True):
        algorithm = build(tiny_config(policy=SMALL, ppo={"n_epochs": 1}))
        algorithm.learn(64)
        if disturbed:
            before = Snapshot(algorithm.policy)
            state = algorithm.minibatch_generator.get_state()
            algorithm._train_both()
            before.restore()
            algorithm.minibatch_generator.set_state(state)
        algorithm._train_both()
        results.append({**algorithm.policy.actor.state_dict(), "critic": next(algorithm.policy.critic.parameters())})
    assert all(torch.equal(results[0][k], results[1][k]) for k in results[0] if "normalizer" not in k)


def test_divergence_has_an_exit_code_of_its_own(tmp_path, capsys) -> None:
    settings = "--agents centipede-4 --method nervenet --hidden-size 4 --total-timesteps 6400 --learning-rate 1000"
    settings += " --max-grad-norm 1e9 --n-envs 4 --n-steps 16 --batch-size 32 --eval-freq 0 --num-threads 1"
    assert main(["train", *settings.split(), "--torch-threads", "1", "--run", str(tmp_path / "run")]) == 4
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "training diverged at step" in line
    assert "centipede-4" in line
    assert "of the actor" in line or "parameter actor" in line
