"""A file that takes MuJoCo down leaves one line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agents.errors import UserError
from snowflake.inspection import worker


@pytest.mark.parametrize(
    ("code", "stderr", "words"),
    [
        (-11, "", r"it.xml: MuJoCo crashed \(SIGSEGV\) on this file$"),
        (-6, "noise\nassert failed\n", r"crashed \(SIGABRT\) on this file: assert failed$"),
        (1, "ERROR: out of memory\n", r"gave up \(exit code 1\) on this file: ERROR: out of memory$"),
    ],
)
def test_the_death_of_the_process_is_one_line(
    code: int, stderr: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = subprocess.CompletedProcess([], code, "", stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: died)
    with pytest.raises(UserError, match=words):
        worker.inspect_apart("it.xml")


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = "Traceback (most recent call last):\n  File ...\nIndexError: 7\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", fault))
    with pytest.raises(RuntimeError, match="IndexError: 7"):
        worker.inspect_apart("it.xml")


def test_a_real_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match="SIGKILL"):
        worker.inspect_apart("ant")


def test_a_mistake_is_told_and_a_long_wait_given_up() -> None:
    with pytest.raises(UserError, match="unknown body 'antt': did you mean 'ant'"):
        worker.inspect_apart("antt")
    with pytest.raises(UserError, match=r"ant: no report after 0.01 s"):
        worker.inspect_apart("ant", timeout=0.01)
