"""What makes an update fast changes none of its numbers: threads, parts, prepared batches."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import Tensor

from snowflake.networks.base import Network, block_rows
from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.buffer import Minibatch
from snowflake.ppo.critic_warmup import update_critic
from snowflake.ppo.train import build, resume, train
from snowflake.ppo.update import PPOUpdate, UpdateSettings, actor_loss, critic_loss
from snowflake.ppo.workers import Workers
from tests.snowflake.ppo.helpers import METHODS, tiny_config
from tests.snowflake.ppo.test_update import filled_buffer

SETTINGS = UpdateSettings(
    batch_size=24, n_epochs=2, clip_range=0.2, ent_coef=0.01, max_grad_norm=0.5, target_kl=None, weight_decay=1e-3
)
SMALL = {"hidden_size": 8, "propagation_steps": 2}


def parameters_after(algorithm, workers: Workers, settings: UpdateSettings = SETTINGS) -> tuple[list[Tensor], dict]:
    buffer = filled_buffer(algorithm)
    statistics = PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(3), workers).run(buffer)
    return [p.detach().clone() for p in algorithm.policy.parameters()], statistics


@pytest.mark.parametrize(
    ("method", "agents"),
    [(method, ("centipede-4",)) for method in METHODS] + [("nervenet", ("centipede-4", "centipede-6"))],
)
def test_the_number_of_threads_changes_no_bit(method: str, agents: tuple[str, ...], monkeypatch) -> None:
    monkeypatch.setattr(Network, "rows_at_once", lambda self: 5)
    monkeypatch.setattr("snowflake.networks.nervenet.block_rows", lambda width: 5)
    results = []
    for threads in (1, 2, 3):
        names = set()
        original = GraphActorCriticPolicy.action_log_prob_of

        def spy(self, *args, original=original, names=names):
            names.add(threading.current_thread().name)
            return original(self, *args)

        monkeypatch.setattr(GraphActorCriticPolicy, "action_log_prob_of", spy)
        results.append(parameters_after(build(tiny_config(method, agents, policy=SMALL)), Workers(threads)))
        assert len(names) == 1 if threads == 1 else len(names) > 1, "the threads shared the work"
        monkeypatch.setattr(GraphActorCriticPolicy, "action_log_prob_of", original)
    (first, statistics), *others = results
    for parameters, again in others:
        assert again == statistics
        assert all(torch.equal(a, b) for a, b in zip(first, parameters, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_parts_add_up_to_the_minibatch(method: str, monkeypatch) -> None:
    whole, statistics = parameters_after(build(tiny_config(method, policy=SMALL)), Workers(1))
    monkeypatch.setattr(Network, "rows_at_once", lambda self: 5)
    monkeypatch.setattr("snowflake.networks.nervenet.block_rows", lambda width: 5)
    parts, same = parameters_after(build(tiny_config(method, policy=SMALL)), Workers(1))
    for name, value in statistics.items():
        assert same[name] == pytest.approx(value, rel=2e-3, abs=2e-5), name
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("agents", [("centipede-4",), ("centipede-4", "centipede-6")])
@pytest.mark.parametrize("method", ["snowflake", "nervenet"])
def test_a_prepared_batch_gives_the_loss_and_gradients_of_the_plain_one(method: str, agents: tuple[str, ...]) -> None:
    policy = build(tiny_config(method, agents, policy=SMALL | {"critic": "graph"})).policy.double()
    generator = torch.Generator().manual_seed(0)
    obs = torch.randn(20, policy.observation_space.shape[0], generator=generator, dtype=torch.float64)
    if len(agents) > 1:
        obs[:, -1] = torch.arange(20) % 2
    policy.update_normalizers(obs)
    rest = [torch.randn(20, generator=generator, dtype=torch.float64) for _ in range(3)]
    actions = torch.randn(20, policy.action_space.shape[0], generator=generator, dtype=torch.float64)
    rest[0] = policy.action_log_prob(obs, actions)[0].detach() + 0.1 * rest[0]
    flat = Minibatch(obs, actions, *rest)
    index = torch.randperm(20, generator=generator)[:13]
    for loss, network in ((_actor, policy.actor), (critic_loss, policy.critic)):
        parameters = [p for p in network.parameters() if p.requires_grad]
        wanted = loss(policy, flat.select(index))
        given = loss(policy, flat.select(index), policy.prepare(obs, network, Workers(2)).select(index))
        torch.testing.assert_close(given, wanted, rtol=1e-10, atol=0)
        pairs = zip(torch.autograd.grad(given, parameters), torch.autograd.grad(wanted, parameters), strict=True)
        for a, b in pairs:
            assert float((a - b).norm()) <= 1e-10 * float(b.norm())


def _actor(policy, batch, prepared=None) -> Tensor:
    return actor_loss(policy, batch, 0.2, 0.01, prepared=prepared)[0]


def test_critic_warm_up_does_not_depend_on_threads(monkeypatch) -> None:
    monkeypatch.setattr(Network, "rows_at_once", lambda self: 5)
    results = []
    for threads in (1, 2):
        algorithm = build(tiny_config("snowflake", policy=SMALL))
        buffer = filled_buffer(algorithm)
        before = copy.deepcopy(algorithm.policy.actor.state_dict())
        generator = torch.Generator().manual_seed(0)
        statistics = update_critic(algorithm.policy, buffer, 32, 2, generator, Workers(threads))
        assert all(torch.equal(v, before[k]) for k, v in algorithm.policy.actor.state_dict().items())
        results.append((statistics, [p.detach().clone() for p in algorithm.policy.critic.parameters()]))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


def test_a_run_resumed_with_other_threads_is_the_same(tmp_path) -> None:
    ppo = {"n_steps": 16, "batch_size": 32, "n_epochs": 2, "learning_rate_schedule": "constant"}
    changes = {"policy": SMALL, "ppo": ppo, "evaluation": {"checkpoint_freq": 64}}
    whole = train(tiny_config("snowflake", **changes), tmp_path / "whole", progress=False)
    train(tiny_config("snowflake", total_timesteps=64, **changes), tmp_path / "half", progress=False)
    half = resume(tmp_path / "half", 128, torch_threads=2, progress=False)
    weights = [(run.find_checkpoint("last") / "actor.safetensors").read_bytes() for run in (whole, half)]
    assert weights[0] == weights[1]


def test_workers_return_in_order_and_raise() -> None:
    workers = Workers(3)
    assert workers.run([lambda i=i: i * i for i in range(20)]) == [i * i for i in range(20)]
    with torch.no_grad():
        assert workers.run([torch.is_grad_enabled] * 9) == [False] * 9
    assert workers.run([torch.is_grad_enabled] * 9) == [True] * 9
    done = []

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        workers.run([fail] + [lambda: done.append(1)] * 500)
    assert len(done) < 500
    assert workers.run([lambda: 1] * 4) == [1] * 4, "they go on after an error"
    before = torch.get_num_threads()
    with workers.alone():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("width", "rows"), [(17 * 64, 128), (59 * 64, 32), (64, 2048), (299 * 64, 8), (10**7, 8)])
def test_rows_fit_a_cache(width: int, rows: int) -> None:
    assert block_rows(width) == rows
