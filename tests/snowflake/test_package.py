"""The package itself: its version, its import guard, its light start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import snowflake

ROOT = Path(snowflake.__file__).resolve().parent.parent


def run_in(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter that finds ``folder`` first, then this checkout."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ["agents", "envs"])
def test_another_package_of_that_name_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    done = run_in(tmp_path, "import snowflake")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: snowflake needs its own package '{name}' in {ROOT}, but {tmp_path}")


def test_a_module_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "envs.py").write_text("")
    done = run_in(tmp_path, "import snowflake")
    assert f"but {tmp_path / 'envs.py'} comes first" in done.stderr


def test_an_intruder_that_was_imported_before_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("")
    script = "import agents, sys; sys.path.pop(0); import snowflake"
    assert "ImportError: snowflake needs its own package 'agents'" in run_in(tmp_path, script).stderr


def test_a_plain_folder_of_that_name_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "envs").mkdir()
    done = run_in(tmp_path, "import snowflake, agents; print(agents.__file__)")
    assert done.stdout.strip() == str(ROOT / "agents" / "__init__.py"), done.stderr


def test_import_is_light(tmp_path: Path) -> None:
    done = run_in(tmp_path, "import sys, snowflake; print({'torch', 'mujoco', 'numpy'} & set(sys.modules))")
    assert done.stdout.strip() == "set()", done.stderr


def test_version_is_a_version() -> None:
    assert [part.isdigit() for part in snowflake.__version__.split(".")] == [True] * 3
