"""The report, made in a process of its own: a file that takes MuJoCo down leaves one line, not a dead terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from agents.errors import UserError
from snowflake.files import dump_json

TIMEOUT = 300.0
"""Seconds after which a report is given up."""

_REFUSED = 2


def inspect_apart(name: str, **arguments: Any) -> dict[str, Any]:
    """Call `snowflake.inspection.report.inspect` in a process of its own.

    Args:
        name: path of a model, or name of a ready-made body.
        **arguments: of `inspect`; JSON-able.

    Raises:
        UserError: raised there, or the process died or took too long.
        RuntimeError: anything else was raised there; holds the traceback.
    """
    timeout = float(arguments.pop("timeout", TIMEOUT))
    with tempfile.TemporaryDirectory(prefix="snowflake-") as folder:
        answer = Path(folder) / "answer.json"
        request = dump_json({"name": name, "answer": str(answer), **arguments})
        search = os.pathsep.join(path for path in sys.path if path)
        environment = os.environ | {"PYTHONPATH": search, "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", folder)}
        command = [sys.executable, "-P", "-m", "snowflake.inspection.worker"]
        try:
            done = subprocess.run(command, input=request, env=environment, capture_output=True, text=True,
                                  timeout=timeout, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            raise UserError(f"{name}: no report after {timeout:g} s, given up") from None
        if answer.exists():
            return _read(answer, name)
    if "Traceback (most recent call last)" in done.stderr and "mujoco.FatalError" not in done.stderr:
        raise RuntimeError(f"{name}: the report failed\n{done.stderr}")  # a fault of ours keeps its traceback
    raise UserError(f"{name}: MuJoCo {_death(done.returncode)} on this file{_last_line(done.stderr)}")


def _read(answer: Path, name: str) -> dict[str, Any]:
    found = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in found:
        raise UserError(found["error"])
    return found


def _death(code: int) -> str:
    if code < 0:
        try:
            return f"crashed ({signal.Signals(-code).name})"
        except ValueError:
            return f"crashed (signal {-code})"
    return f"gave up (exit code {code})"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""


def main() -> int:
    """Read a request from standard input, and write the report, or the user's error, to the file that it names."""
    request = json.load(sys.stdin)
    answer = Path(request.pop("answer"))
    if request.get("output"):
        request["output"] = Path(request["output"])
    from snowflake.inspection.report import inspect

    code = 0
    try:
        found = inspect(request.pop("name"), **request)
    except UserError as error:
        found, code = {"error": str(error)}, _REFUSED
    unfinished = answer.with_suffix(".tmp")
    unfinished.write_text(dump_json(found), encoding="utf-8")
    unfinished.rename(answer)
    return code


if __name__ == "__main__":
    sys.exit(main())
