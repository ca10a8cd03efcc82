"""The GPU benchmark as far as a CPU goes: what it times computes the MLP, it refuses without CUDA, its table reads."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "benchmarks" / "fp8_gpu.py"


@pytest.fixture(scope="module")
def fp8_gpu() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fp8_gpu", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which would be measured")
def test_it_refuses_without_cuda_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(tmp_path / "x")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "CUDA" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("public", [True, False], ids=["scaled_mm", "_scaled_mm"])
def test_what_it_times_is_the_mlp(fp8_gpu: ModuleType, public: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not public:
        monkeypatch.delattr(torch.nn.functional, "scaled_mm", raising=False)
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(32, 32, generator=generator) * 1.6 * 32**-0.5 for _ in range(3)]
    x = torch.randn(64, 32, generator=generator).to(torch.bfloat16)
    want = fp8_gpu.exact_mlp(x, weights)
    errors = {name: fp8_gpu.relative_error(run(x), want) for name, run in fp8_gpu.mlp_variants(weights, None).items()}
    assert errors.pop("bf16") < 0.02
    assert len(errors) == 3
    assert all(0.02 < error < 0.12 for error in errors.values()), errors
    product = x.double() @ weights[0].double().t()
    ways = fp8_gpu.gemm_variants(x, weights[0], None)
    assert fp8_gpu.relative_error(ways["product, scaled_mm"](x), product) == pytest.approx(2**0.5 * 0.02654, rel=0.1)


@pytest.mark.parametrize("public", [True, False], ids=["scaled_mm", "_scaled_mm"])
def test_a_dry_run_takes_the_whole_way(
    fp8_gpu: ModuleType, public: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything but the device's clock: sizes, ways, probes, errors, both files; with torch 2.11's product too."""
    if not public:
        monkeypatch.delattr(torch.nn.functional, "scaled_mm", raising=False)
    monkeypatch.setattr(fp8_gpu, "load_kernels", lambda device: (None, "no Triton kernels here"))
    assert fp8_gpu.main(["--dry-run", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "fp8-gpu.json").read_text())
    names = {line["name"] for line in result["lines"]}
    sizes = {(line["rows"], line["width"]) for line in result["lines"]}
    assert sizes == {(m, h) for m in fp8_gpu.DRY_ROWS for h in fp8_gpu.DRY_WIDTHS}
    assert len(result["lines"]) == len(sizes) * len(names)
    assert names >= {"bf16", "scaled_mm, amax of rows", "scaled_mm, constant", "product, scaled_mm", "cast, torch"}
    assert [line for line in result["lines"] if "skipped" in line] == []
    assert all(line["ms"] > 0 and 0 < line["error"] < 0.15 for line in result["lines"])
    kept = result["probes"]["sum of 256 and"]["31 * 2^-14"]
    assert kept["exact"] == kept["wanted"], "float32 sums keep 2^-14 beside 2^8"
    assert result["notes"][0].startswith("dry run")
    text = (tmp_path / "fp8-gpu.md").read_text()
    assert "dry run on the CPU" in text
    assert text.count("## H = ") == 2


def test_what_does_not_fit_into_the_budget_is_listed(fp8_gpu: ModuleType, tmp_path: Path) -> None:
    assert fp8_gpu.main(["--dry-run", "--budget", "0", "--out", str(tmp_path)]) == 0
    lines = json.loads((tmp_path / "fp8-gpu.json").read_text())["lines"]
    assert {line["skipped"] for line in lines} == {"no time left"}


def test_the_table_shows_what_was_skipped(fp8_gpu: ModuleType) -> None:
    lines = [
        {"rows": 4000, "width": 64, "name": "bf16", "ms": 0.02, "error": 0.004},
        {"rows": 4000, "width": 64, "name": "fused, rows", "ms": 0.01, "error": 0.05},
        {"rows": 60000, "width": 64, "name": "bf16", "skipped": "no time left"},
        {"rows": 60000, "width": 64, "name": "fused, rows", "skipped": "no time left"},
    ]
    text = fp8_gpu.markdown(
        {"device": "D", "torch": "2", "triton": "3", "cuda": "12", "notes": ["a note"], "lines": lines}
    )
    assert "| bf16 | 0.0200 (1.00) | no time left | 4.00e-03 |" in text
    assert "| fused, rows | 0.0100 (2.00) | no time left | 5.00e-02 |" in text
    assert "- a note" in text
