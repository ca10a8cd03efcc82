"""The command ``snowflake``: a table of commands, each one file that parses and calls.

Nothing here imports torch: ``--help`` and input errors answer at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

# Importing MuJoCo loads the OpenGL that MUJOCO_GL names, and dies where that does not work or is no name. Of the
# commands only those that draw need it, and they load it themselves: snowflake.rendering reads what was wanted here.
if "mujoco" not in sys.modules and os.environ.get("MUJOCO_GL", "").lower().strip() not in (
    *("", "glfw", "on", "enable", "enabled", "true", "1"),
    *("off", "disable", "disabled", "false", "0"),
):
    os.environ["SNOWFLAKE_GL"] = os.environ["MUJOCO_GL"]
    os.environ["MUJOCO_GL"] = "disable"

from agents.errors import UserError, nearest
from snowflake import __version__


@dataclass(frozen=True)
class Command:
    """One command: where its function is, and one line of help."""

    target: str
    """``"module:function"``; the function takes the remaining arguments and returns the exit code."""
    summary: str


COMMANDS: dict[str, Command] = {
    "train": Command("snowflake.cli.train:main", "train a policy on one or several bodies"),
    "resume": Command("snowflake.cli.resume:main", "continue a run from its last checkpoint"),
    "sweep": Command("snowflake.cli.sweep:main", "train and measure every cell of a study"),
    "finetune": Command("snowflake.cli.finetune:main", "go on training a policy on other bodies"),
    "evaluate": Command("snowflake.cli.evaluate:main", "measure a trained policy on its own bodies"),
    "transfer": Command("snowflake.cli.transfer:main", "measure a trained policy on bodies that it never saw"),
    "report": Command("snowflake.cli.report:main", "compare studies and runs: one page with figures and tables"),
    "numerics": Command("snowflake.cli.numerics:main", "draw scales and formats of a run in low precision"),
    "inspect": Command("snowflake.cli.inspect:main", "report on a model: its graph, what drives what, what is odd"),
    "video": Command("snowflake.cli.video:main", "film a trained policy, without a display"),
    "play": Command("snowflake.cli.play:main", "watch a trained policy in MuJoCo's viewer"),
    "bench": Command("snowflake.cli.bench:main", "measure training on this machine and recommend settings"),
    "probe": Command("snowflake.cli.probe:main", "find the largest stable learning rate of attention variants"),
    "agents": Command("snowflake.cli.agents:main", "list the ready-made bodies"),
}
"""Every command by name, in the order of the help text."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command in this process.

    Args:
        argv: Arguments after the program's name; ``None`` takes ``sys.argv``.

    Returns:
        Exit code: 0, 2 for a mistake of the user (one line on stderr), 4 for numbers in training that are not finite
        (one line too), 130 after Ctrl-C, 141 for a closed pipe.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings():
            # Stable-Baselines3 has four lines for it, of code; `snowflake.cli.train.batch_note` has one.
            warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
            code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _refuse(str(error), error.exit_code)
    except KeyboardInterrupt as stop:
        if not stop.args:  # one with words was told already, with how to go on
            print("snowflake: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _silence_stdout()
        return 141
    except OSError as error:  # what no command foresaw of files and disks
        place = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{place}{error.strerror or error}: check the path, its permissions and the disk")
    except MemoryError as error:
        return _refuse(f"out of memory ({error or 'no more to be had'}): ask for less, for example a lower --n-envs")
    except SystemExit as stop:  # tyro's --help, or a library's own exit
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def entry() -> None:
    """Entry point of the console script."""
    sys.exit(main())


def help_text() -> str:
    """Return the text of ``snowflake --help``."""
    rows = [f"  {name:<10} {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: snowflake COMMAND [OPTIONS]",
            "",
            "One policy for any body: train on one morphology, transfer to others.",
            "",
            "commands:",
            *rows,
            "",
            "options:",
            "  -h, --help  show this text; 'snowflake COMMAND --help' shows a command's options and their defaults",
            "  --version   show the version",
        ]
    )


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        raise UserError(f"name a command: {', '.join(COMMANDS)} (snowflake --help tells more)")
    name, *rest = arguments
    if name in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if name == "--version":
        print(f"snowflake-rl {__version__}")
        return 0
    if name not in COMMANDS:
        raise UserError(f"{name!r} is not a command: {nearest(name, tuple(COMMANDS))}")
    module, _, function = COMMANDS[name].target.partition(":")
    command: Callable[[list[str]], int | None] = getattr(import_module(module), function)
    return command(rest) or 0


def _refuse(text: str, code: int = 2) -> int:
    """Say in one line what the user can mend; returns the exit code."""
    message = " ".join(text.splitlines())
    print(f"snowflake: error: {message if len(message) <= 1000 else message[:1000] + ' ...'}", file=sys.stderr)
    return code


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush into the closed pipe stays quiet."""
    with contextlib.suppress(OSError, ValueError):  # a replaced stdout, as under pytest, has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
