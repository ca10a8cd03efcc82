"""Policies with memory in training: the update recomputes the rollout, checkpoints go on exactly, bodies keep apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger

import agents
import snowflake
from agents.errors import UserError
from snowflake.config import TrainConfig
from snowflake.evaluation.controllers import policy_controller
from snowflake.manifest import write_manifest
from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.algorithm import SnowflakePPO
from snowflake.ppo.sequences import Sequences
from snowflake.ppo.train import build, resume, train
from snowflake.ppo.update import PPOUpdate, UpdateSettings
from snowflake.ppo.workers import Workers
from snowflake.run import Run
from tests.snowflake.ppo.helpers import tiny_config
from tests.snowflake.ppo.test_train import StopAt, assert_same, final_tensors

WINDOW = {"memory": "window", "memory_window": 8, "memory_width": 8}
GRU = {"memory": "gru", "memory_width": 8}
SPARSE = WINDOW | {"sparq": "rollout", "sparq_min_bytes": 0, "sparq_r": 2, "sparq_k": 4}
SMALL = {"hidden_size": 8, "propagation_steps": 2}


def config(memory: dict[str, Any], agents: tuple[str, ...] = ("centipede-4",), **changes: Any) -> TrainConfig:
    """Episodes of 11 steps in rollouts of 16, so that the window wraps and rollouts cut episodes."""
    method = changes.pop("method", "snowflake")
    env = {"max_episode_steps": 11} | changes.pop("env", {})
    return tiny_config(method, agents, policy=SMALL | memory | changes.pop("policy", {}), env=env, **changes)


def rolled_out(settings: TrainConfig, rollouts: int = 2) -> SnowflakePPO:
    """An algorithm whose memory matters, after some rollouts without an update."""
    algorithm = build(settings)
    with torch.no_grad():
        algorithm.policy.actor.memory.output.weight.normal_(generator=torch.Generator().manual_seed(1))
    algorithm.set_logger(Logger(None, []))
    _, callback = algorithm._setup_learn(1000)
    for _ in range(rollouts):
        assert algorithm.collect_rollouts(algorithm.env, callback, algorithm.rollout_buffer, algorithm.n_steps)
    return algorithm


def recomputed(algorithm: SnowflakePPO, sequences: Sequences) -> torch.Tensor:
    """Log-probabilities (T, N) of the rollout, as an update computes them."""
    policy, flat = algorithm.policy, algorithm.rollout_buffer.flat()
    rows = sequences.rows(torch.arange(algorithm.n_envs))
    order = rows.t().flatten()
    with torch.no_grad():
        prepared = policy.recall(policy.prepare(flat.obs, policy.actor).select(order), sequences.past(rows))
        log_prob, _ = policy.action_log_prob_of(prepared, flat.actions[order])
    return log_prob.view(algorithm.n_steps, algorithm.n_envs)


@pytest.mark.parametrize("agents", [("centipede-4",), ("centipede-6", "ant")], ids="+".join)
@pytest.mark.parametrize("method", ["snowflake", "nervenet"])
@pytest.mark.parametrize(
    "memory", [WINDOW, GRU, WINDOW | {"memory_scope": "body", "memory_layers": 2}, SPARSE], ids=str
)
def test_an_update_recomputes_the_rollout(memory: dict[str, Any], method: str, agents: tuple[str, ...]) -> None:
    algorithm = rolled_out(config(memory, agents, method=method))
    buffer = algorithm.rollout_buffer
    starts = buffer.episode_starts.bool()
    assert starts[1:].any()
    assert not starts[0].any()
    assert buffer.memory["clock"].min() > 0
    sequences = Sequences(buffer)
    torch.testing.assert_close(recomputed(algorithm, sequences), buffer.log_probs, rtol=0, atol=1e-5)
    # Negative controls: episodes that run into each other, and a rollout without what was before it.
    leaking = Sequences(buffer)
    past = sequences._past
    leaking._past = type(past)(past.state, torch.zeros_like(past.starts), past.actions)
    after = starts.cumsum(0).bool()
    assert (recomputed(algorithm, leaking) - buffer.log_probs)[after].abs().max() > 1e-3
    empty = Sequences(buffer)
    empty._past = type(past)(algorithm.policy.initial_state(algorithm.n_envs), past.starts, past.actions)
    difference = (recomputed(algorithm, empty) - buffer.log_probs).abs()
    assert difference[~after].max() > 1e-3
    assert difference[after].max() < 1e-5


@pytest.mark.parametrize("memory", [WINDOW, GRU], ids=str)
def test_the_first_ratio_is_one_and_threads_change_nothing(memory: dict[str, Any]) -> None:
    results = []
    for threads in (1, 2):
        algorithm = rolled_out(config(memory, ("centipede-4", "ant")))
        settings = UpdateSettings(32, 2, 0.2, 0.0, 5.0, None)
        update = PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(0), Workers(threads))
        statistics = update.run(algorithm.rollout_buffer)
        assert statistics["first_ratio_error"] < 1e-5
        assert statistics["grad_norm/memory"] > 0
        results.append(algorithm.policy.actor.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(results[0].values(), results[1].values(), strict=True))


def test_an_update_that_moves_nothing_keeps_every_ratio_at_one() -> None:
    algorithm = rolled_out(config(WINDOW, ppo={"learning_rate": 1e-30}))
    settings = UpdateSettings(32, 2, 0.2, 0.0, 5.0, None)
    statistics = PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(0)).run(algorithm.rollout_buffer)
    assert statistics["kl_batch"] < 1e-8
    assert statistics["clip_fraction"] == 0.0


def test_minibatches_hold_whole_environments() -> None:
    algorithm = rolled_out(config(GRU), rollouts=1)
    sequences = Sequences(algorithm.rollout_buffer)
    parts = sequences.minibatches(40, torch.Generator().manual_seed(0))
    assert [part.shape for part in parts] == [(2, 16), (2, 16)]
    assert sorted(torch.cat(parts).flatten().tolist()) == list(range(64))
    assert all((row % 4 == row[0] % 4).all() and (row.diff() == 4).all() for part in parts for row in part)
    assert [len(part) for part in sequences.minibatches(3, torch.Generator())] == [1] * 4


@pytest.mark.parametrize(("memory", "agents"), [(WINDOW, ("centipede-4", "ant")), (GRU, ("centipede-4",)),
                                                (SPARSE, ("centipede-4",))], ids=str)  # fmt: skip
def test_resume_is_bit_equal(tmp_path: Path, memory: dict[str, Any], agents: tuple[str, ...]) -> None:
    settings = config(memory, agents, env={"max_episode_steps": 23}, total_timesteps=192,
                      evaluation={"checkpoint_freq": 64})  # fmt: skip
    whole = train(settings, tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "cut", callbacks=[StopAt(128)], progress=False)
    resumed = resume(tmp_path / "cut", progress=False)
    assert_same(final_tensors(whole), final_tensors(resumed))
    last = [run.find_checkpoint("last") / "memory.safetensors" for run in (whole, resumed)]
    assert last[0].read_bytes() == last[1].read_bytes()
    (resumed.find_checkpoint("last") / "memory.safetensors").write_bytes(
        (tmp_path / "cut" / "checkpoints" / "step_000000000064" / "actor.safetensors").read_bytes()
    )
    write_manifest(resumed.find_checkpoint("last"))  # else it is set aside as damaged
    with pytest.raises(UserError, match="its memory has another form"):
        resume(resumed.path, total_timesteps=512, progress=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A short run with memory, which by its end matters."""
    settings = config(WINDOW, ppo={"learning_rate": 0.05}, total_timesteps=192)
    return train(settings, tmp_path_factory.mktemp("runs") / "memory", progress=False)


def test_a_loaded_policy_returns_its_state_and_clears_it_where_an_episode_starts(run: Run) -> None:
    policy = snowflake.load(run.path)
    obs = np.random.default_rng(0).normal(size=(6, 3, policy.observation_space.shape[0])).astype(np.float32)
    state, actions = None, []
    for t in range(6):
        before = {k: v.copy() for k, v in state.items()} if state else None
        given = state
        action, state = policy.predict(obs[t], state, np.array([t == 0, t == 4, False]), deterministic=True)
        actions.append(action)
        if before:  # what was given stays as it was
            assert all(np.array_equal(given[name], before[name]) for name in before)
    assert state["clock"].tolist() == [6, 2, 6]
    fresh, _ = policy.predict(obs[4], deterministic=True)
    np.testing.assert_allclose(actions[4][1], fresh[1], atol=1e-6)
    assert np.abs(actions[4] - fresh)[[0, 2]].max() > 1e-3
    single, state = policy.predict(obs[0, 0], deterministic=True)
    assert single.shape == policy.action_space.shape
    np.testing.assert_allclose(single, actions[0][0], atol=1e-6)
    assert state["clock"].tolist() == [1]


def test_controllers_carry_the_memory_and_begin_anew(run: Run) -> None:
    policy = snowflake.load(run.path)
    controller = policy_controller(policy)
    obs = np.random.default_rng(0).normal(size=(2, 3, policy.observation_space.shape[0])).astype(np.float32)
    first, second = controller(obs[0]), controller(obs[1])
    controller.begin()
    assert np.array_equal(controller(obs[0]), first)
    controller.begin()
    assert np.abs(controller(obs[1]) - second).max() > 1e-3


def test_the_actor_moves_to_another_body(run: Run) -> None:
    target = run.load_policy().for_bodies([run.graph_of(agents.load("centipede-6"))])
    obs = np.zeros((2, target.observation_space.shape[0]), np.float32)
    _, state = target.predict(obs)
    assert target.predict(obs, state, np.zeros(2, bool))[0].shape == (2, *target.action_space.shape)


def test_evaluation_does_not_disturb_training(tmp_path: Path) -> None:
    finals = []
    for every in (0, 64):
        settings = config(WINDOW, total_timesteps=128, evaluation={"eval_freq": every})
        finals.append(final_tensors(train(settings, tmp_path / str(every), progress=False)))
    assert_same(*finals)


def test_with_memory_a_policy_starts_as_the_one_without() -> None:
    plain, remembering = (build(config(memory)).policy for memory in ({}, WINDOW))
    obs = torch.randn(5, plain.observation_space.shape[0], generator=torch.Generator().manual_seed(0))
    assert isinstance(remembering, GraphActorCriticPolicy)
    torch.testing.assert_close(remembering.distribution(obs)[0], plain.distribution(obs)[0], rtol=0, atol=1e-6)


def test_sparq_of_evaluation_leaves_training_dense_and_says_when_it_falls_back(capsys) -> None:
    options = WINDOW | {"sparq": "eval", "sparq_r": 2, "sparq_k": 4}
    policy = build(config(options | {"sparq_min_bytes": 0})).policy
    assert "sum0" not in policy.initial_state(2)
    assert {"sum0", "columns0"} <= set(policy.initial_state(2, deployed=True))
    assert "SparQ" not in capsys.readouterr().err
    small = build(config(options)).policy
    for _ in range(2):
        assert "sum0" not in small.initial_state(2, deployed=True)
    err = capsys.readouterr().err
    assert err.count("SparQ is not used: a dense call reads") == 1


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"policy": {"memory": "lstm"}}, "policy.memory = 'lstm'"),
        ({"policy": {"memory": "window", "memory_width": 10, "memory_heads": 4}}, "use a multiple of 8"),
        ({"policy": {"memory": "window", "memory_width": 8, "sparq": "eval", "sparq_r": 9}}, "policy.sparq_r = 9"),
        ({"policy": {"memory": "gru", "sparq": "eval"}}, "is for the cache of policy.memory window"),
        ({"policy": {"freeze": ("memory",)}}, "leave it out"),
        ({"policy": {"memory": "gru"}, "ppo": {"diagnostics_every": 1}}, "measures policies without memory"),
        ({"policy": {"memory": "gru"}, "ppo": {"collection": "whole_episodes"}}, "needs rollouts of one length"),
        ({"policy": {"memory": "gru"}, "method": "mlp"}, "is for networks over nodes"),
        ({"policy": {"memory": "gru"}, "precision": "bf16"}, "is computed in fp32"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        tiny_config(section.pop("method", "nervenet"), **section)


def test_a_frozen_memory_stays_as_it_is() -> None:
    algorithm = rolled_out(config(WINDOW, method="nervenet", policy={"freeze": ("memory",)}))
    before = {k: v.clone() for k, v in algorithm.policy.actor.memory.state_dict().items()}
    settings = UpdateSettings(32, 1, 0.2, 0.0, 5.0, None)
    PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(0)).run(algorithm.rollout_buffer)
    assert all(torch.equal(v, before[k]) for k, v in algorithm.policy.actor.memory.state_dict().items())


def test_hand_written_rounds_serve_memory_and_agree_with_autograd() -> None:
    gradients = []
    for kernels in ("fused", "reference"):
        algorithm = rolled_out(config(WINDOW, method="nervenet", policy={"kernels": kernels}))
        policy, flat = algorithm.policy, algorithm.rollout_buffer.flat()
        sequences = Sequences(algorithm.rollout_buffer)
        rows = sequences.rows(torch.arange(algorithm.n_envs))
        prepared = policy.prepare(flat.obs, policy.actor).select(rows.t().flatten())
        recalled = policy.recall(prepared, sequences.past(rows))
        assert policy.actor.fused(recalled.parts[0].tensors[0]) == (kernels == "fused")
        policy.distribution_of(recalled)[0].square().sum().backward()
        gradients.append({name: p.grad for name, p in policy.actor.named_parameters() if p.grad is not None})
    assert any(name.startswith("memory.core") for name in gradients[0])
    for name, grad in gradients[0].items():
        assert (grad - gradients[1][name]).norm() < 1e-4 * grad.norm(), name
