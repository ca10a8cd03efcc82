"""The defects of the official code as switches: what each does on a small case, and that it is off by default."""

from __future__ import annotations

import torch

from snowflake.config import PPOConfig, loader
from snowflake.ppo.train import build
from snowflake.ppo.update import PPOUpdate, UpdateSettings, actor_loss
from tests.snowflake.ppo.helpers import tiny_config
from tests.snowflake.ppo.test_update import filled_buffer, surrogate


def one_update(method: str, mlp_update: str, max_grad_norm: float = 5.0, n_epochs: int = 4):
    algorithm = build(tiny_config(method, policy={"hidden_size": 8}))
    buffer = filled_buffer(algorithm)
    settings = UpdateSettings(32, n_epochs, 0.2, 0.0, max_grad_norm, None, mlp_update=mlp_update)
    statistics = PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(0)).run(buffer)
    return algorithm, surrogate(algorithm.policy, buffer.flat()), statistics


def test_the_official_mlp_goes_down_where_the_correct_one_goes_up() -> None:
    _, correct, _ = one_update("mlp", "correct")
    _, official, _ = one_update("mlp", "official")
    assert correct > 0.01
    assert official < -0.01
    assert PPOConfig().mlp_update == "correct"


def test_graph_policies_do_not_have_that_defect() -> None:
    (a, correct, _), (b, official, _) = (one_update("nervenet", kind) for kind in ("correct", "official"))
    assert official == correct > 0.0
    for p, q in zip(a.policy.actor.parameters(), b.policy.actor.parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_official_mlp_loss_is_the_objective_summed() -> None:
    algorithm = build(tiny_config("mlp"))
    flat = filled_buffer(algorithm).flat()
    mean, statistics = actor_loss(algorithm.policy, flat, 0.2, 0.0)
    total, official = actor_loss(algorithm.policy, flat, 0.2, 0.0, descend=True)
    torch.testing.assert_close(total, -len(flat.returns) * mean, rtol=1e-5, atol=1e-5)
    assert official["policy_gradient_loss"] == statistics["policy_gradient_loss"]  # logged as in any other run


def test_the_official_mlp_gradient_is_not_clipped() -> None:
    for mlp_update, kept in (("correct", False), ("official", True)):
        algorithm, _, statistics = one_update("mlp", mlp_update, max_grad_norm=1e-3, n_epochs=1)
        norm = torch.nn.utils.get_total_norm([p.grad for p in algorithm.policy.actor.parameters()])
        assert (float(norm) > 1.0) == kept, mlp_update
        assert statistics["grad_norm"] > 1e-3


def test_the_preset_turns_on_every_switch_and_others_none() -> None:
    switches = {
        "policy": ("init", "actuator_wiring", "train_node_table", "log_std", "log_std_init"),
        "ppo": ("timelimit_bootstrap", "mlp_update", "collection", "step_accounting", "clip_range"),
    }
    official, default = loader.resolve("official"), loader.resolve("nervenet")
    for section, names in switches.items():
        for name in names:
            assert getattr(getattr(official, section), name) != getattr(getattr(default, section), name), name
    for method in ("snowflake", "nervenet", "mlp"):
        changed = loader.difference(loader.resolve(method), loader.resolve("nervenet"))
        assert set(changed.get("policy", {})) <= {"network", "freeze"}
        assert "ppo" not in changed
