"""The command line's frame: exit codes, one line for a mistake, no torch before it is needed."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import snowflake
from agents.errors import UserError
from snowflake import cli
from snowflake.cli import main


def use_command(monkeypatch: pytest.MonkeyPatch, function) -> None:
    """Make ``snowflake probe`` call ``function(argv)``."""
    module = type(sys)("snowflake_probe")
    module.main = function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "snowflake_probe", module)
    monkeypatch.setitem(cli.COMMANDS, "probe", cli.Command("snowflake_probe:main", "a test"))


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for name, command in cli.COMMANDS.items():
        assert name in out
        assert command.summary in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"snowflake-rl {snowflake.__version__}\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_exists_and_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, _, function = cli.COMMANDS[name].target.partition(":")
    assert callable(getattr(import_module(module), function))
    assert main([name, "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: snowflake {name}")
    assert err == ""
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "name a command: train"),
        (["trian"], "'trian' is not a command: did you mean 'train'"),
        (["--hlep"], "'--hlep' is not a command"),
        (["agents", "extra"], "unexpected argument 'extra'"),
        (["resume"], "RUN is missing"),
        (["resume", "nowhere", "--total-timesteps", "0"], "--total-timesteps 0: must be at least 1"),
        (["resume", "nowhere"], "nowhere"),
        (["evaluate", "nowhere", "--episods", "3"], "unknown option --episods: did you mean '--episodes'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("snowflake: error: ")
    assert words in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("raised", "code", "err"),
    [
        (UserError("bad\nbody"), 2, "snowflake: error: bad body\n"),
        (UserError("x" * 5000), 2, f"snowflake: error: {'x' * 1000} ...\n"),
        (KeyboardInterrupt(), 130, "snowflake: interrupted\n"),
        (KeyboardInterrupt("stopped, saved"), 130, ""),
        (BrokenPipeError(), 141, ""),
        (SystemExit(3), 3, ""),
        (SystemExit(None), 0, ""),
    ],
)
def test_exit_codes(
    raised: BaseException, code: int, err: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(argv: list[str]) -> int:
        raise raised

    use_command(monkeypatch, fail)
    assert main(["probe"]) == code
    assert capsys.readouterr().err == err


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(argv: list[str]) -> int:
        raise ValueError("a bug")

    use_command(monkeypatch, fail)
    with pytest.raises(ValueError, match="a bug"):
        main(["probe"])


def test_arguments_and_exit_code_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def record(argv: list[str]) -> int:
        seen.append(argv)
        return 7

    use_command(monkeypatch, record)
    assert main(["probe", "--a", "b"]) == 7
    assert seen == [["--a", "b"]]


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m snowflake.cli train --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_input_errors_and_help_do_not_import_torch() -> None:
    script = """
import sys, snowflake.cli
for argv in (
    ["--help"], ["--version"], ["train", "--help"], ["resume", "--help"], ["evaluate", "--help"], ["agents", "--help"],
    ["trian"], ["train", "--n-env", "1"], ["train", "--config", "nowhere"], ["train", "--agents", "centipede-x"],
    ["train", "--agents", "centipede-2"], ["train", "--total-timesteps", "-1"], ["train", "--method", "snow"],
    ["resume", "nowhere"], ["evaluate", "nowhere"], ["transfer", "nowhere", "--to", "centipede-x"],
):
    code = snowflake.cli.main(argv)
    heavy = {"torch", "stable_baselines3", "torch_geometric", "matplotlib"} & set(sys.modules)
    assert not heavy, (argv, heavy)
    assert code == (0 if "--help" in argv or "--version" in argv else 2), argv
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("snowflake: error: ") == 10
    assert len(done.stderr.splitlines()) == 10
