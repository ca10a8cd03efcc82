"""Runs that are killed end like runs that are not: a short form of benchmarks/kill_test.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "kill_test.py"


@pytest.mark.slow
def test_three_kills_change_nothing(tmp_path) -> None:
    command = [sys.executable, str(PROGRAM), "--kills", "3", "--cases", "mlp"]
    done = subprocess.run(command, cwd=PROGRAM.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kills in" in done.stdout
    assert "all ends equal the undisturbed runs'" in done.stdout
