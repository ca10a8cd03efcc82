"""Times the message MLP and one product on a GPU: BF16, `scaled_mm`, and the fused Triton kernels; error beside time.

Usage: ``python benchmarks/fp8_gpu.py [--out FOLDER] [--budget 540]`` on a machine with CUDA. One call, under ten
minutes: what does not fit into the budget is listed as skipped. With ``--dry-run`` it takes the same way on the CPU at
tiny sizes, to show that it runs; its times mean nothing. Needs torch 2.11 or newer (where
`torch.nn.functional.scaled_mm` is missing, `torch._scaled_mm` is used) and Triton. Writes fp8-gpu.json and
fp8-gpu.md into the folder, after every size, so that a run that is cut short leaves what it had.

The MLP has three tanh layers H -> H -> H -> H on M rows in BF16, as NerveNet's messages do. Errors are relative
Frobenius norms against float64 on the first rows. Times are medians over runs timed by CUDA events, with the level-2
cache overwritten between them.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from snowflake.files import dump_json, write_atomic
from snowflake.numerics.backends import find_backend, verdict
from snowflake.numerics.formats import E4M3
from snowflake.numerics.operand import Operand
from snowflake.numerics.scales import amax, pow2_scale

ROWS, WIDTHS, LAYERS = (4_000, 60_000, 1_000_000), (64, 128, 256, 512), 3
DRY_ROWS, DRY_WIDTHS = (5, 40), (16, 32)
ERROR_ROWS, SEED = 2048, 0
EXPONENT = 4  # of the constant scale, for operands of RMS 1: clips beyond 28 standard deviations

Run = Callable[[Tensor], Tensor]


def cast(x: Tensor, scale: Tensor) -> Tensor:
    """Cast to E4M3, saturating, as eager or compiled torch does it: one pass over the data at least."""
    return (x.float() * scale).clamp(-E4M3.max, E4M3.max).to(E4M3.dtype)


def scaled_mm(x: Tensor, w: Tensor, scale_x: Tensor, scale_w: Tensor) -> Tensor:
    """Return x w^T in BF16 of E4M3 matrices (M, K) and (N, K); decode factors are () both, or (M, 1) and (1, N)."""
    if hasattr(F, "scaled_mm"):
        kinds: Any = F.ScalingType  # type: ignore[attr-defined]
        kind = kinds.RowWise if scale_x.dim() else kinds.TensorWise
        arguments = {"output_dtype": torch.bfloat16, "use_fast_accum": True}
        return F.scaled_mm(x, w.t(), scale_x, kind, scale_w, kind, **arguments)  # type: ignore[attr-defined]
    return torch._scaled_mm(
        x, w.t(), scale_a=scale_x, scale_b=scale_w, out_dtype=torch.bfloat16, use_fast_accum=x.is_cuda
    )


def encode_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weight in E4M3 and its decode factor."""
    scale = pow2_scale(amax(weight), E4M3)
    return cast(weight, scale), 1.0 / scale


def mlp_variants(weights: list[Tensor], kernels: Any) -> dict[str, Run]:
    """Return what is to be timed on x (M, H) BF16, by name; weights are quantised beforehand, as they are in rollouts.

    Args:
        weights: (H, H) float32 of every layer.
        kernels: `snowflake.numerics.kernels`, or None.
    """
    half = [w.to(torch.bfloat16) for w in weights]
    coded = [encode_weight(w) for w in weights]
    constant = torch.tensor(2.0**EXPONENT, device=weights[0].device)

    def bf16(x: Tensor) -> Tensor:
        for w in half:
            x = torch.tanh(x @ w.t())
        return x

    def through_scaled_mm(scale_of: Callable[[Tensor], Tensor], to_fp8: Callable[[Tensor, Tensor], Tensor]) -> Run:
        def run(x: Tensor) -> Tensor:
            for w, decode in coded:
                s = scale_of(x)
                by_row = s.dim() > 0
                x = torch.tanh(
                    scaled_mm(to_fp8(x, s), w, 1.0 / s, decode.expand(1, len(w)).contiguous() if by_row else decode)
                )
            return x

        return run

    variants: dict[str, Run] = {
        "bf16": bf16,
        "scaled_mm, amax of the tensor": through_scaled_mm(lambda x: pow2_scale(amax(x), E4M3), cast),
        "scaled_mm, amax of rows": through_scaled_mm(lambda x: pow2_scale(amax(x, "row"), E4M3), cast),
        "scaled_mm, constant": through_scaled_mm(lambda _x: constant, cast),
    }
    if kernels is None:
        return variants
    variants["scaled_mm, constant, Triton cast"] = through_scaled_mm(
        lambda _x: constant, lambda x, s: kernels.cast(x, s, E4M3).data
    )
    packed = kernels.pack(weights, [None] * len(weights), final_tanh=True)
    given = constant.expand(len(weights)).contiguous()
    size = packed.weights.shape[-1]
    for tile in dict.fromkeys((kernels.default_tile(size), kernels.Tile(64, min(size, 64), 8))):
        for kind, scales in (("constant", given), ("rows", None)):
            variants[f"fused, {kind}, tile {'x'.join(map(str, tile))}"] = functools.partial(
                fused, kernels=kernels, packed=packed, scales=scales, tile=tile
            )
    return variants


def fused(x: Tensor, *, kernels: Any, packed: Any, scales: Tensor | None, tile: Any) -> Tensor:
    """Return the MLP by the fused kernel."""
    y: Tensor = kernels.fused_mlp(x, packed, scales, out_dtype=torch.bfloat16, tile=tile)[0]
    return y


def gemm_variants(x: Tensor, weight: Tensor, kernels: Any) -> dict[str, Run]:
    """Return one product x w^T by each way, with x cast beforehand, and the cast by itself."""
    half, one = weight.to(torch.bfloat16), torch.ones((), device=weight.device)
    (w, decode), codes = encode_weight(weight), cast(x, one)
    variants: dict[str, Run] = {
        "product, bf16": lambda x: x @ half.t(),
        "product, scaled_mm": lambda _x: scaled_mm(codes, w, one, decode),
        "cast, torch": lambda x: cast(x, one),
    }
    if kernels is not None:
        variants["product, triton, float32 out"] = lambda _x: kernels.gemm(codes, w, one, decode, fast_accum=True)
        variants["cast with amax, triton"] = lambda x: kernels.cast(x, one, E4M3).data
        variants["cast with amax and transpose, triton"] = lambda x: kernels.cast(x, one, E4M3, transpose=True).data
    return variants


def exact_mlp(x: Tensor, weights: list[Tensor]) -> Tensor:
    """Return the MLP in float64."""
    y = x.double()
    for w in weights:
        y = torch.tanh(y @ w.double().t())
    return y


def relative_error(y: Tensor, want: Tensor) -> float:
    """Return the relative Frobenius norm of the difference."""
    return float((y.double() - want).norm() / want.norm())


def time_ms(run: Callable[[], Any], flush: Tensor, limit_s: float) -> float:
    """Return the median time of a run [ms], of 5 to 50 runs within about `limit_s`; by the GPU's clock on a GPU."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 5 or (len(times) < 50 and time.perf_counter() - start < limit_s):
        flush.zero_()
        if not flush.is_cuda:
            begun = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - begun))
            continue
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def probes(device: torch.device) -> dict[str, Any]:
    """Return what the device does at the edges: saturation of casts, and bits of the accumulator of `scaled_mm`."""
    found: dict[str, Any] = {}
    for name in ("float8_e4m3fn", "float8_e5m2"):
        values = torch.tensor([1e6, torch.inf, -torch.inf, torch.nan], device=device).to(getattr(torch, name)).float()
        found[f"cast of 1e6, inf, -inf, nan to {name}"] = [str(v) for v in values.tolist()]
    a, b = torch.zeros(16, 32, device=device), torch.zeros(16, 32, device=device)
    # 2^8 + 31 * 2^-e: what is too small for the accumulator beside 2^8 is lost.
    bits = {}
    for e in range(0, 16, 2):  # float32 keeps 2^-14 beside 2^8
        a[0], b[0] = 2.0 ** -(e // 2), 2.0 ** -(e - e // 2)
        a[0, 0], b[0, 0] = 16.0, 16.0
        one = torch.ones((), device=device)
        operands = [Operand(t.to(E4M3.dtype), one, E4M3, True) for t in (a, b)]
        kept = {fast: float(find_backend("scaled_mm").product(*operands, fast)[0, 0]) - 256.0 for fast in (True, False)}
        bits[f"31 * 2^-{e}"] = {"wanted": 31.0 * 2.0**-e, "fast": kept[True], "exact": kept[False]}
    found["sum of 256 and"] = bits
    return found


def measure(rows: int, width: int, kernels: Any, deadline: float, flush: Tensor) -> list[dict[str, Any]]:
    """Return a line for every way at one size; one that fails, or has no time left, says so."""
    generator, device = torch.Generator().manual_seed(SEED), flush.device
    weights = [torch.randn(width, width, generator=generator).to(device) * 1.6 * width**-0.5 for _ in range(LAYERS)]
    x = torch.randn(min(rows, 65536), width, generator=generator).to(device, torch.bfloat16)
    x = x.repeat(-(-rows // len(x)), 1)[:rows].contiguous()
    want_mlp = exact_mlp(x[:ERROR_ROWS], weights)
    want_product = x[:ERROR_ROWS].double() @ weights[0].double().t()
    jobs = [(name, run, want_mlp) for name, run in mlp_variants(weights, kernels).items()]
    for name, run in gemm_variants(x, weights[0], kernels).items():
        jobs.append((name, run, want_product if name.startswith("product") else x[:ERROR_ROWS].double()))
    lines = []
    for name, run, want in jobs:
        line: dict[str, Any] = {"rows": rows, "width": width, "name": name}
        lines.append(line)
        if time.monotonic() > deadline:
            line["skipped"] = "no time left"
            continue
        try:
            started = time.perf_counter()
            line["error"] = relative_error(run(x)[:ERROR_ROWS], want)  # compiles, too
            if device.type == "cuda":
                torch.cuda.synchronize()
            line["first_call_s"] = round(time.perf_counter() - started, 3)
            for _ in range(3):
                run(x)
            line["ms"] = time_ms(lambda run=run: run(x), flush, 0.4)
        except Exception as error:  # one way that a device lacks must not cost the others
            line["skipped"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
    return lines


def markdown(result: dict[str, Any]) -> str:
    """Return the lines as one table a width: time by rows, speed relative to BF16, error."""
    text = [
        f"# FP8 on {result['device']}",
        "",
        f"torch {result['torch']}, triton {result['triton']}, CUDA {result['cuda']}",
        "",
    ]
    if result["notes"]:
        text += [*(f"- {note}" for note in result["notes"]), ""]
    for width in sorted({line["width"] for line in result["lines"]}):
        lines = [line for line in result["lines"] if line["width"] == width]
        sizes = sorted({line["rows"] for line in lines})
        text += [f"## H = {width}", "", "| | " + " | ".join(f"M = {m}: ms (times BF16)" for m in sizes) + " | error |"]
        text.append("|---" * (len(sizes) + 2) + "|")
        for name in dict.fromkeys(line["name"] for line in lines):
            cells, error = [], ""
            for m in sizes:
                base_name = "product, bf16" if name.startswith(("product", "cast")) else "bf16"
                by_name = {line["name"]: line for line in lines if line["rows"] == m}
                ms, base = by_name.get(name, {}).get("ms"), by_name.get(base_name, {}).get("ms")
                cells.append(
                    f"{ms:.4f} ({base / ms:.2f})"
                    if ms and base
                    else f"{ms:.4f}"
                    if ms
                    else by_name[name].get("skipped", "")
                )
                error = f"{by_name[name]['error']:.2e}" if "error" in by_name.get(name, {}) else error
            text.append(f"| {name} | " + " | ".join(cells) + f" | {error} |")
        text.append("")
    return "\n".join(text)


def load_kernels(device: torch.device) -> tuple[Any, str]:
    """Return the kernels, or None and why not."""
    try:
        from snowflake.numerics import kernels
    except ImportError as error:
        return None, f"no Triton kernels: {error}"
    found = verdict(find_backend("triton"), device)
    return (kernels, "") if found.works else (None, f"no Triton kernels: {found.reason}")


def run_all(out: Path, budget_s: float, device: torch.device) -> None:
    """Measure every size within the budget and write what was found after each; tiny ones on the CPU."""
    start, cuda = time.monotonic(), device.type == "cuda"
    kernels, note = load_kernels(device)
    product = verdict(find_backend("scaled_mm"), device)
    notes = [note] if note else []
    if not cuda:
        notes.insert(0, "dry run on the CPU: sizes are tiny, and times mean nothing")
    if not product.works:
        notes.append(f"scaled_mm: {product.reason}")
    result: dict[str, Any] = {
        "format": 1, "device": torch.cuda.get_device_name() if cuda else "the CPU",
        "capability": list(torch.cuda.get_device_capability()) if cuda else None,
        "torch": torch.__version__, "cuda": torch.version.cuda, "notes": notes, "lines": [],
        "triton": getattr(sys.modules.get("triton"), "__version__", None), "probes": {},
    }  # fmt: skip
    try:
        result["probes"] = probes(device)
    except Exception as error:  # the timings do not depend on it
        notes.append(f"probes: {error}")
    flush = torch.empty(256 * 2**20 if cuda else 2**10, dtype=torch.uint8, device=device)
    for width in WIDTHS if cuda else DRY_WIDTHS:
        for rows in ROWS if cuda else DRY_ROWS:
            with torch.no_grad():
                result["lines"] += measure(rows, width, kernels, start + budget_s, flush)
            result["seconds"] = round(time.monotonic() - start, 1)
            write_atomic(out / "fp8-gpu.json", dump_json(result))
            write_atomic(out / "fp8-gpu.md", markdown(result) + "\n")
            print(f"H = {width}, M = {rows}: {result['seconds']} s", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Check for CUDA, run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the two files")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds after which nothing new is started")
    parser.add_argument("--dry-run", action="store_true", help="take the same way on the CPU, at tiny sizes")
    args = parser.parse_args(argv)
    if not args.dry_run and not torch.cuda.is_available():
        print(
            "error: fp8_gpu.py needs a CUDA device and this torch sees none: run it on a machine with a GPU",
            file=sys.stderr,
        )
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    run_all(args.out, args.budget, torch.device("cpu" if args.dry_run else "cuda"))
    print(f"wrote {args.out / 'fp8-gpu.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
