"""The examples of CONTRIBUTING.md are put into a copy of the package, and work without an edit elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# A file of an example: its path in the last line of prose before the block.
_EXAMPLE = re.compile(r"`([\w./-]+)`[^`]*:\n\n```(?:python|yaml)\n(.*?)```", re.DOTALL)


def examples() -> dict[str, str]:
    """Return the files that CONTRIBUTING.md shows, by path."""
    return dict(_EXAMPLE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the three packages and the configs, and add the examples."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("agents", "envs", "snowflake", "configs"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in examples().items():
        assert not (root / name).exists(), f"{name} is not new"
        (root / name).write_text(text, encoding="utf-8")
    return root


def python(root: Path, *arguments: str) -> str:
    """Run Python in the copy, so that its packages come first; returns what it printed."""
    environment = os.environ | {"PYTHONPATH": str(root)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_examples_are_found() -> None:
    assert list(examples()) == [
        "agents/snake.py",
        "envs/tasks/advance.py",
        "snowflake/networks/deep_sets.py",
        "configs/methods/deep-sets.yaml",
    ]


def test_examples_keep_the_style_of_the_house(copy: Path) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed: pip install ruff")
    files = [name for name in examples() if name.endswith(".py")]
    settings = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff, *command, *settings, *files], cwd=copy, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout


def test_the_new_body_is_listed_and_has_a_graph(copy: Path) -> None:
    rows = [line.split() for line in python(copy, "-m", "snowflake.cli", "agents").splitlines()]
    # A root and 3 hinges. Root: height, 6 of its rotation, 6 velocities; hinges: sine, cosine, velocity each; 4 links
    # of 6 contact columns: 13 + 9 + 24. 3 motors.
    assert ["snake-4", "4", "6", "46", "3", "advance"] in rows


def test_the_new_body_trains_on_the_new_task_with_the_new_network_by_the_new_method(copy: Path) -> None:
    argv = ["train", "--agents", "snake-4", "--method", "deep-sets", "--run", "runs/snake", "--n-envs", "2"]
    argv += ["--n-steps", "16", "--total-timesteps", "64", "--batch-size", "16", "--n-epochs", "1", "--eval-freq", "0"]
    python(copy, "-m", "snowflake.cli", *argv)
    script = (
        "import envs, snowflake\n"
        "env = envs.make_vector_env(['snake-4'], 3)\n"
        "obs, _ = env.reset(seed=0)\n"
        "policy = snowflake.load('runs/snake')\n"
        "actions, _ = policy.predict(obs)\n"
        "_, rewards, *_ = env.step(actions)\n"
        "print(type(policy.actor).__name__, obs.shape, actions.shape, rewards.shape)\n"
    )
    assert python(copy, "-c", script).strip() == "DeepSetsActor (3, 46) (3, 3) (3,)"
