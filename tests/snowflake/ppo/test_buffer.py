"""Advantages against hand-computed numbers and an independent forward-view sum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from snowflake.ppo.buffer import ReturnScaler, RolloutBuffer


def make_buffer(n_steps: int, n_envs: int, gamma: float, lam: float, bodies: list[int] | None = None) -> RolloutBuffer:
    box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    body_of_env = None if bodies is None else np.array(bodies)
    return RolloutBuffer(n_steps, box, spaces.Box(-1, 1, (1,)), "cpu", lam, gamma, n_envs, body_of_env)


def fill(buffer: RolloutBuffer, rewards: np.ndarray, values: np.ndarray, starts: np.ndarray) -> None:
    for r, v, s in zip(rewards, values, starts, strict=True):
        n = buffer.n_envs
        buffer.add(
            torch.zeros(n, 2),
            torch.zeros(n, 1),
            *(torch.as_tensor(x, dtype=torch.float32) for x in (r, s, v)),
            torch.zeros(n),
        )


def test_gae_hand_computed() -> None:
    # gamma 0.5, lambda 0.5; the episode ends after step 1, so nothing flows from step 2 into steps 0 and 1.
    buffer = make_buffer(3, 1, 0.5, 0.5)
    fill(buffer, np.array([[1.0], [2.0], [3.0]]), np.array([[4.0], [6.0], [8.0]]), np.array([[1.0], [0.0], [1.0]]))
    buffer.compute_returns_and_advantage(torch.tensor([10.0]), torch.tensor([0.0]))
    # delta_2 = 3 + 0.5*10 - 8 = 0; delta_1 = 2 - 6 = -4; delta_0 = 1 + 0.5*6 - 4 = 0, plus 0.25 * -4.
    assert buffer.advantages[:, 0].tolist() == [-1.0, -4.0, 0.0]
    assert buffer.returns[:, 0].tolist() == [3.0, 2.0, 8.0]


def test_gae_equals_the_sum_over_future_deltas() -> None:
    rng = np.random.default_rng(0)
    steps, n, gamma, lam = 12, 5, 0.97, 0.9
    rewards, values = rng.normal(size=(steps, n)), rng.normal(size=(steps, n))
    starts = (rng.random((steps, n)) < 0.25).astype(float)
    last, done = rng.normal(size=n), (rng.random(n) < 0.5).astype(float)
    buffer = make_buffer(steps, n, gamma, lam)
    fill(buffer, rewards, values, starts)
    buffer.compute_returns_and_advantage(torch.as_tensor(last, dtype=torch.float32), torch.as_tensor(done))
    next_values = np.vstack([values[1:], last])
    alive = 1.0 - np.vstack([starts[1:], done])
    delta = rewards + gamma * next_values * alive - values
    for t in range(steps):
        expected, weight = np.zeros(n), np.ones(n)
        for k in range(t, steps):
            expected += weight * delta[k]
            weight = weight * gamma * lam * alive[k]
        np.testing.assert_allclose(buffer.advantages[t].numpy(), expected, rtol=1e-4, atol=1e-5)


def test_advantages_are_standardised_per_body() -> None:
    buffer = make_buffer(50, 4, 0.9, 0.9, bodies=[0, 1, 0, 1])
    buffer.advantages = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    buffer.advantages[:, 1::2] = buffer.advantages[:, 1::2] * 100 + 7
    before = buffer.advantages.clone()
    buffer.standardize_advantages()
    for columns in ([0, 2], [1, 3]):
        part = buffer.advantages[:, columns]
        assert abs(float(part.mean())) < 1e-5
        assert abs(float(part.std(correction=0)) - 1) < 1e-4
        assert torch.equal(part.flatten().argsort(), before[:, columns].flatten().argsort())
    # Negative control: standardised together, body 0 would shrink to almost nothing.
    together = (before - before.mean()) / before.std(correction=0)
    assert float(together[:, ::2].std()) < 0.1


def test_minibatches_cover_the_batch_once_and_follow_the_generator() -> None:
    buffer = make_buffer(7, 3, 0.9, 0.9)
    buffer.returns = torch.arange(21.0).reshape(7, 3)
    first = [buffer.flat().select(rows).returns for rows in buffer.minibatches(4, torch.Generator().manual_seed(1))]
    again = [buffer.flat().select(rows).returns for rows in buffer.minibatches(4, torch.Generator().manual_seed(1))]
    other = [buffer.flat().select(rows).returns for rows in buffer.minibatches(4, torch.Generator().manual_seed(2))]
    assert sorted(torch.cat(first).tolist()) == list(range(21))
    assert torch.equal(torch.cat(first), torch.cat(again))
    assert not torch.equal(torch.cat(first), torch.cat(other))


def test_return_scaler_matches_the_standard_deviation_of_all_discounted_returns() -> None:
    rng, gamma, n = np.random.default_rng(0), 0.9, 3
    scaler, running, seen = ReturnScaler(n, gamma), np.zeros(n), []
    for _ in range(200):
        rewards, dones = rng.normal(2.0, 3.0, n), rng.random(n) < 0.1
        running = running * gamma + rewards
        seen.append(running.copy())
        scaled = scaler(rewards, dones)
        running[dones] = 0.0
    assert scaled == pytest.approx(rewards / np.std(seen), rel=1e-6)
    copy = ReturnScaler(n, gamma)
    copy.load(scaler.state())
    rewards, dones = rng.normal(size=n), np.zeros(n, bool)
    assert copy(rewards, dones) == pytest.approx(scaler(rewards, dones), rel=0)
