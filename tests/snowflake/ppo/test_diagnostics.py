"""How far an update moves the policy: closed forms, one component at a time, and training left alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from agents.errors import UserError
from snowflake.ppo.algorithm import SnowflakePPO
from snowflake.ppo.diagnostics import UpdateDiagnostics, gaussian_kl
from snowflake.ppo.train import build
from snowflake.ppo.update import PPOUpdate, UpdateSettings
from tests.snowflake.ppo.helpers import tiny_config
from tests.snowflake.ppo.test_update import filled_buffer

SETTINGS = UpdateSettings(batch_size=32, n_epochs=2, clip_range=0.2, ent_coef=0.0, max_grad_norm=5.0, target_kl=None)


def small(method: str = "nervenet", **changes) -> SnowflakePPO:
    policy = {"hidden_size": 8, "propagation_steps": 1} | changes.pop("policy", {})
    ppo = {"n_steps": 16, "batch_size": 16, "n_epochs": 2} | changes.pop("ppo", {})
    return build(tiny_config(method, policy=policy, ppo=ppo, env={"n_envs": 2}, **changes))


def updated(algorithm: SnowflakePPO, settings: UpdateSettings = SETTINGS) -> tuple[dict[str, float], UpdateDiagnostics]:
    buffer = filled_buffer(algorithm)
    diagnostics = UpdateDiagnostics(algorithm.policy, buffer.flat())
    PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(0)).run(buffer)
    return diagnostics.measure(buffer.flat(), settings.clip_range), diagnostics


def test_kl_equals_torch_and_ignores_padding() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log_std, new_mean, new_log_std = torch.randn(4, 5, 3, generator=generator)
    mask = torch.ones(5, 3)
    mask[:, 2] = 0.0
    wanted = kl_divergence(
        Normal(mean.double(), log_std.double().exp()), Normal(new_mean.double(), new_log_std.double().exp())
    )
    got = gaussian_kl((mean, log_std), (new_mean, new_log_std), mask)
    torch.testing.assert_close(got, wanted[:, :2].sum(-1))
    # by hand: equal widths 1, means 0.5 apart -> 0.125; widths 1 -> e -> 1 + (exp(-2) - 1) / 2
    zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    assert float(gaussian_kl((zero, zero), (0.5 * one, zero), one)) == pytest.approx(0.125)
    assert float(gaussian_kl((zero, zero), (zero, one), one)) == pytest.approx(0.5676676416)
    assert float(gaussian_kl((mean, log_std), (mean, log_std), torch.ones(5, 3)).abs().max()) == 0.0


def test_each_component_alone_against_an_actor_put_together_by_hand() -> None:
    algorithm, other = small(), small()
    measured, diagnostics = updated(algorithm)
    flat = algorithm.rollout_buffer.flat()
    old, new = other.policy.actor, algorithm.policy.actor
    old_mean, old_log_std, mask = other.policy.distribution(flat.obs)
    before = {name: p.detach().clone() for name, p in old.named_parameters()}
    for component in (*new.components, "all"):
        with torch.no_grad():
            for name, p in old.named_parameters():
                mine = component == "all" or name in new.component_parameters(component)
                p.copy_(dict(new.named_parameters())[name] if mine else before[name])
            mean, log_std, _ = other.policy.distribution(flat.obs)
        spread = Normal(old_mean.double(), old_log_std.double().exp())
        divergence = kl_divergence(spread, Normal(mean.double(), log_std.double().exp()))
        wanted = (divergence * mask).sum(-1).mean().detach()
        assert measured[f"kl/{component}"] == pytest.approx(float(wanted), rel=1e-4), component
        assert measured[f"kl/{component}"] > 1e-7, component
    assert set(diagnostics.components) == set(new.components)
    change = torch.cat([(p - before[n]).flatten() for n, p in new.component_parameters("update").items()]).norm()
    size = torch.cat([before[n].flatten() for n in new.component_parameters("update")]).norm()
    assert measured["update_ratio/update"] == pytest.approx(float((change / size).detach()), rel=1e-5)
    decoder = torch.cat([p.flatten() for p in new.component_parameters("decoder").values()])
    assert measured["norm/decoder"] == pytest.approx(float(decoder.norm().detach()), rel=1e-6)


def test_frozen_components_have_a_norm_and_nothing_else() -> None:
    measured, _ = updated(small("snowflake"))
    assert {key.split("/")[1] for key in measured if key.startswith("kl/")} == {"all", "update", "log_std"}
    assert {key for key in measured if key.startswith("norm/")} == {
        f"norm/{name}" for name in ("encoder", "message", "update", "decoder", "log_std")
    }


def test_the_actor_is_put_back_even_when_a_measurement_fails(monkeypatch) -> None:
    algorithm = small()
    buffer = filled_buffer(algorithm)
    diagnostics = UpdateDiagnostics(algorithm.policy, buffer.flat())
    PPOUpdate(algorithm.policy, SETTINGS, torch.Generator().manual_seed(0)).run(buffer)
    after = {name: p.detach().clone() for name, p in algorithm.policy.actor.named_parameters()}
    calls = iter(range(9))

    def failing() -> float:
        moved = [name for name, p in algorithm.policy.actor.named_parameters() if not torch.equal(p, after[name])]
        call = next(calls)
        assert bool(moved) == (call > 0)  # all new in the first call, parts old in the others
        if call == 2:
            raise RuntimeError("out of memory")
        return 0.0

    monkeypatch.setattr(diagnostics, "_kl", failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        diagnostics.measure(buffer.flat(), 0.2)
    for name, p in algorithm.policy.actor.named_parameters():
        assert torch.equal(p, after[name]), name


def test_clip_fractions_by_sign_and_side() -> None:
    algorithm = small()
    buffer = filled_buffer(algorithm)
    flat = buffer.flat()
    count = len(flat.returns)
    ratio, advantage = torch.ones(count), torch.ones(count)
    ratio[:4] = torch.tensor([1.3, 0.7, 1.25, 1.1])  # positive: two above, one below, one inside
    advantage[8:16] = -1.0
    ratio[8:11] = torch.tensor([0.5, 1.5, 0.75])  # negative: one above, two below
    advantage[16:] = 0.0
    flat = flat._replace(old_log_prob=flat.old_log_prob - ratio.log(), advantages=advantage)
    measured = UpdateDiagnostics(algorithm.policy, flat).measure(flat, 0.2)
    assert [measured[f"clip_fraction/{k}"] for k in ("positive_above", "positive_below")] == [2 / 8, 1 / 8]
    assert [measured[f"clip_fraction/{k}"] for k in ("negative_above", "negative_below")] == [1 / 8, 2 / 8]
    assert measured["kl/all"] == 0.0  # nothing was updated


class Recorder:
    """Keeps what an algorithm logs."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = [{}]

    def record(self, name: str, value: float, **_: object) -> None:
        self.rows[-1][name] = value

    def dump(self, step: int = 0) -> None:
        self.rows.append({})


def state(algorithm: SnowflakePPO) -> Iterator[tuple[str, torch.Tensor]]:
    for part in ("actor", "critic"):
        yield from getattr(algorithm.policy, part).state_dict().items()
    for optimiser in (algorithm.policy.optimizer, algorithm.policy.critic_optimizer):
        for slots in optimiser.state.values():
            yield from slots.items()
    yield "actions", algorithm.action_generator.get_state()
    yield "minibatches", algorithm.minibatch_generator.get_state()
    yield "global", torch.get_rng_state()
    yield "obs", torch.as_tensor(algorithm._last_obs)


def test_training_is_the_same_with_and_without_and_they_come_every_second_update() -> None:
    ends, logs = [], []
    for every in (0, 2):
        torch.manual_seed(0)
        algorithm = small(ppo={"diagnostics_every": every})
        recorder = Recorder()
        algorithm.set_logger(recorder)  # type: ignore[arg-type]
        algorithm.learn(3 * 32)
        ends.append(list(state(algorithm)))
        logs.append(recorder.rows[:3])
    for (name, a), (_, b) in zip(*ends, strict=True):
        assert torch.equal(a, b), name
    shown = [any(key.startswith("diagnostics/") for key in row) for row in logs[1]]
    assert shown == [True, False, True]
    assert not any(key.startswith("diagnostics/") for row in logs[0] for key in row)
    assert logs[1][0]["diagnostics/kl/all"] > 0


def gradients(algorithm: SnowflakePPO, **changes) -> dict[str, torch.Tensor]:
    """The actor's gradient of one step on one minibatch that is the whole batch, unclipped."""
    settings = UpdateSettings(10_000, 1, 0.2, 0.0, 1e9, None, **changes)
    PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(0)).run(filled_buffer(algorithm))
    return {name: p.grad.clone() for name, p in algorithm.policy.actor.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("names", [(), ("decoder", "log_std")])
def test_weight_decay_adds_its_gradient_to_the_components_it_acts_on(names: tuple[str, ...]) -> None:
    start = dict(small().policy.actor.named_parameters())
    plain = gradients(small())
    decayed = gradients(small(), weight_decay=0.1, weight_decay_components=names)
    chosen = names or ("encoder", "message", "update", "decoder")
    actor = small().policy.actor
    held = {key for name in chosen for key in actor.component_parameters(name)}
    for name, gradient in plain.items():
        wanted = gradient + 0.1 * start[name].detach() if name in held else gradient
        torch.testing.assert_close(decayed[name], wanted, rtol=1e-4, atol=1e-6, msg=name)
    assert any(not torch.equal(decayed[name], plain[name]) for name in held)


def test_weight_decay_of_a_component_that_cannot_decay_is_refused() -> None:
    for names, words in ((("encoder",), "has nothing to train"), (("hidden",), "has no component 'hidden'")):
        with pytest.raises(UserError, match=words):
            small("snowflake", ppo={"weight_decay": 1e-3, "weight_decay_components": names})
    with pytest.raises(UserError, match="has no effect while"):
        small(ppo={"weight_decay_components": ("decoder",)})


def test_a_component_with_its_own_rate() -> None:
    """Rate 0 holds a component, though its gradient is computed; others follow the schedule, it does not."""
    rates = {"decoder": 0.0, "message": 0.01}
    algorithm = small(policy={"propagation_steps": 2}, ppo={"component_learning_rates": rates})
    before = {name: p.detach().clone() for name, p in algorithm.policy.actor.named_parameters()}
    algorithm.set_logger(Recorder())  # type: ignore[arg-type]
    algorithm.learn(64)
    for name, p in algorithm.policy.actor.named_parameters():
        assert torch.equal(p, before[name]) == name.startswith("decoder"), name
    now = [group["lr"] for group in algorithm.policy.optimizer.param_groups]
    assert now == [0.0, 0.01, 0.0]  # two of their own, the others' at the last of two updates, with no steps to go
    held = [id(p) for group in algorithm.policy.optimizer.param_groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in algorithm.policy.actor.parameters())
    with pytest.raises(UserError, match="component_learning_rates names 'encoder', which has nothing to train"):
        small("snowflake", ppo={"component_learning_rates": {"encoder": 1e-4}})


def test_settings_of_an_update_are_those_of_the_config() -> None:
    """Every optional setting of an update is a key of the PPO section, with the same default."""
    from snowflake.config import PPOConfig

    config = PPOConfig()
    for field in dataclasses.fields(UpdateSettings):
        follows_precision = field.name in ("recompute_log_prob", "skip_nonfinite")
        if field.default is not dataclasses.MISSING and not follows_precision:
            assert getattr(config, field.name) == field.default
