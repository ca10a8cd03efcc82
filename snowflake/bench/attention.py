"""``snowflake bench attention``: what SparQ attention saves, costs and changes."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from agents.errors import UserError
from snowflake.bench.attention_cost import measure_cost
from snowflake.bench.attention_fidelity import check_window, closed_loop, grid, record
from snowflake.bench.text import table
from snowflake.run import Run, versions

ROWS, SIZE = 512, 32
"""Heads and features of the cost without a run: 16 environments, 16 nodes, 2 heads."""


def bench_attention(
    run: Run | None,
    *,
    checkpoint: str | None,
    rs: Sequence[int],
    ks: Sequence[int],
    windows: Sequence[int],
    episodes: int,
    steps: int,
    seed: int,
    told: Callable[[str], None],
) -> dict[str, Any]:
    """Measure the cost of attention to caches and, of a run, how SparQ changes its policy.

    Args:
        run: trained with ``policy.memory: window``; None for the cost alone.
        checkpoint: ``best``, ``last`` or a step; None takes ``best``, else ``last``.
        rs: components to try; d / 8, d / 4, d / 2 and d if empty.
        ks: positions to try; W / 16, W / 8, W / 4 and W / 2 if empty.
        windows: lengths of the cache to time.
        episodes: of the closed loop, each way.
        steps: of the record, in each of its 16 environments.
        seed: of start states and samples.
        told: is told what is going on.

    Raises:
        UserError: the run has no window, or an r or k does not fit it.
    """
    result: dict[str, Any] = {"versions": versions(), "processor": platform.processor(), "dtype": "float32"}
    result["threads"] = torch.get_num_threads()
    size, rows = SIZE, ROWS
    if run is not None:
        check_window(run)
        config = run.config.policy
        size, count = config.head_size, config.memory_window
        rs = rs or sorted({max(1, size // n) for n in (8, 4, 2, 1)})
        ks = ks or sorted({max(1, count // n) for n in (16, 8, 4, 2)})
        for flag, values, most in (("r", rs, size), ("k", ks, count)):
            if not all(1 <= value <= most for value in values):
                raise UserError(f"--{flag} {' '.join(map(str, values))}: must lie between 1 and {most} for {run.path}")
        policy = run.load_policy(checkpoint)
        rows = 16 * policy.actor.memory.streams * config.kv_heads  # type: ignore[union-attr]
        told("playing")
        taken = record(run, policy, n_envs=16, steps=steps, seed=seed)
        result["run"] = {"path": str(run.path), "body": run.morphologies[0].name, "window": count, "head_size": size}
        result["fidelity"] = grid(policy, taken, rs, ks, told)
        told(f"{episodes} episodes dense, and {episodes} with SparQ")
        r, k = max(1, size // 4), max(1, count // 8)
        result["closed_loop"] = closed_loop(run, policy, r, k, episodes=episodes, seed=seed)
    told("timing")
    result["cost"] = {"rows": rows, "head_size": size, "modes": measure_cost(rows, size, windows)}
    return result


def attention_text(result: Mapping[str, Any]) -> str:
    """Return the measurements as Markdown tables."""
    parts = []
    if "run" in result:
        parts += _run_text(result)
    cost = result["cost"]
    head = [
        "attention of one step",
        "window",
        "cache MB",
        "numbers",
        "sectors",
        "µs, median (quartiles)",
        "times dense",
    ]
    rows, dense = [], {m["window"]: m["median_us"] for m in cost["modes"] if m["mode"] == "dense"}
    for mode in cost["modes"]:
        name = mode["mode"] + (f" (r {mode['r']}, k {mode['k']})" if mode["mode"].startswith("sparq") else "")
        name += f" ({mode['k']} steps)" if mode["mode"] == "window" else ""
        time = f"{mode['median_us']:,.0f} ({mode['low_us']:,.0f}–{mode['high_us']:,.0f})"
        moved = [f"{mode['bytes'] / 1e6:.3g}", f"{mode['elements']:,.0f}", f"{mode['sectors']:,.0f}"]
        rows.append([name, str(mode["window"]), *moved, time, f"{mode['median_us'] / dense[mode['window']]:.2f}"])
    parts += [
        f"Cost: {cost['rows']} heads of {cost['head_size']} features at once, float32, {result['threads']} threads; "
        "numbers and 32-byte sectors are those that one query moves.",
        table(head, rows),
    ]
    return "\n\n".join(parts)


def _run_text(result: Mapping[str, Any]) -> list[str]:
    run, loop = result["run"], result["closed_loop"]
    head = ["r", "k", "KL", "KL, 95 %", "action error, σ", "attention captured", "α", "output error", "numbers ÷",
            "sectors ÷", "window of as many numbers: steps, KL"]  # fmt: skip
    rows = [
        [
            str(f["r"]),
            str(f["k"]),
            *(f"{f[name]:.2g}" for name in ("kl", "kl_95", "action_error")),
            *(f"{f[name]:.3f}" for name in ("mass", "alpha", "output_error")),
            *(f"{f[name]:.2f}" for name in ("elements", "sectors")),
            f"{f['window_k']}, {f['window_kl']:.2g}",
        ]
        for f in result["fidelity"]
    ]
    interval = f"{loop['low']:.3f} to {loop['high']:.3f}, {loop['episodes']} pairs of episodes"
    words = (
        f"Whole episodes with r = {loop['r']}, k = {loop['k']}: return {loop['sparse']:,.1f} against "
        f"{loop['dense']:,.1f} dense, ratio {loop['ratio']:.3f} (95 %: {interval}), "
        f"difference {loop['difference']:,.1f} ± {loop['standard_error']:,.1f} (standard error). Moved: "
        f"{loop['elements']:.2f} times fewer numbers, {loop['sectors']:.2f} times fewer sectors "
        f"({loop['sectors_with_copies']:.2f} if each number of the second copy of a key costs a sector)."
    )
    what = (
        f"SparQ against dense attention of {run['path']} on {run['body']}, W = {run['window']}, d = {run['head_size']}."
    )
    return [what, table(head, rows), words]
