"""The wheel: complete, and usable far from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agents", "envs", "snowflake")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the wheel and unpack it as an installer would; returns the wheel and the folder of packages."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel: pip install hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([*pip, *build], check=True, timeout=300)
    (wheel,) = folder.glob("snowflake_rl-*.whl")
    target = folder / "site"
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)], check=True, timeout=300
    )
    return wheel, target


def run_far_away(target: Path, empty: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the unpacked wheel, in an empty folder; an editable install of the checkout comes later."""
    environment = os.environ | {"PYTHONPATH": str(target)}
    return subprocess.run(
        [sys.executable, *command], cwd=empty, env=environment, capture_output=True, text=True, timeout=120
    )


def test_wheel_holds_the_packages_and_configs_and_nothing_else(installed: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(installed[0]) as wheel:
        names = wheel.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    sources = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    configs = {f"snowflake/{path.relative_to(ROOT)}" for path in (ROOT / "configs").rglob("*.yaml")}
    packed = {name for name in names if name.split("/")[0] in PACKAGES}
    assert packed == sources | configs
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "py3-none-any" in installed[0].name


def test_wheel_works_in_an_empty_folder(installed: tuple[Path, Path], tmp_path: Path) -> None:
    _, target = installed
    script = (
        "import agents, envs, gymnasium, snowflake\n"
        "from snowflake.config import files, loader\n"
        "print(agents.__file__, envs.__file__, snowflake.__file__, files.config_root())\n"
        "print(files.shipped_names(), files.method_names(), loader.resolve('official', ['demo']).method)\n"
        "for name in agents.names(): agents.load(name).compile()\n"
        "env = gymnasium.make('Snowflake/Centipede-6-v0')\n"
        "env.reset(seed=0); env.step(env.action_space.sample()); env.close()\n"
    )
    done = run_far_away(target, tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
    places, configs = done.stdout.splitlines()
    assert all(place.startswith(str(target)) for place in places.split())
    for name in ("demo", "centipede-6", "snowflake", "nervenet", "mlp", "official"):
        assert f"'{name}'" in configs
    assert list(tmp_path.iterdir()) == []


def test_command_of_the_wheel_works_in_an_empty_folder_and_in_the_checkout(
    installed: tuple[Path, Path], tmp_path: Path
) -> None:
    _, target = installed
    here = run_far_away(target, tmp_path, "-m", "snowflake.cli", "agents")
    assert (here.returncode, here.stderr) == (0, "")
    assert "centipede-20" in here.stdout
    assert list(tmp_path.iterdir()) == []
    at_root = run_far_away(target, ROOT, "-m", "snowflake.cli", "agents")
    assert at_root.stdout == here.stdout
