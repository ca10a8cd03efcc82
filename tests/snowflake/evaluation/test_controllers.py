"""Playing a policy changes nothing: no global random number, no gradient, no mode, no memory left over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from snowflake.evaluation.controllers import policy_controller, zero_action


class CountingPolicy(torch.nn.Module):
    """Acts with the number of calls since its memory was cleared, plus noise; two bodies of widths 4 and 6."""

    device = torch.device("cpu")

    def __init__(self, bodies: int = 1) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.graphs = [SimpleNamespace(obs_dim=4, act_dim=2), SimpleNamespace(obs_dim=6, act_dim=3)][:bodies]
        self.seen: list[dict[str, Any]] = []

    def act(
        self,
        obs: Any,
        state: Any,
        episode_start: Any,
        *,
        deterministic: bool,
        generator: Any,
        with_value: bool,
        deployed: bool,
    ) -> tuple[Any, ...]:
        assert not torch.is_grad_enabled()
        assert deployed
        assert not with_value
        self.seen.append({"obs": obs, "state": state, "start": episode_start})
        count = 0 if state is None else state["count"]
        width = max(g.act_dim for g in self.graphs)
        actions = count + self.weight * torch.ones(len(obs), width)
        if not deterministic:
            actions = actions + torch.randn(actions.shape, generator=generator)
        return actions, None, torch.zeros(len(obs)), {"count": count + 1}


OBS = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_nothing_of_the_policy_or_the_global_generator_changes() -> None:
    policy = CountingPolicy().train()
    control = policy_controller(policy, deterministic=False, seed=3)
    before = torch.get_rng_state()
    actions = control(OBS)
    assert torch.equal(before, torch.get_rng_state())
    assert policy.training
    assert torch.is_grad_enabled()
    assert isinstance(actions, np.ndarray)
    assert actions.shape == (2, 2)


def test_samples_follow_the_seed_and_the_mean_has_none() -> None:
    policy = CountingPolicy()
    first, again, other = (policy_controller(policy, deterministic=False, seed=s)(OBS) for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(policy_controller(policy, deterministic=True)(OBS), np.ones((2, 2)))


def test_memory_is_carried_and_cleared() -> None:
    policy = CountingPolicy()
    control = policy_controller(policy)
    assert [float(control(OBS)[0, 0]) for _ in range(3)] == [1.0, 2.0, 3.0]
    control.begin()
    assert float(control(OBS)[0, 0]) == 1.0
    assert [bool(s["start"].all()) for s in policy.seen] == [True, False, False, True]
    assert not policy.seen[1]["start"].any()


def test_one_body_of_several_is_padded_and_carries_its_index() -> None:
    policy = CountingPolicy(bodies=2)
    assert policy_controller(policy, body=0)(OBS).shape == (2, 2)
    obs = policy.seen[-1]["obs"].numpy()
    np.testing.assert_array_equal(obs[:, :4], OBS)
    np.testing.assert_array_equal(obs[:, 4:], 0.0)
    assert policy_controller(policy, body=1)(np.ones((2, 6), np.float32)).shape == (2, 3)
    np.testing.assert_array_equal(policy.seen[-1]["obs"].numpy(), np.ones((2, 7)))


def test_zero_action() -> None:
    actions = zero_action(16)(OBS)
    assert actions.shape == (2, 16)
    assert not actions.any()
