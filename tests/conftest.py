"""Settings that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same examples in every run, without a clock; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# Before torch and NumPy start: the networks here are small, and several threads only get in each other's way.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


@pytest.fixture(autouse=True)
def _stay_in_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Undo what a test does to the working directory and to torch's thread count."""
    import sys

    before = os.getcwd()
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else None
    yield
    os.chdir(before)
    if torch is not None:
        torch.set_num_threads(threads)
