"""Runs by every recipe: the first ratio, logs, exact resume, checkpoints without a precision, what is refused."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from safetensors.torch import load_file
from stable_baselines3.common.logger import Logger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.errors import UserError
from snowflake.config import TrainConfig, loader
from snowflake.config.numerics import NumericsConfig, recipes
from snowflake.networks.native.library import library
from snowflake.numerics import OperandConfig, Recipe, find_recipe, recipe_names, unit
from snowflake.numerics import recipes as registry
from snowflake.ppo.train import build, resume, train
from snowflake.ppo.update import PPOUpdate, UpdateSettings, set_component_rates
from snowflake.run import Run
from tests.snowflake.ppo.helpers import tiny_config
from tests.snowflake.ppo.test_train import StopAt, assert_same, final_tensors
from tests.snowflake.ppo.test_update import filled_buffer

LIBRARY = library()
needs_bf16 = pytest.mark.skipif(
    isinstance(LIBRARY, str) or not LIBRARY.multiplies_bf16, reason="no compiler, or a CPU that multiplies no bfloat16"
)
RECIPES = ("fp32", "bf16", "fp8-amax", "fp8-cscale", "fp8-unit", "fp8-mor")
UNIT = {"learning_rate": 0.02, "critic_learning_rate": 0.02, "max_grad_norm": 1.0}
SETTINGS = UpdateSettings(batch_size=32, n_epochs=1, clip_range=0.2, ent_coef=0.0, max_grad_norm=0.5, target_kl=None)


def config_of(precision: str, method: str = "snowflake", **changes) -> TrainConfig:
    """A tiny config 16 wide with one round; unit-scaled where the recipe asks for it, or `parametrization` does."""
    scaled = changes.pop("parametrization", "unit" if precision == "fp8-unit" else "standard")
    policy = {"hidden_size": 16, "propagation_steps": 1, "parametrization": scaled} | changes.pop("policy", {})
    ppo = (UNIT if scaled == "unit" else {}) | changes.pop("ppo", {})
    # Fewer environments than transitions in a minibatch: matrix products of different sizes.
    ppo = {"n_steps": 16, "batch_size": 32, "n_epochs": 1} | ppo
    numerics = NumericsConfig(backend=changes.pop("backend", "auto"), statistics_every=1)
    return tiny_config(method, precision=precision, policy=policy, ppo=ppo, numerics=numerics, **changes)


def test_the_config_knows_the_recipes_without_loading_them() -> None:
    assert recipes() == {name: find_recipe(name).parametrization for name in recipe_names()}
    with pytest.raises(UserError, match="precision = 'fp8-amx' is not a choice: did you mean 'fp8-amax'"):
        config_of("fp8-amx")


@pytest.mark.parametrize(
    ("precision", "method"), [*((name, "snowflake") for name in RECIPES), ("bf16", "mlp"), ("fp8-unit", "mlp")]
)
def test_a_run_by_every_recipe(tmp_path, precision: str, method: str) -> None:
    backend = "emulate" if precision == "bf16" else "auto"
    run = train(config_of(precision, method, backend=backend), tmp_path / "run", progress=False)
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    tags = set(events.Tags()["scalars"])
    for tag in ("snowflake/first_ratio_error", "snowflake/rollout_ratio_error"):
        assert [event.value < 1e-5 for event in events.Scalars(tag)] == [True, True], tag
    layer = "update.joint.gates" if method == "snowflake" else "hidden.layers.1"
    expected = {f"numerics/actor/{layer}/{operand}/log2_scale" for operand in "xwg"}
    expected |= {f"numerics/{network}/share/flops/e4m3" for network in ("actor", "critic")}
    expected |= {"numerics/skipped_steps", "numerics/actor/share/operands/bf16", "numerics/critic/nonfinite"}
    if precision == "fp32":
        assert not any(tag.startswith("numerics/") for tag in tags)
        return
    assert expected <= tags, expected - tags
    assert [event.value for event in events.Scalars("numerics/skipped_steps")] == [0.0, 0.0]
    shares = {f: events.Scalars(f"numerics/actor/share/operands/{f}")[-1].value for f in ("e4m3", "e5m2", "bf16")}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert (shares["bf16"] == 1.0) == (precision == "bf16")
    report = (run.path / "numerics.txt").read_text()
    for words in ("reads observations", "read-out", "backend emulate on cpu"):
        assert words in report


@needs_bf16
@pytest.mark.parametrize("method", ["snowflake", "nervenet", "mlp"])
def test_a_run_in_bf16_by_the_compiled_library(tmp_path, capsys, method: str) -> None:
    config = config_of("bf16", method, policy={"hidden_size": 64}, ppo={"n_steps": 64, "batch_size": 128})
    run = train(dataclasses.replace(config, torch_threads=2), tmp_path / "run")
    assert "precision bf16: products by native" in capsys.readouterr().err
    assert "products by native" in (run.path / "numerics.txt").read_text()
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    assert {tag for tag in events.Tags()["scalars"] if tag.startswith("numerics/")} == {"numerics/skipped_steps"}
    errors = [event.value for event in events.Scalars("snowflake/first_ratio_error")]
    assert max(errors) < 1e-5, errors
    policy, obs = run.load_policy(), torch.randn(64, run.graphs[0].obs_dim, generator=torch.Generator().manual_seed(0))
    rough, plain = (p.distribution(obs)[0].detach() for p in (policy, run.at_precision("fp32").load_policy()))
    assert 1e-5 < float((rough - plain).norm() / plain.norm()) < 2e-2


@needs_bf16
def test_threads_change_no_number_in_bf16(tmp_path) -> None:
    config = config_of("bf16", "nervenet", policy={"hidden_size": 64}, ppo={"n_steps": 64, "batch_size": 128})
    runs = [train(dataclasses.replace(config, torch_threads=n), tmp_path / str(n), progress=False) for n in (1, 2)]
    assert_same(*(final_tensors(run) for run in runs))


def test_scales_of_whole_batches_move_log_probabilities(monkeypatch) -> None:
    """The negative control: with one scale for a batch of inputs, log-probabilities depend on the batch; the ratio of
    the first minibatch, whose old ones are computed in that minibatch, is 1 nevertheless."""
    together = Recipe("together", x=OperandConfig(kind="fp32"), w=OperandConfig(kind="fp32"))
    monkeypatch.setitem(registry._RECIPES, "together", together)
    found = {}
    for name in ("together", "fp8-amax"):
        algorithm = build(config_of(name))
        settings = dataclasses.replace(SETTINGS, recompute_log_prob=True)
        update = PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(3), algorithm.workers)
        statistics = update.run(filled_buffer(algorithm))
        assert statistics["first_ratio_error"] == 0.0
        found[name] = statistics["rollout_ratio_error"]
    assert found["together"] > 1e-4 > 1e-5 > found["fp8-amax"]


@pytest.mark.parametrize(
    ("precision", "method"),
    [("fp8-amax", "snowflake"), ("fp8-mor", "snowflake"), ("fp8-unit", "mlp")],
)
def test_resume_is_bit_equal(tmp_path, precision: str, method: str) -> None:
    config = config_of(
        precision,
        method,
        env={"max_episode_steps": 23},
        total_timesteps=192,
        evaluation={"checkpoint_freq": 64, "eval_freq": 128},
    )
    whole = train(config, tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", callbacks=[StopAt(128)], progress=False)
    resumed = resume(tmp_path / "cut", progress=False)
    assert_same(final_tensors(whole), final_tensors(resumed))
    curves = [numerics_curves(run) for run in (whole, resumed)]
    assert curves[0] == curves[1]
    assert len(curves[0]) > 50
    files = [run.find_checkpoint("last") / "numerics.safetensors" for run in (whole, resumed)]
    assert [file.exists() for file in files] == [precision != "fp8-amax"] * 2
    if files[0].exists():
        assert_same(load_file(files[0]), load_file(files[1]))
        assert all(key.startswith(f"{precision}/") for key in load_file(files[0]))


def numerics_curves(run: Run) -> dict[str, list[tuple[int, float]]]:
    """Steps and values of every scalar below numerics/."""
    events = EventAccumulator(str(run.path / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag.startswith("numerics/")]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def test_a_choice_of_formats_is_kept_or_left_out_with_a_word(tmp_path, capsys) -> None:
    algorithm = build(config_of("fp8-mor"))
    layers = algorithm.policy.numerics.conversions["actor"].layers
    layers["update.joint.gates"].quantisers["x"].choice.index = 1
    run = train_from(algorithm, tmp_path / "run")
    policy = run.load_policy()
    chosen = policy.numerics.conversions["actor"].layers["update.joint.gates"].quantisers["x"]
    assert chosen.format.name == "e5m2"
    moved = policy.for_bodies(policy.graphs)
    assert moved.numerics.conversions["actor"].layers["update.joint.gates"].quantisers["x"].format.name == "e5m2"
    assert capsys.readouterr().err == ""
    assert run.at_precision("fp8-amax").load_policy().numerics.recipe.name == "fp8-amax"
    assert "state of recipe fp8-mor is left out" in capsys.readouterr().err
    copy = run.export(tmp_path / "copy")
    assert copy.load_policy().numerics.state().keys() == policy.numerics.state().keys()


def train_from(algorithm, path) -> Run:
    """A run folder with one checkpoint of an algorithm as it is."""
    from snowflake.ppo.callbacks import RunCallback

    config = config_of(algorithm.policy.numerics.recipe.name)
    run = Run.create(path, config, algorithm.env.vector_env.body_envs)
    algorithm.learn(0, callback=(keeper := RunCallback(run)))
    keeper.model = algorithm
    keeper._save()
    return run


@pytest.mark.parametrize("trained", ["fp32", "fp8-mor"])
def test_checkpoints_have_no_precision(tmp_path, trained: str) -> None:
    run = train(config_of(trained), tmp_path / "run", progress=False)
    plain = run.at_precision("fp32").load_policy()
    assert plain.numerics is None
    folder = run.find_checkpoint("last")
    assert set(load_file(folder / "actor.safetensors")) == set(plain.actor.state_dict())
    obs = torch.randn(64, plain.observation_space.shape[0], generator=torch.Generator().manual_seed(0))
    exact = plain.distribution(obs)[0].detach()
    assert run.load_policy().numerics is None if trained == "fp32" else run.load_policy().numerics is not None
    for recipe, least, most in (("bf16", 1e-4, 2e-2), ("fp8-amax", 5e-3, 0.3), ("fp8-cscale", 5e-3, 0.3)):
        rough = run.at_precision(recipe).load_policy().distribution(obs)[0].detach()
        assert least < float((rough - exact).norm() / exact.norm()) < most, recipe
    with pytest.raises(UserError, match=r"'fp8-unit' is for unit-scaled networks.*'standard': train with --config"):
        run.at_precision("fp8-unit")


def test_a_parametrisation_is_not_taken_for_the_other(tmp_path) -> None:
    run = train(config_of("fp8-unit"), tmp_path / "run", progress=False)
    assert run.at_precision("fp32").load_policy().unit_scaled
    policy = dataclasses.replace(run.config.policy, parametrization="standard")
    wrong = dataclasses.replace(run, config=dataclasses.replace(run.config, precision="fp32", policy=policy))
    with pytest.raises(UserError, match=r"actor has parametrization 'unit', and policy\.parametrization is 'standard'"):
        wrong.load_policy()
    moved = run.load_policy().for_bodies(run.graphs)
    obs = torch.randn(8, moved.observation_space.shape[0], generator=torch.Generator().manual_seed(0))
    assert torch.equal(moved.distribution(obs)[0], run.load_policy().distribution(obs)[0])


# --- unit scaling ---------------------------------------------------------------------------------------------------


def test_unit_scaled_parameters_have_their_share_of_the_scheduled_rate() -> None:
    algorithm = build(config_of("fp32", "nervenet", parametrization="unit"))
    algorithm.set_logger(Logger(None, []))
    algorithm._current_progress_remaining = 0.25
    algorithm._update_learning_rate(algorithm.policy.optimizer)
    policy = algorithm.policy
    names = {id(p): name for name, p in policy.actor.named_parameters()}
    rates = {names[id(p)]: group["lr"] for group in policy.optimizer.param_groups for p in group["params"]}
    assert rates["message.layers.0.weight"] == pytest.approx(0.02 * 0.25 / 4)  # fan-in 16
    assert rates["message.layers.0.bias"] == rates["decoder.layers.2.weight"] == pytest.approx(0.02 * 0.25)
    critic = {group["lr"] for group in policy.critic_optimizer.param_groups}
    assert {0.02, 0.02 / 4} < critic  # the third is that of the observations' weights
    set_component_rates(policy, {"log_std": 3e-4, "message": 0.01})
    algorithm._update_learning_rate(policy.optimizer)
    PPOUpdate(policy, SETTINGS, torch.Generator())
    rates = {names[id(p)]: group["lr"] for group in policy.optimizer.param_groups for p in group["params"]}
    assert set(rates) == set(names.values())
    assert (rates["log_std"], rates["message.layers.0.weight"]) == (3e-4, pytest.approx(0.01 / 4))
    assert rates["update.joint.gates.weight"] == pytest.approx(0.02 * 0.25 / 4)


def test_unit_scaled_gradients_are_clipped_at_their_rms_and_losses_scaled() -> None:
    policy = build(config_of("fp32", parametrization="unit")).policy
    update = PPOUpdate(policy, dataclasses.replace(SETTINGS, max_grad_norm=0.5), torch.Generator())
    count = sum(p.numel() for p in policy.actor.parameters() if p.requires_grad)
    assert update.max_grad_norm == pytest.approx(0.5 * count**0.5)
    assert update.factors == (unit.loss_factor(32, 2.718281828**-1), 32.0)
    assert build(config_of("fp32")).policy.loss_factors(32) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ppo": {"weight_decay": 1e-3}}, "weight_decay = 0.001 is for policy.parametrization 'standard'"),
        ({"ppo": {"mlp_update": "official"}}, "mlp_update = 'official' is for policy.parametrization"),
    ],
)
def test_settings_without_a_meaning_for_unit_scaled_networks_are_refused(changes, words: str) -> None:
    with pytest.raises(UserError, match=words):
        config_of("fp32", "mlp", parametrization="unit", **changes)


def test_the_shipped_config_trains_unit_scaled_networks(tmp_path) -> None:
    config = loader.resolve("snowflake", ["unit"], {"precision": "fp8-unit"})
    assert config.policy.parametrization == "unit"
    assert config.ppo.component_learning_rates == {"log_std": 3e-4}


# --- what is not finite, and what is refused ------------------------------------------------------------------------


def test_a_step_that_is_not_finite_is_left_out_and_counted() -> None:
    algorithm = build(config_of("fp8-amax"))
    settings = dataclasses.replace(SETTINGS, recompute_log_prob=True, skip_nonfinite=True)
    buffer = filled_buffer(algorithm)
    buffer.standardize_advantages = lambda: None
    buffer.returns[3, 1] = torch.inf
    before = {name: p.detach().clone() for name, p in algorithm.policy.named_parameters() if p.requires_grad}
    update = PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(3), algorithm.workers)
    statistics = update.run(buffer)
    assert statistics["skipped_steps"] == 1.0
    assert statistics["n_minibatches"] == buffer.obs.flatten(0, 1).shape[0] // 32 - 1
    after = dict(algorithm.policy.named_parameters())
    assert all(torch.isfinite(after[name]).all() for name in before)
    assert any(not torch.equal(after[name], value) for name, value in before.items())
    buffer.returns.fill_(torch.nan)
    with pytest.raises(UserError, match="loss or gradient of every minibatch"):
        PPOUpdate(algorithm.policy, settings, torch.Generator().manual_seed(3), algorithm.workers).run(buffer)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"numerics": {"backend": "triton"}}, "backend 'triton'"),
        ({"numerics": {"backend": "scaled_mm"}, "precision": "bf16"}, "computes in 8 bits"),
        (
            {"numerics": {"backend": "native"}},
            "'native' cannot compute precision fp8-amax here",
        ),
        ({"compile": "on"}, "compile = 'on' is for precision fp32, not fp8-amax"),
    ],
)
def test_what_cannot_be_computed_is_named(changes, words: str) -> None:
    config = loader.resolve("snowflake", [], {"precision": "fp8-amax", "agents": ["centipede-4"], **changes})
    with pytest.raises(UserError, match=words):
        build(config)


@pytest.mark.parametrize("precision", ["bf16", "fp8-cscale"])
def test_many_rows_do_not_move_the_first_ratio(precision: str) -> None:
    """In sums of many rows the last bit depends on a row's place, and one in thousands lies where a rounding flips."""
    algorithm = build(config_of(precision, agents=("centipede-4",), policy={"hidden_size": 64, "propagation_steps": 4}))
    obs = torch.randn(1024, algorithm.policy.observation_space.shape[0], generator=torch.Generator().manual_seed(0))
    actor = algorithm.policy.actor
    prepared = algorithm.policy.prepare(obs, actor)
    index = torch.randperm(1024, generator=torch.Generator().manual_seed(1))[:512]
    with torch.no_grad():
        before = algorithm.policy.distribution_of(prepared.select(index))[0]
    after = algorithm.policy.distribution_of(prepared.select(index))[0]
    assert after.requires_grad
    assert torch.equal(before, after)
