"""Networks compiled for training: the choice, and that it changes no number."""

from __future__ import annotations

import pytest
import torch

from agents.errors import UserError
from snowflake import compilation
from snowflake.compilation import missing_compiler, resolve
from snowflake.ppo.train import build, train
from snowflake.ppo.update import PPOUpdate
from tests.snowflake.ppo.helpers import tiny_config
from tests.snowflake.ppo.test_update import SETTINGS, filled_buffer


def test_auto_compiles_for_cuda_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(compilation, "missing_compiler", lambda device: None)
    assert [resolve(mode, "cpu") for mode in ("auto", "off", "on")] == ["off", "off", "on"]
    assert [resolve(mode, "cuda:1") for mode in ("auto", "off", "on")] == ["on", "off", "on"]
    monkeypatch.setattr(compilation, "missing_compiler", lambda device: "Triton is not installed")
    assert resolve("auto", "cuda") == "off"
    assert "Triton is not installed" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"compile = 'on': Triton is not installed; .*--compile off"):
        resolve("on", "cuda")


def test_a_run_keeps_what_was_chosen(tmp_path) -> None:
    run = train(tiny_config("mlp", total_timesteps=64), tmp_path / "run", progress=False)
    assert run.config.compile == "off"
    assert "compile: 'off'" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.slow
@pytest.mark.skipif(missing_compiler("cpu") is not None, reason="no C++ compiler")
@pytest.mark.parametrize("agents", [("centipede-4",), ("centipede-4", "centipede-6")])
def test_a_compiled_update_is_the_same(agents: tuple[str, ...]) -> None:
    found = []
    for mode in ("off", "on"):
        small = {"hidden_size": 8, "propagation_steps": 2}
        algorithm = build(tiny_config("snowflake", agents, compile=mode, policy=small))
        buffer = filled_buffer(algorithm)
        statistics = PPOUpdate(algorithm.policy, SETTINGS, torch.Generator().manual_seed(0)).run(buffer)
        found.append(([p.detach().clone() for p in algorithm.policy.parameters()], statistics))
        assert (algorithm.policy.calls.compile_seconds() > 1.0) == (mode == "on")
    (plain, one), (compiled, other) = found
    for name, value in one.items():
        assert other[name] == pytest.approx(value, rel=5e-3, abs=1e-4), name
    for a, b in zip(plain, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
