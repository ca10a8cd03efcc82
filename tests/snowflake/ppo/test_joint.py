"""Several bodies under one policy: a mixed, padded batch is worth exactly what its bodies are worth alone."""

from __future__ import annotations

import math

import pytest
import torch

from snowflake.policy import GraphActorCriticPolicy
from snowflake.ppo.buffer import Minibatch
from snowflake.ppo.train import build
from snowflake.ppo.update import actor_loss, critic_loss
from tests.snowflake.ppo.helpers import tiny_config

BODIES = ("centipede-3", "centipede-4", "centipede-6")
SMALL = {"hidden_size": 8, "propagation_steps": 2, "critic": "graph"}


@pytest.fixture(scope="module")
def mixed() -> tuple[GraphActorCriticPolicy, Minibatch]:
    """A policy of three bodies with statistics of its own, and 6 steps of 6 environments, in no order."""
    algorithm = build(tiny_config("nervenet", BODIES, policy=SMALL, env={"n_envs": 6}))
    policy, env = algorithm.policy, algorithm.env
    generator = torch.Generator().manual_seed(0)
    obs = torch.as_tensor(env.reset())
    rows = []
    with torch.no_grad():
        policy.actor.log_std.add_(0.3 * torch.randn(policy.actor.log_std.shape, generator=generator))
        for _ in range(6):
            actions, _, log_prob, _ = policy.act(obs, generator=generator)
            rows.append((obs, actions, log_prob))
            obs = torch.as_tensor(env.step_batch(actions.numpy()).obs)
        policy.update_normalizers(torch.cat([row[0] for row in rows]))
        order = torch.randperm(36, generator=generator)
        obs, actions, old = (torch.cat(part)[order] for part in zip(*rows, strict=True))
        old = policy.action_log_prob(obs, actions)[0] + 0.1 * torch.randn(36, generator=generator)  # some are clipped
    env.close()
    return policy, Minibatch(obs, actions, old, *(torch.randn(36, generator=generator) for _ in range(2)))


def alone(policy: GraphActorCriticPolicy, k: int) -> GraphActorCriticPolicy:
    """The same weights and statistics in a policy that knows body ``k`` only."""
    single = GraphActorCriticPolicy.for_graphs([policy.graphs[k]], policy.config)
    single.load_actor(policy.actor.state_dict())
    single.load_critic(policy.critic.state_dict())
    return single


def of_body(policy: GraphActorCriticPolicy, batch: Minibatch, k: int, *, padded: bool) -> Minibatch:
    """The transitions of body ``k``, as they are in the mixed batch or without their padding."""
    part = Minibatch(*(column[batch.obs[:, -1] == k] for column in batch))
    graph = policy.graphs[k]
    if padded:
        return part
    return part._replace(obs=part.obs[:, : graph.obs_dim], actions=part.actions[:, : graph.act_dim])


def losses(policy: GraphActorCriticPolicy, batch: Minibatch) -> tuple[float, float, dict[str, torch.Tensor]]:
    """Policy loss (with an entropy bonus), value loss, and the gradient of their sum by parameter."""
    policy.zero_grad()
    policy_loss, _ = actor_loss(policy, batch, clip_range=0.2, ent_coef=0.01)
    value_loss = critic_loss(policy, batch)
    (policy_loss + value_loss).backward()
    gradients = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    return float(policy_loss.detach()), float(value_loss.detach()), gradients


@pytest.mark.parametrize("k", [0, 1])
def test_padded_and_unpadded_losses_and_gradients_of_one_body_are_equal(mixed, k: int) -> None:
    policy, batch = mixed
    padded, bare = of_body(policy, batch, k, padded=True), of_body(policy, batch, k, padded=False)
    assert padded.obs.shape[1] > bare.obs.shape[1]
    assert padded.actions.shape[1] > bare.actions.shape[1]
    expected = losses(alone(policy, k), bare)
    filled = padded._replace(actions=padded.actions.clone(), obs=padded.obs.clone())
    filled.actions[:, bare.actions.shape[1] :] = 1e6  # what stands in the padding must not matter
    filled.obs[:, bare.obs.shape[1] : -1] = -1e6
    for version in (padded, filled):
        got = losses(policy, version)
        assert got[:2] == pytest.approx(expected[:2], abs=1e-6)
        assert got[2].keys() == expected[2].keys()
        for name, gradient in expected[2].items():
            torch.testing.assert_close(got[2][name], gradient, rtol=1e-5, atol=1e-6, msg=name)
    # Negative control: a real action column does matter.
    padded.actions[:, bare.actions.shape[1] - 1] += 1.0
    assert losses(policy, padded)[0] != pytest.approx(expected[0], abs=1e-3)


def test_a_mixed_batch_gives_what_the_bodies_give_alone(mixed) -> None:
    policy, batch = mixed
    mean, log_std, mask = policy.distribution(batch.obs)
    log_prob, entropy = policy.action_log_prob(batch.obs, batch.actions)
    values = policy.predict_values(batch.obs)
    whole = losses(policy, batch)
    sums = [0.0, 0.0]
    gradients = {name: torch.zeros_like(g) for name, g in whole[2].items()}
    for k, graph in enumerate(policy.graphs):
        here, single = batch.obs[:, -1] == k, alone(policy, k)
        bare = of_body(policy, batch, k, padded=False)
        assert len(bare.obs) == 12  # two environments each: as many steps of every body
        width = graph.act_dim
        expected = single.distribution(bare.obs)
        for got, want in zip((mean, log_std, mask), expected, strict=True):
            torch.testing.assert_close(got[here][:, :width], want, rtol=1e-5, atol=1e-6)
            assert not got[here][:, width:].any()
        torch.testing.assert_close(log_prob[here], single.action_log_prob(bare.obs, bare.actions)[0])
        torch.testing.assert_close(entropy[here], single.action_log_prob(bare.obs, bare.actions)[1])
        torch.testing.assert_close(values[here], single.predict_values(bare.obs))
        part = losses(single, bare)
        sums = [total + loss * len(bare.obs) / 36 for total, loss in zip(sums, part[:2], strict=True)]
        for name, gradient in part[2].items():
            gradients[name] += gradient * len(bare.obs) / 36
    assert whole[:2] == pytest.approx(sums, abs=1e-6)
    for name, gradient in whole[2].items():
        torch.testing.assert_close(gradient, gradients[name], rtol=1e-4, atol=1e-6, msg=name)


def test_entropy_counts_real_actuators_and_no_padding(mixed) -> None:
    policy, batch = mixed
    entropy = policy.action_log_prob(batch.obs, batch.actions)[1]
    constant = 0.5 * (1.0 + math.log(2.0 * math.pi))
    for k, graph in enumerate(policy.graphs):
        log_std = policy.actor.log_std.detach()[torch.as_tensor(graph.node_class[graph.output_node])]
        assert len(log_std) == graph.act_dim
        expected = float((log_std + constant).sum())
        assert entropy[batch.obs[:, -1] == k].detach().tolist() == pytest.approx([expected] * 12, abs=1e-5)


def test_sampled_actions_leave_the_padding_zero(mixed) -> None:
    policy, batch = mixed
    actions = policy.act(batch.obs, generator=torch.Generator().manual_seed(1))[0]
    for k, graph in enumerate(policy.graphs):
        here = actions[batch.obs[:, -1] == k]
        assert here[:, : graph.act_dim].all()
        assert not here[:, graph.act_dim :].any()
