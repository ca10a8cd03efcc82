"""``snowflake bench``: input errors are one line and come before torch; a tiny run prints a command to paste."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from snowflake.cli import main
from snowflake.cli.bench import parse_bench
from snowflake.cli.train import parse_train

TINY = """
agents: [centipede-4]
torch_threads: 1
env: {n_envs: 2, num_threads: 1}
policy: {hidden_size: 8, propagation_steps: 1}
ppo: {n_steps: 16, batch_size: 16, n_epochs: 1}
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--agents", "centipede"], "centipede"),
        (["--model", "no_such_robot.xml"], "no_such_robot.xml"),
        (["--method", "snowflak"], "snowflake"),
        (["--seconds", "0"], "--seconds 0: must lie between 1 and 86400"),
        (["--seconds", "soon"], "soon"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--secnds", "3"], "did you mean"),
        (["--method", "mlp", "--agents", "centipede-4", "centipede-4"], "twice"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("snowflake: error: ")
    assert words in error
    assert error.count("\n") == 1


def test_mistakes_are_told_before_torch_loads() -> None:
    script = (
        "import sys; from snowflake.cli import main; code = main(['bench', '--agents', 'nobody']); "
        "print(code, {'torch', 'stable_baselines3'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "2 set()\n"


def test_what_was_chosen_goes_into_the_command(tmp_path: Path) -> None:
    file = tmp_path / "my run.yaml"
    file.write_text(TINY)
    _, config, given = parse_bench(["--config", str(file)])
    assert (config.agents, given) == (("centipede-4",), ["--config", str(file)])
    _, config, given = parse_bench(["--model", "ant", "--method", "nervenet"])
    assert (config.agents, config.method) == (("ant",), "nervenet")
    assert given == ["--agents", "ant", "--method", "nervenet"]
    assert parse_train(given)[0].policy == config.policy


def test_a_tiny_run_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    assert main(["bench", "--config", str(file), "--seconds", "1", "--json"]) == 0
    out, error = capsys.readouterr()
    result = json.loads(out)
    assert "measuring" in error
    assert result["report"]["agents"] == ["centipede-4"]
    assert result["steps_per_second"] > 0.0
    command = shlex.split(result["command"])
    assert command[:2] == ["snowflake", "train"]
    config, _ = parse_train(command[2:])
    assert config.env.n_envs == result["recommended"]["n_envs"]
    assert config.ppo.n_steps * config.env.n_envs == 32
