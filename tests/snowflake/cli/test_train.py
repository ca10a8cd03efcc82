"""``snowflake train``: what the flags, configs and methods add up to, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.errors import UserError
from snowflake.cli import main
from snowflake.cli.train import default_run_path, parse_train
from snowflake.config import loader
from tests.envs.robots import ROBOTS


def test_without_flags_it_is_the_default_method() -> None:
    config, run = parse_train([])
    assert config == loader.resolve("snowflake")
    assert run.parent == Path("runs")
    assert run.name.startswith("centipede-6__snowflake__0__2")


def test_flags_win_over_config_and_method(tmp_path: Path) -> None:
    path = tmp_path / "my run.yaml"
    path.write_text("seed: 5\nenv: {n_envs: 4}\nppo: {gamma: 0.9}\npolicy: {freeze: [encoder]}\n")
    argv = ["--config", str(path), "--method", "nervenet", "--n-envs", "8", "--run", "here"]
    config, run = parse_train(argv)
    assert run == Path("here")
    assert (config.method, config.seed, config.env.n_envs, config.ppo.gamma) == ("nervenet", 5, 8, 0.9)
    assert config.policy.freeze == ()  # the method that the command line names, not the config's
    assert parse_train([*argv, "--freeze", "decoder", "message"])[0].policy.freeze == ("decoder", "message")
    assert parse_train([*argv, "--freeze"])[0].policy.freeze == ()


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--agents", "centipede-4"], {"agents": ("centipede-4",)}),
        (["--model", "centipede-4"], {"agents": ("centipede-4",)}),
        (["--total-timesteps=7", "--seed", "3"], {"total_timesteps": 7, "seed": 3}),
        (["--total-timesteps", "3e6", "--n-envs", "2e1"], {"total_timesteps": 3_000_000, "env": {"n_envs": 20}}),
        (["--learning-rate", "1e-4"], {"ppo": {"learning_rate": 1e-4}}),
        (["--log-std-init", "-2"], {"policy": {"log_std_init": -2.0}}),
        (["--target-kl", "0.02"], {"ppo": {"target_kl": 0.02}}),
        (["--target-kl", "None"], {}),
        (
            ["--scale-returns", "--no-timelimit-bootstrap"],
            {"ppo": {"scale_returns": True, "timelimit_bootstrap": False}},
        ),
        (["--n_envs", "8"], {"env": {"n_envs": 8}}),
        (
            ["--agents", "centipede-4", "centipede-6", "--critic", "graph"],
            {"agents": ("centipede-4", "centipede-6"), "policy": {"critic": "graph"}},
        ),
    ],
)
def test_spelling_of_flags(argv: list[str], expected: dict) -> None:
    assert loader.difference(parse_train(argv)[0], loader.resolve("snowflake")) == expected


def test_several_configs_and_equals_signs() -> None:
    config, _ = parse_train(["--config", "centipede-6", "demo", "--method=mlp"])
    assert config == loader.resolve("mlp", ["centipede-6", "demo"])


def test_a_bad_config_is_saved_by_no_flag_but_bodies_and_environments_may_be_split(tmp_path: Path) -> None:
    path = tmp_path / "bodies.yaml"
    path.write_text("agents: [centipede-4, centipede-6, centipede-8]\npolicy: {critic: graph}\n")
    assert parse_train(["--config", str(path), "--n-envs", "3"])[0].env.n_envs == 3


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--n-env", "3"], "unknown option --n-env: did you mean '--n-envs'"),
        (["--n_env", "3"], "unknown option --n_env: did you mean '--n-envs'"),
        (["--xyzzy"], "unknown option --xyzzy: snowflake train --help lists the options"),
        (["--n-envs", "abc"], "--n-envs: 'abc' is not a whole number"),
        (["--n-envs", "1.5e0"], "--n-envs: '1.5e0' is not a whole number"),
        (["--n-envs", "1.5"], "--n-envs: '1.5' is not a whole number"),
        (["--n-envs", "1e400"], "--n-envs: '1e400' is not a whole number"),
        (["--learning-rate", "fast"], "--learning-rate: 'fast' is not a number"),
        (["--target-kl", "low"], "--target-kl: 'low' is none of {None}|FLOAT"),
        (["--n-envs"], "--n-envs"),
        (["--config", "demo", "--method"], "--method"),
        (["--total-timesteps", "-4"], "total_timesteps = -4 is out of range"),
        (["--n-envs", "-1"], "env.n_envs = -1 is out of range"),
        (["--gamma", "nan"], "ppo.gamma = nan is out of range"),
        (["--scale-returns", "True"], "--scale-returns is a switch, say --scale-returns or --no-scale-returns"),
        (["extra"], "unexpected argument 'extra'"),
        (["--agents"], "agents is empty"),
        (["--agents", "centipede-x"], "did you mean 'centipede-"),
        (["--agents", "centipede-2"], "3 legs"),
        (
            ["--agents", "centipede-4", "centipede-6", "--critic", "flat"],
            "policy.critic = 'flat' serves one body, not centipede-4, centipede-6: choose --critic graph",
        ),
        (["--agents", "centipede-4", "centipede-4"], "agents names 'centipede-4' twice"),
        (
            ["--agents", "centipede-4", "centipede-4+mass=1"],
            "agents names 'centipede-4' twice (centipede-4 and centipede-4+mass=1 are the same body)",
        ),
        (["--agents", "centipede-4,centipede-6"], "put spaces between bodies, not commas: centipede-4 centipede-6"),
        (["--agents", "ant+mass=2,hopper-3"], "put spaces between bodies, not commas"),
        (["--agents", "ant+mass"], "+mass has no value: write +mass=NUMBER"),
        (["--agents", "ant+gear=2+remove"], "write +remove=NAME, or how many"),
        (["--agents", "centipede-4", "centipede-6", "centipede-8", "--n-envs", "16"], "use 15 or 18"),
        (
            ["--agents", "centipede-4", "centipede-6", "--body-weights", "1"],
            "env.body_weights has 1 numbers for 2 bodies",
        ),
        (["--body-weights", "0"], "env.body_weights = 0.0 is out of range"),
        (["--method", "snow"], "method 'snow' does not exist: did you mean 'snowflake'"),
        (["--aggregation", "median"], "policy.aggregation = 'median' is not a choice: did you mean 'mean'"),
        (["--config", "demoo"], "did you mean 'demo'"),
        (["--config", "missing.yaml"], "config 'missing.yaml' is neither a file nor a shipped config"),
        (["--config", "."], "is a folder"),
        (["--config", "broken.yaml"], "broken.yaml:3: not valid YAML"),
        (["--config", "typo.yaml"], "typo.yaml:2: env.n_env is not a key: did you mean 'n_envs'"),
        (["--config", "range.yaml"], "range.yaml:1: seed = -1 is out of range"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.yaml").write_text("seed: 1\nenv: {n_envs: 2\n")
    Path("typo.yaml").write_text("env:\n  n_env: 2\n")
    Path("range.yaml").write_text("seed: -1\n")
    monkeypatch.setattr("snowflake.ppo.train._learn", lambda *_: pytest.fail("the mistake was not noticed"))
    assert main(["train", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("snowflake: error: ")
    assert words in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_help_shows_the_defaults_of_the_chosen_presets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("env: {n_envs: 48}\n")
    assert main(["train", "--config", str(path), "--method", "official", "--help"]) == 0
    text = " ".join(word.strip("│ ") for word in capsys.readouterr().out.split())
    assert "(default: 48)" in text
    assert "(default: shared_seed)" in text
    assert "(default: encoder message decoder)" in text
    for flag in ("--agents", "--config", "--run", "--total-timesteps", "--learning-rate", "--no-scale-returns"):
        assert f" {flag}" in text


def test_an_existing_run_folder_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    argv = ["train", "--run", str(tmp_path), "--agents", "centipede-4", "--n-envs", "1"]
    assert main([*argv, "--total-timesteps", "1", "--n-steps", "2", "--batch-size", "2"]) == 2
    err = capsys.readouterr().err
    assert str(tmp_path) in err
    assert err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["note"]


def test_default_run_path_is_one_short_folder_name() -> None:
    bodies = ("my folder/robot one.xml", *(f"centipede-{n}" for n in range(3, 18)))
    config = loader.resolve(overrides={"agents": bodies, "policy": {"critic": "graph"}})
    path = default_run_path(config)
    assert path.parent == Path("runs")
    assert path.name.startswith("robot-one+centipede-3+")
    assert len(path.name) < 130


def test_files_of_one_name_are_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run keeps its bodies by name; the path alone does not tell them apart."""
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "arm.xml").write_text(ROBOTS["fixed base"])
    with pytest.raises(UserError, match=r"two bodies are called 'arm' \(a/arm.xml and b/arm.xml\): rename one of the"):
        parse_train(["--agents", "a/arm.xml", "b/arm.xml"])
    Path("b/arm.xml").rename("b/leg.xml")
    assert len(parse_train(["--agents", "a/arm.xml", "b/leg.xml"])[0].agents) == 2


def test_networks_are_read_off_their_sources() -> None:
    """What the registry knows and what the sources say is the same."""
    from torch_geometric.nn import conv

    from snowflake.config.networks import component_names, convolution_names, network_names
    from snowflake.networks import registry

    own = {name for name, cls in registry._ACTORS.items() if cls.__module__.startswith("snowflake.")}
    assert set(network_names("actor")) >= own >= {"nervenet", "mlp"}
    own = {name for name, cls in registry._CRITICS.items() if cls.__module__.startswith("snowflake.")}
    assert set(network_names("critic")) >= own >= {"flat", "graph"}
    for kind, table in (("actor", registry._ACTORS), ("critic", registry._CRITICS)):
        for name in network_names(kind):
            assert component_names(kind, name) == table[name].components
    assert set(convolution_names()) == set(conv.classes)
