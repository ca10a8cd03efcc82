"""``snowflake finetune``: what flags add up to over the source run, what is refused, one run from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from snowflake.cli import main
from snowflake.cli.finetune import parse_finetune
from snowflake.run import Run

SOURCE = "pretrained:centipede-6"


def test_the_source_run_gives_the_defaults_and_flags_win() -> None:
    flags, config, bodies = parse_finetune([SOURCE, "--agents", "centipede-8"])
    assert [body.name for body in bodies] == ["centipede-8"]
    assert flags.train == ("same",)
    assert (config.agents, config.method, config.env.features) == (("centipede-8",), "snowflake", "paper")
    assert (config.ppo.n_epochs, config.ppo.learning_rate, config.total_timesteps) == (5, 1e-3, 800_000)
    assert config.policy.freeze == ("encoder", "message", "decoder")
    argv = [SOURCE, "--agents", "centipede-8", "centipede-4", "centipede-3", "--seed", "4"]
    argv += ["--n-epochs", "10", "--learning-rate", "3e-4", "--total-timesteps", "1000000"]  # train's own defaults
    _, config, _ = parse_finetune(argv)
    assert (config.ppo.n_epochs, config.ppo.learning_rate, config.total_timesteps) == (10, 3e-4, 1_000_000)
    assert (config.env.n_envs, config.seed) == (18, 4)


def test_a_config_lies_between_the_source_and_the_flags(tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text("seed: 9\nppo: {learning_rate: 1e-5, critic_warmup_updates: 3}\n")
    _, config, _ = parse_finetune([SOURCE, "--agents", "centipede-8", "--config", str(path), "--seed", "2"])
    assert (config.seed, config.ppo.learning_rate, config.ppo.critic_warmup_updates) == (2, 1e-5, 3)
    assert config.ppo.n_epochs == 5


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "RUN is missing"),
        (["--agents", "centipede-8"], "RUN is missing"),
        ([SOURCE], "--agents is missing"),
        (["nowhere", "--agents", "centipede-8"], "run nowhere does not exist"),
        ([SOURCE, "--agents", "centipede-x"], "did you mean 'centipede-"),
        ([SOURCE, "--agents", "centipede-8", "centipede-8"], "agents names 'centipede-8' twice"),
        ([SOURCE, "--agents", "centipede-8", "--method", "mlp"], "was trained with snowflake"),
        ([SOURCE, "--agents", "centipede-8", "--hidden-size", "32"], "policy.hidden_size = 32: the actor of"),
        (
            [SOURCE, "--agents", "centipede-8", "--n-envs", "2", "--body-weights", "1", "2"],
            "has 2 numbers for 1 bodies",
        ),
        ([SOURCE, "--agents", "centipede-8", "--from-scratch", "--reset-log-std", "0"], "leave out --reset-log-std"),
        ([SOURCE, "--agents", "centipede-8", "--from-scratch", "--compare", "x"], "--compare is for the finetuned run"),
        ([SOURCE, "--agents", "centipede-8", "--reset-log-std", "nan"], "--reset-log-std nan: must lie between -20"),
        ([SOURCE, "--compare", SOURCE, "--returns", "5", "nan"], "--returns nan: give finite numbers"),
        ([SOURCE, "--agents", "centipede-8", "--compare", "x", "--returns", "inf"], "--returns inf: give finite"),
        ([SOURCE, "--agents", "centipede-8", "--train", "nix"], "--train nix: choose from all, same, encoder"),
        ([SOURCE, "--agents", "centipede-8", "--train", "decodr"], "--train decodr: did you mean 'decoder'"),
        ([SOURCE, "--agents", "centipede-8", "--train"], "--train names nothing that learns: write all, same, encoder"),
        ([SOURCE, "--agents", "centipede-8", "--train", "all", "update"], "--train all stands alone: leave out update"),
        ([SOURCE, "--agents", "centipede-8", "--train", "update", "same"], "--train same stands alone"),
        ([SOURCE, "--agents", "centipede-8", "--total-timesteps", "1e3"], "warm-up alone takes 10240 steps"),
        ([SOURCE, "--agents", "ant", "--total-timesteps", "1e3"], "body 'ant' has root, hinge_actuated"),
        ([SOURCE, "--agents", "centipede-4", "centipede-4+mass=1"], "centipede-4 and centipede-4+mass=1 are the same"),
        ([SOURCE, "--agents", "centipede-4,centipede-6"], "put spaces between bodies"),
        ([SOURCE, "--agents", "centipede-8", "--returns", "5"], "--compare RUN2, which is missing"),
        ([SOURCE, "--agents", "centipede-8", "--compare", "x"], "run x does not exist"),
        ([SOURCE, "--agents", "centipede-8", "--compare", SOURCE], "not on the same bodies"),
        ([SOURCE, "--agents", "centipede-8", "--checkpoint", "last"], "has no checkpoint 'last'"),
        ([SOURCE, "--agents", "centipede-8", "--trian", "all"], "unknown option --trian: did you mean '--train'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["finetune", *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert not list(tmp_path.iterdir())


def test_from_the_command_line_to_the_comparison(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["--n-envs", "2", "--n-steps", "16", "--batch-size", "32", "--n-epochs", "1", "--torch-threads", "1"]
    short += ["--eval-freq", "64", "--eval-episodes", "1", "--max-episode-steps", "12", "--num-threads", "1"]
    argv = ["finetune", SOURCE, "--agents", "centipede-3", "--total-timesteps", "64", *short]
    assert main([*argv, "--run", "scratch", "--from-scratch"]) == 0
    assert "snowflake transfer scratch" in capsys.readouterr().out
    assert main([*argv, "--run", "tuned", "--critic-warmup-updates", "1", "--compare", "scratch"]) == 0
    out = capsys.readouterr().out
    assert "finetuned  from scratch" in out
    assert "wrote tuned/sample_efficiency.json" in out
    written = json.loads(Path("tuned/sample_efficiency.json").read_text())
    assert written["source"]["run"] == SOURCE
    steps = [json.loads(line)["step"] for line in Path("tuned/evaluations.jsonl").read_text().splitlines()]
    assert steps == [0, 64]
    assert main(["finetune", "tuned", "--compare", "scratch", "--returns", "1e9"]) == 0
    assert capsys.readouterr().out.count("not reached") == 2
    # The source's body is not the run's, and yet not new to the actor.
    argv = ["transfer", "tuned", "--to", "centipede-6", "centipede-4", "--episodes", "1", "--num-threads", "1"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "centipede-6, trained on earlier" in out
    assert "centipede-4, zero-shot" in out
    assert "Not new to the actor: centipede-6." in " ".join(out.split())
    found = {body["morphology"]: body.get("trained_earlier") for body in read_strictly("tuned/transfer.json")["bodies"]}
    assert found == {"centipede-3": None, "centipede-6": True, "centipede-4": None}
    assert Run.open("tuned").export("small").earlier_bodies == ("centipede-6",)


def read_strictly(path: str) -> dict:
    """Read JSON that holds no NaN or infinity, which other readers than Python's refuse."""
    return json.loads(Path(path).read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
