"""Where a training step spends its time, body by body, beside its floors and beside what one would write by hand.

    .venv/bin/python benchmarks/train_step.py --baseline --markdown        # the tables of docs/performance.md
    .venv/bin/python benchmarks/train_step.py --scaling --markdown         # cost against the number of nodes
    .venv/bin/python benchmarks/train_step.py --device cuda --output gpu.json

Every program that is measured lives in a process of its own and waits while another one is measured; one repetition
goes through all of them in turn. docs/performance.md says what each figure is and how it is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from envs.physics import available_cores
from snowflake.bench.clock import spread
from snowflake.bench.overrides import overrides_for
from snowflake.files import dump_json, write_atomic

BODIES = ("centipede-6", "centipede-12", "centipede-20", "humanoid")
SCALING_BODIES = tuple(f"centipede-{legs}" for legs in (6, 12, 20, 40, 60, 100))
HERE = Path(__file__).resolve().parent


class Worker:
    """A program in a process of its own that measures once for every line it gets.

    Args:
        name: for messages.
        command: the program; it says one line of JSON when it is ready.
    """

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        print(f"starting {name}", file=sys.stderr, flush=True)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready = self._read()

    def ask(self, what: str = "") -> dict[str, Any]:
        """Return the answer to a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.name} ended with exit code {self._process.wait()}: see above")


def serve(spec: dict[str, Any]) -> None:
    """Be a worker: measure a training step, or network cost, at every line; ``report`` asks for all figures."""
    from snowflake.config.loader import resolve

    config = resolve(method=spec["method"], overrides=spec["overrides"])
    if spec["kind"] == "scaling":
        from snowflake.bench.scaling import NetworkCost

        with tempfile.TemporaryDirectory() as folder:
            cost = NetworkCost(config, Path(folder))
            print(json.dumps({"nodes": cost.nodes}), flush=True)
            for _ in sys.stdin:
                answer = {"update": cost.update(), "act": cost.act(), "memory": cost.memory()}
                print(json.dumps(answer), flush=True)
        return
    from snowflake.bench.measure import Measurement

    measurement = Measurement(config)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        report = line.strip() == "report"
        answer = measurement.report() if report else {"steps_per_second": measurement.repeat()}
        print(json.dumps(answer), flush=True)
    measurement.close()


def ours(kind: str, body: str, method: str, arguments: argparse.Namespace, precision: str | None = None) -> Worker:
    """Start a worker on a body and method of this package."""
    overrides = overrides_for((body,), device=arguments.device, precision=precision, threads=arguments.threads)
    spec = json.dumps({"kind": kind, "method": method, "overrides": overrides})
    name = " ".join(filter(None, (body, method, precision)))
    return Worker(name, [sys.executable, str(HERE / "train_step.py"), "--serve", spec])


def measure_body(body: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure all methods and precisions on a body, and the baseline between them."""
    variants = [(method, precision) for method in arguments.methods for precision in arguments.precision]
    workers = {f"{m} {p or ''}".strip(): ours("step", body, m, arguments, p) for m, p in variants}
    others = {}
    if arguments.baseline:
        threads = arguments.threads or available_cores()
        base = [sys.executable, str(HERE / "baseline_sb3_pyg.py"), "--serve", "--body", body]
        base += ["--device", arguments.device, "--threads", str(threads)]
        for count in arguments.baseline_envs:
            others[str(count)] = Worker(f"{body} baseline, {count} environments", [*base, "--envs", str(count)])
    everyone = [*workers.values(), *others.values()]
    rates: dict[str, list[float]] = {worker.name: [] for worker in everyone}
    for repetition in range(arguments.repetitions):
        print(f"{body}: repetition {repetition + 1} of {arguments.repetitions}", file=sys.stderr, flush=True)
        for worker in everyone:
            rates[worker.name].append(worker.ask()["steps_per_second"])
            print(f"  {worker.name}: {rates[worker.name][-1]:,.0f} steps/s", file=sys.stderr, flush=True)
    reports = {name: worker.ask("report") for name, worker in workers.items()}
    baseline = {count: rates[worker.name] for count, worker in others.items()}
    if baseline:
        best = [max(rows) for rows in zip(*baseline.values(), strict=True)]
        for name, worker in workers.items():
            pairs = zip(rates[worker.name], best, strict=True)
            reports[name]["times_baseline"] = spread([mine / theirs for mine, theirs in pairs])
    for worker in everyone:
        worker.close()
    return {"reports": reports, "baseline": {count: spread(values) for count, values in baseline.items()}}


def measure_scaling(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the cost of the networks on Centipedes of many sizes."""
    rows = []
    for method in arguments.methods:
        workers = {body: ours("scaling", body, method, arguments) for body in SCALING_BODIES}
        answers: dict[str, list[dict[str, Any]]] = {body: [] for body in workers}
        for _ in range(arguments.repetitions):
            for body, worker in workers.items():
                answers[body].append(worker.ask())
        for body, worker in workers.items():
            row: dict[str, Any] = {"body": body, "method": method, "nodes": worker.ready["nodes"]}
            row |= {key: spread([answer[key] for answer in answers[body]]) for key in ("update", "act")}
            rows.append(row | {"memory": answers[body][-1]["memory"]})
            worker.close()
    return rows


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=list(BODIES), help="bodies, one after the other")
    parser.add_argument("--methods", nargs="+", default=["snowflake", "nervenet"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", nargs="+", default=[None], help="precisions to compare")
    parser.add_argument("--threads", type=int, default=0, help="threads of torch and of physics; 0: one a core")
    parser.add_argument("--baseline", action="store_true", help="also measure benchmarks/baseline_sb3_pyg.py")
    parser.add_argument("--baseline-envs", nargs="+", type=int, default=[2, 4, 8, 16])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--scaling", action="store_true", help="network cost against nodes, instead")
    parser.add_argument("--output", type=Path, help="JSON file for all figures")
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/performance.md only")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.serve:
        serve(json.loads(arguments.serve))
        return
    from snowflake.bench.text import baseline_table, parts_table, scaling_table
    from snowflake.evaluation.provenance import provenance
    from snowflake.networks.native.build import build

    with tempfile.TemporaryDirectory() as folder:
        built = build(Path(folder))  # cold, before anything else runs
    seconds = built if isinstance(built, str) else built.seconds
    print(
        f"compiling the kernels, cold: {seconds if isinstance(seconds, str) else f'{seconds:.1f} s'}", file=sys.stderr
    )
    source = provenance(" ".join(sys.argv), arguments.threads, arguments.device)
    result: dict[str, Any] = {"repetitions": arguments.repetitions, "build_seconds": seconds, "provenance": source}
    if arguments.scaling:
        result["scaling"] = measure_scaling(arguments)
        tables = [scaling_table(result["scaling"])]
    else:
        result["bodies"] = {body: measure_body(body, arguments) for body in arguments.agents}
        columns = [report for row in result["bodies"].values() for report in row["reports"].values()]
        tables = [parts_table(columns), *([baseline_table(result["bodies"])] if arguments.baseline else [])]
    if arguments.output:
        write_atomic(arguments.output, dump_json(result))
    print("\n\n".join(tables))
    if not arguments.markdown:
        print(f"\n{json.dumps(source)}")


if __name__ == "__main__":
    main()
