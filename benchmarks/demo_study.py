"""The demo over several seeds: does the policy walk, and what carries over to other bodies?

    .venv/bin/python benchmarks/demo_study.py --seeds 0 1 2 3 4 --out docs/results/demo.jsonl

Runs, for each seed, the commands of ``make demo`` and appends one JSON row; seeds that have a row are skipped, so the
study can be stopped and continued. Then prints the table of ``docs/results.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TARGETS = ("centipede-4", "centipede-8", "centipede-12", "centipede-6-crippled")


def snowflake(*arguments: str) -> None:
    """Run one command of the package, quietly; its errors end the study."""
    subprocess.run([sys.executable, "-m", "snowflake.cli", *arguments], check=True, stdout=subprocess.DEVNULL)


def row(config: str, seed: int, run: Path, extra: list[str]) -> dict[str, Any]:
    """Train, evaluate and transfer one seed."""
    clock = time.monotonic()
    snowflake("train", "--config", config, "--seed", str(seed), "--run", str(run), *extra)
    training = time.monotonic() - clock
    snowflake("evaluate", str(run))
    snowflake("transfer", str(run), "--to", *TARGETS)
    total = time.monotonic() - clock
    evaluation = json.loads((run / "evaluation.json").read_text())
    transfer = json.loads((run / "transfer.json").read_text())
    return {
        "config": config,
        "seed": seed,
        "trained_steps": evaluation["trained_steps"],
        "training_minutes": round(training / 60, 2),
        "total_minutes": round(total / 60, 2),
        "bodies": [compact(body) for body in transfer["bodies"]],
        "provenance": evaluation["provenance"],
    }


def compact(body: dict[str, Any]) -> dict[str, Any]:
    """The figures of one body that the table needs."""
    ways = {}
    for way, entry in body["policies"].items():
        ways[way] = {
            "return": entry["summary"]["returns"]["mean"],
            "return_sd": entry["summary"]["returns"]["sd"],
            "distance": entry["summary"]["distance"]["mean"],
            "falls": entry["falls"],
            "word": entry.get("word"),
            "difference": entry.get("return_difference"),
        }
    return {"morphology": body["morphology"], "zero_shot": body["zero_shot"], "policies": ways}


def passes(body: dict[str, Any], way: str) -> bool:
    """Return above both baselines by more than two standard errors, and at least 1 m forward on average."""
    entry = body["policies"][way]
    return entry["distance"] >= 1.0 and all(d["word"] == "better" for d in entry["difference"].values())


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: one line per seed, then the transfer."""
    lines = [
        "| seed | body | way | return (mean ± sd) | distance m | minus zero action | minus random | bar met |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in rows:
        body = result["bodies"][0]
        for way in ("mean_action", "stochastic"):
            entry = body["policies"][way]
            gaps = [f"{d['mean']:.0f} ± {d['standard_error']:.0f}" for d in entry["difference"].values()]
            lines.append(
                f"| {result['seed']} | {body['morphology']} | {way.replace('_', ' ')} | {entry['return']:.0f} ± "
                f"{entry['return_sd']:.0f} | {entry['distance']:.1f} | {gaps[0]} | {gaps[1]} | "
                f"{'yes' if passes(body, way) else 'no'} |"
            )
    lines += ["", "| seed | " + " | ".join(b["morphology"] for b in rows[0]["bodies"]) + " |"]
    lines.append("|---|" + "---|" * len(rows[0]["bodies"]))
    for result in rows:
        cells = [
            f"{b['policies']['mean_action']['return']:.0f} ({b['policies']['mean_action']['word']}); zero action "
            f"{b['policies']['zero_action']['return']:.0f}"
            for b in result["bodies"]
        ]
        lines.append(f"| {result['seed']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--config", default="demo")
    parser.add_argument("--out", type=Path, default=Path("docs/results/demo.jsonl"))
    parser.add_argument("--runs", type=Path, default=None, help="keep the run folders here")
    arguments, extra = parser.parse_known_args()
    runs = arguments.runs or Path(tempfile.mkdtemp())
    arguments.out.parent.mkdir(parents=True, exist_ok=True)

    def rows() -> list[dict[str, Any]]:
        found = arguments.out.read_text().splitlines() if arguments.out.exists() else []
        return sorted(map(json.loads, found), key=lambda r: r["seed"])

    for seed in arguments.seeds:
        if seed not in [r["seed"] for r in rows()]:
            result = row(arguments.config, seed, runs / f"{arguments.config}-{seed}", extra)
            with arguments.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
    print(table(rows()))


if __name__ == "__main__":
    main()
