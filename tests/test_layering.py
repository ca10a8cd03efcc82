"""The shape of the code base: who imports whom, how long things are, what is declared."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agents", "envs", "snowflake")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60

# Inside snowflake, a noun imports nouns of a lower number only. A new noun takes its place here.
ORDER = {
    "config": 0, "files": 0, "locks": 0, "rendering": 0, "json_files": 1, "graph": 1, "manifest": 2, "numerics": 1,
    "precision": 3, "body_files": 2, "networks": 2, "freezing": 2, "checkpoints": 3, "compilation": 3, "prepared": 3,
    "remembering": 4, "policy": 5, "run": 6, "evaluation": 7, "inspection": 7, "ppo": 8, "report": 8,
    "numerics_report": 8, "sweep": 9, "bench": 9, "probe": 10, "cli": 11,
}  # fmt: skip
# The bodies and the tasks stay light, so that other tools can use them without a learning library.
LIGHT = {"agents": {"agents", "mujoco", "numpy"}, "envs": {"agents", "envs", "gymnasium", "mujoco", "numpy"}}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def noun(path: Path) -> str:
    """Return the part of snowflake that a file belongs to; ``__init__`` for the package's own."""
    return path.relative_to(ROOT / "snowflake").parts[0].removesuffix(".py")


def test_agents_and_envs_import_only_what_is_light() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for package, allowed in LIGHT.items()
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, name in imports(path)
        if name.split(".")[0] not in allowed | sys.stdlib_module_names
    ]
    assert wrong == []


def test_snowflake_imports_one_way() -> None:
    wrong = []
    for path in sorted((ROOT / "snowflake").rglob("*.py")):
        if noun(path) == "__init__":
            continue
        assert noun(path) in ORDER, f"{noun(path)} has no place in the order of imports"
        for line, name in imports(path):
            parts = name.split(".")
            if parts[0] != "snowflake" or name == "snowflake" or parts[1] in ("__version__", noun(path)):
                continue
            if ORDER[parts[1]] >= ORDER[noun(path)]:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {noun(path)} imports {name}")
    assert wrong == []


def test_bodies_and_tasks_do_not_load_torch() -> None:
    script = (
        "import sys, agents, envs; [agents.load(name).compile() for name in agents.names()[:3]]; "
        "print(sorted({'torch', 'stable_baselines3', 'snowflake'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_no_file_is_too_long() -> None:
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function, its signature and docstring not counted."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_function_is_too_long() -> None:
    long = {}
    for path in [*SOURCES, *sorted((ROOT / "benchmarks").rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and body_lines(node) > MAX_FUNCTION_LINES:
                long[f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"] = body_lines(node)
    assert long == {}


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    declared = {normal(re.match(r"[\w.-]+", requirement).group()) for requirement in named}  # type: ignore[union-attr]
    owners = metadata.packages_distributions()
    missing = {
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in SOURCES
        for line, name in imports(path)
        if (top := name.split(".")[0]) not in {*PACKAGES, *sys.stdlib_module_names}
        and not declared & {normal(owner) for owner in owners.get(top, [top])}
    }
    assert missing == set()


def test_constraints_pin_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {normal(re.match(r"[\w.-]+", r).group()) for r in project["dependencies"]}  # type: ignore[union-attr]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert named - set(pins) == set()
    assert pins["torch"] == "2.13.0"


def normal(name: str) -> str:
    """Return the normal form of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_agents_and_envs_belong_to_no_other_distribution() -> None:
    owners = metadata.packages_distributions()
    for package in PACKAGES:
        assert set(owners.get(package, [])) <= {"snowflake-rl"}, f"{package} is overwritten by another distribution"


# Written in two parts each, so that this file passes its own test.
PRIVATE_WORDS = ["/wor" + "k/", "/tmp/" + "studio", "work" + "place", "shared/" + "specs", "shared/" + "DESIGN"]
PRIVATE_WORDS += ["CONTRACT" + ".md", "spec " + "section", "farm" + "-"]
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".xml", ".json", ".csv", ""}
TEXT_FILES = sorted(
    path
    for pattern in (
        "*",
        ".ci/*",
        *(f"{folder}/**/*" for folder in (*PACKAGES, "configs", "docs", "tests", "benchmarks")),
    )
    for path in ROOT.glob(pattern)
    if path.is_file()
    and path.suffix in TEXT_SUFFIXES
    and path.name not in (".git", ".coverage")
    and "__pycache__" not in path.parts
)


def test_no_file_speaks_of_the_place_where_it_was_written() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in TEXT_FILES
        for word in PRIVATE_WORDS
        if word in path.read_text(encoding="utf-8")
    ]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed_and_has_a_docstring(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    without = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.is_relative_to(ROOT / package) and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert without == []


def test_json_is_written_strictly() -> None:
    """NaN and Infinity are no JSON: `snowflake.files.dump_json` writes null, any other way must refuse them."""
    loose = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "snowflake").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.dumps", "json.dump")
        if not any(word.arg == "allow_nan" and ast.unparse(word.value) == "False" for word in node.keywords)
    ]
    assert loose == []
