"""Compiles the C++ sources of this folder, once per machine, compiler and version of the sources."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
TIMEOUT = 240.0
"""Seconds after which a compiler is given up: it takes under ten, but other programs may run beside it."""


@dataclass(frozen=True)
class Built:
    """A compiled library.

    Attributes:
        file: where it is.
        seconds: how long it took; 0 if it was there already.
    """

    file: Path
    seconds: float


def compiler() -> str | None:
    """Return the C++ compiler: ``$CXX``, or the first of the usual names that is there; None without any."""
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else ("g++", "clang++", "c++"):
        found = shutil.which(name)
        if found:
            return found
    return None


def cache_folder() -> Path:
    """Return the folder of compiled libraries: ``snowflake-rl`` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snowflake-rl"


def build(folder: Path | None = None) -> Built | str:
    """Compile, unless it is done already; or say in half a sentence why it cannot be done.

    Processes that come together compile one each, and the last to finish leaves its library: no lock can be left over.

    Args:
        folder: of libraries; `cache_folder` if not given.
    """
    command = compiler()
    if command is None:
        return f"there is no C++ compiler ({os.environ.get('CXX', 'g++')})"
    try:
        folder = folder or cache_folder()
        file = folder / f"native-{_key(command)}.so"
        if file.is_file():
            return Built(file, 0.0)
        start = time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="native-", dir=folder) as place:
            made = Path(place) / file.name
            line = [command, *FLAGS, str(FOLDER / "library.cpp"), "-o", str(made)]
            done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL)
            if done.returncode:
                reason = next((text for text in done.stderr.splitlines() if "error" in text), done.stderr[:160])
                return f"{command} cannot compile it: {' '.join(reason.split())[:160]}"
            made.replace(file)
    except subprocess.TimeoutExpired:
        return f"{command} did not finish within {TIMEOUT:.0f} s"
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        return f"the compiled library cannot be kept: {error}"
    return Built(file, time.perf_counter() - start)


def _key(command: str) -> str:
    """Return what a library depends on, as a short hexadecimal number."""
    version = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=TIMEOUT)
    parts = [command, version.stdout, *FLAGS, sys.platform, platform.machine(), _cpu()]
    sources = sorted(path for path in FOLDER.iterdir() if path.suffix in (".h", ".cpp"))
    parts += [text for path in sources for text in (path.name, path.read_text(encoding="utf-8"))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _cpu() -> str:
    """Return model and instructions of the CPU, which ``-march=native`` compiles for."""
    listing = Path("/proc/cpuinfo")
    if not listing.exists():
        return platform.processor()
    lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(wanted)))
