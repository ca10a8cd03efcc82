"""Compiling the library: where there is no compiler, where it fails, and when several processes come at once."""

from __future__ import annotations

import ctypes
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agents.errors import UserError
from snowflake.config.policy import PolicyConfig
from snowflake.networks.native import build as module
from snowflake.networks.native import library as owner
from snowflake.networks.native.build import Built, build, compiler
from snowflake.ppo.train import build as build_training
from tests.snowflake.ppo.helpers import tiny_config

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


def script(folder: Path, text: str) -> str:
    """Write a program that stands in for a compiler."""
    file = folder / "fake"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile quickly: what is made does not matter."""
    monkeypatch.setattr(module, "FLAGS", ("-O0", "-std=c++17", "-shared", "-fPIC"))


def test_without_a_compiler(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build(tmp_path) == "there is no C++ compiler (no-such-compiler)"
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_fails_is_named_and_leaves_nothing(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, 'echo "x.cpp:1: error: no vectors" >&2; exit 1'))
    reason = build(tmp_path / "cache")
    assert isinstance(reason, str)
    assert reason.endswith("cannot compile it: x.cpp:1: error: no vectors")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_compiler_that_hangs_is_given_up(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, '[ "$1" = --version ] || exec sleep 60'))
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    assert "did not finish" in str(build(tmp_path / "cache"))


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", script(tmp_path, "exit 0"))
    (tmp_path / "cache").write_text("a file, no folder")
    assert "cannot be kept" in str(build(tmp_path / "cache"))


@needs_compiler
def test_several_at_once_leave_one_library(monkeypatch, tmp_path: Path) -> None:
    small(monkeypatch)
    abandoned = tmp_path / "native-left-over"  # of a process that was killed while it compiled
    abandoned.mkdir()
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: build(tmp_path), range(3)))
    assert all(isinstance(one, Built) and one.seconds > 0 for one in made), made
    (file,) = {one.file for one in made if isinstance(one, Built)}
    assert sorted(tmp_path.iterdir()) == sorted([abandoned, file])
    assert ctypes.CDLL(str(file)).multiplies_bfloat() in (0, 1)
    assert build(tmp_path) == Built(file, 0.0)


@needs_compiler
def test_other_sources_and_flags_are_another_library(monkeypatch) -> None:
    command = str(compiler())
    key = module._key(command)
    monkeypatch.setattr(module, "FLAGS", (*module.FLAGS, "-g"))
    assert module._key(command) != key
    assert os.path.basename(module.cache_folder()) == "snowflake-rl"


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "library", lambda: "there is no C++ compiler (g++)")


def test_compiled_without_a_compiler_is_refused(no_library: None) -> None:
    with pytest.raises(UserError, match=r"kernels = 'compiled': there is no C\+\+ compiler.*--kernels auto"):
        build_training(tiny_config("snowflake", policy={"kernels": "compiled"}))


def test_auto_says_what_it_chose_and_why(no_library: None) -> None:
    words = owner.choice(PolicyConfig())
    assert words.startswith("kernels: fused, hand-written in PyTorch, since there is no C++ compiler (g++)")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "kernels: compiled"),
        ({"hidden_size": 512}, "kernels: fused, hand-written in PyTorch, since hidden_size is above 256"),
        ({"aggregation": "max"}, "but the rounds of messages are autograd's, since aggregation max"),
        ({"gru": "reset_after"}, "autograd's, since gru reset_after"),
        ({"message_layer": "GATConv"}, "autograd's, since GATConv"),
        ({"kernels": "fused"}, "kernels: fused"),
        ({"kernels": "reference"}, "kernels: reference"),
    ],
)
def test_what_is_said_with_a_library(config: dict, words: str, monkeypatch) -> None:
    class Found:
        seconds = 0.0

    monkeypatch.setattr(owner, "library", Found)
    assert words in owner.choice(PolicyConfig(**config))
