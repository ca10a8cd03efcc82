"""The update ascends its objective, for every method, and leaves frozen parts alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from snowflake.ppo.buffer import Minibatch, RolloutBuffer
from snowflake.ppo.train import build
from snowflake.ppo.update import PPOUpdate, UpdateSettings, actor_loss
from tests.snowflake.ppo.helpers import METHODS, tiny_config

SETTINGS = UpdateSettings(batch_size=32, n_epochs=4, clip_range=0.2, ent_coef=0.0, max_grad_norm=5.0, target_kl=None)


def filled_buffer(algorithm, seed: int = 0) -> RolloutBuffer:
    """A rollout's worth of real observations and sampled actions, with random advantages."""
    generator = torch.Generator().manual_seed(seed)
    buffer, env = algorithm.rollout_buffer, algorithm.env
    obs = torch.as_tensor(env.reset())
    with torch.no_grad():
        while not buffer.full:
            actions, values, log_probs, _ = algorithm.policy.act(obs, generator=generator)
            step = env.step_batch(actions.numpy())
            starts = torch.zeros(env.num_envs)
            buffer.add(obs, actions, torch.as_tensor(step.rewards, dtype=torch.float32), starts, values, log_probs)
            obs = torch.as_tensor(step.obs)
    buffer.advantages = torch.randn(buffer.advantages.shape, generator=generator)
    buffer.returns = buffer.values + torch.randn(buffer.values.shape, generator=generator)
    return buffer


def surrogate(policy, flat: Minibatch) -> float:
    with torch.no_grad():
        log_prob, _ = policy.action_log_prob(flat.obs, flat.actions)
        return float(((log_prob - flat.old_log_prob).exp() * flat.advantages).mean())


@pytest.mark.parametrize("method", METHODS)
def test_update_ascends_the_objective(method: str) -> None:
    algorithm = build(tiny_config(method))
    buffer = filled_buffer(algorithm)
    buffer.standardize_advantages()
    before = surrogate(algorithm.policy, buffer.flat())
    PPOUpdate(algorithm.policy, SETTINGS, torch.Generator().manual_seed(0)).run(buffer)
    after = surrogate(algorithm.policy, buffer.flat())
    assert abs(before) < 1e-4  # ratio 1 everywhere, advantages of mean 0
    assert after > 0.01, f"{method}: the surrogate went from {before} to {after}"


@pytest.mark.parametrize("method", METHODS)
def test_update_lowers_the_value_error(method: str) -> None:
    algorithm = build(tiny_config(method))
    buffer = filled_buffer(algorithm)
    flat = buffer.flat()

    def error() -> float:
        with torch.no_grad():
            return float(((algorithm.policy.predict_values(flat.obs) - flat.returns) ** 2).mean())

    before = error()
    PPOUpdate(algorithm.policy, SETTINGS, torch.Generator().manual_seed(0)).run(buffer)
    assert error() < before


def test_frozen_bytes_do_not_change_and_others_do() -> None:
    algorithm = build(tiny_config("snowflake"))
    actor = algorithm.policy.actor
    before = {k: v.clone() for k, v in actor.named_parameters()}
    PPOUpdate(algorithm.policy, SETTINGS, torch.Generator().manual_seed(0)).run(filled_buffer(algorithm))
    frozen = {n for c in ("encoder", "message", "decoder") for n in actor.component_parameters(c)}
    trained = {n for c in ("update", "log_std") for n in actor.component_parameters(c)}
    assert frozen | trained == set(before)
    for name, parameter in actor.named_parameters():
        assert torch.equal(parameter, before[name]) == (name in frozen), name
        assert name not in frozen or parameter.grad is None
    held = {id(p) for group in algorithm.policy.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for n, p in actor.named_parameters() if n in trained}


def test_first_minibatch_has_ratio_one() -> None:
    algorithm = build(tiny_config())
    statistics = PPOUpdate(algorithm.policy, SETTINGS, torch.Generator().manual_seed(0)).run(filled_buffer(algorithm))
    assert statistics["first_ratio_error"] < 1e-5
    assert statistics["kl_batch"] > 0
    # Negative control: statistics of observations that move between rollout and update break it.
    algorithm = build(tiny_config())
    buffer = filled_buffer(algorithm)
    algorithm.policy.update_normalizers(buffer.obs.flatten(0, 1))
    moved = PPOUpdate(algorithm.policy, SETTINGS, torch.Generator().manual_seed(0)).run(buffer)
    assert moved["first_ratio_error"] > 1e-3


def test_log_prob_entropy_and_loss_equal_torch_distributions() -> None:
    algorithm = build(tiny_config())
    flat = filled_buffer(algorithm).flat()
    policy = algorithm.policy
    with torch.no_grad():
        policy.actor.component_parameters("log_std").popitem()[1].add_(0.3)
        mean, log_std, _ = policy.distribution(flat.obs)
    reference = torch.distributions.Normal(mean, log_std.exp())
    log_prob, entropy = policy.action_log_prob(flat.obs, flat.actions)
    torch.testing.assert_close(log_prob, reference.log_prob(flat.actions).sum(-1), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(entropy, reference.entropy().sum(-1), rtol=1e-5, atol=1e-4)
    loss, _ = actor_loss(policy, flat, clip_range=0.05, ent_coef=0.1)
    ratio = np.exp((log_prob - flat.old_log_prob).detach().numpy().astype(np.float64))
    adv = flat.advantages.numpy()
    expected = -np.minimum(adv * ratio, adv * np.clip(ratio, 0.95, 1.05)).mean() - 0.1 * float(entropy.detach().mean())
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)


def test_gradient_norm_is_clipped_for_the_actor_alone() -> None:
    algorithm = build(tiny_config())
    settings = UpdateSettings(64, 1, 0.2, 0.0, 1e-3, None)
    statistics = PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(0)).run(filled_buffer(algorithm))
    actor_norm = torch.nn.utils.get_total_norm(
        [p.grad for p in algorithm.policy.actor.parameters() if p.grad is not None]
    )
    critic_norm = torch.nn.utils.get_total_norm([p.grad for p in algorithm.policy.critic.parameters()])
    assert float(actor_norm) <= 1.001e-3 < float(critic_norm)
    parts = [v for k, v in statistics.items() if k.startswith("grad_norm/")]
    assert statistics["grad_norm"] == pytest.approx(float(np.linalg.norm(parts)), rel=1e-5)


def test_target_kl_stops_the_epochs() -> None:
    algorithm = build(tiny_config(ppo={"learning_rate": 0.05}))
    settings = UpdateSettings(32, 50, 0.2, 0.0, 5.0, 1e-3)
    statistics = PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(0)).run(filled_buffer(algorithm))
    assert statistics["n_epochs"] < 50
