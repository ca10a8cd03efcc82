"""Runs the checks of the kernels in a process of their own: the interpreter's flag must be set before any import."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed: pip install 'snowflake-rl[gpu]'"
)


def run_checks(name: str, *, interpret: bool) -> None:
    """Run every check of a file, and require that none was left out."""
    environment = {**os.environ, "TRITON_INTERPRET": "1" if interpret else "0"}
    command = [sys.executable, "-m", "pytest", str(FOLDER / name), "-q", "-p", "no:cacheprovider", "-W", "ignore"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"^\d+ passed in", done.stdout, re.MULTILINE), done.stdout[-1000:]


@needs_triton
def test_kernels_in_the_interpreter() -> None:
    run_checks("interpreted_kernels.py", interpret=True)


@needs_triton
def test_kernels_compile_for_hopper() -> None:
    run_checks("compiled_kernels.py", interpret=False)


@needs_triton
def test_kernels_on_a_gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("FP8 needs a GPU of compute capability 8.9")
    run_checks("interpreted_kernels.py", interpret=False)


def test_without_triton_the_backend_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from agents.errors import UserError
    from snowflake.numerics.backends import find_backend

    for name in [name for name in sys.modules if name.startswith("snowflake.numerics.kernels")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)  # an import of it fails
    from snowflake.numerics.backends import base

    monkeypatch.setattr(base, "_FACTORIES", {k: v for k, v in base._FACTORIES.items() if k != "triton"})
    with pytest.raises(UserError, match=r"triton.*choose emulate"):
        find_backend("triton")
