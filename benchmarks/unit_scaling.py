"""Draws the RMS of what flows through the graph network at initialisation, with unit scaling and without.

Usage: ``python benchmarks/unit_scaling.py [--image FILE] [--table FILE]`` (half a minute). Observations come from
the bodies' own environments under random actions. The gradient is that of a mean loss whose gradient at every output
has RMS 1 for each row: 1 / B at the outputs, times the loss factor under unit scaling. Writes
docs/images/unit-scaling.png (actor, every round of messages) and docs/results/unit-scaling.csv (actor and critic,
smallest and largest RMS over rounds).
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import agents
from envs import LocomotionVectorEnv
from envs.observation import paper_layout
from snowflake.config import PolicyConfig
from snowflake.evaluation.figures import new_figure, plain, render
from snowflake.files import write_atomic
from snowflake.graph import build_graph
from snowflake.networks import build_actor, build_critic
from snowflake.numerics.unit import loss_factor, record, to_unit, weight_gradients
from snowflake.numerics.unit.record import StageRMS

ROOT = Path(__file__).resolve().parent.parent
BODIES, WIDTHS, BATCH_SIZE, SEED = ("centipede-4", "centipede-20"), (64, 256), 64, 0
COLORS = {"standard": "#8c8c8c", "unit": "#0b5fa5"}
FIELDS = (
    "network",
    "parametrization",
    "body",
    "width",
    "of",
    "name",
    "forward_min",
    "forward_max",
    "gradient_min",
    "gradient_max",
)


def observations(body: str, steps: int = 64) -> tuple[Any, torch.Tensor]:
    """Return the graph of a body and observations (steps * 8, D) of it under random actions."""
    morphology = agents.load(body)
    model = morphology.compile()
    graph = build_graph(model, paper_layout(model), morphology.node_class(model), body)
    env = LocomotionVectorEnv(morphology, 8, features="paper")
    rng, seen = np.random.default_rng(SEED), []
    env.reset(seed=SEED)
    for _ in range(steps):
        obs, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))
        seen.append(torch.from_numpy(np.array(obs)))
    env.close()
    return graph, torch.cat(seen)


def measure(
    kind: str, graph: Any, obs: torch.Tensor, width: int, unit: bool
) -> tuple[list[StageRMS], dict[str, float]]:
    """Return the RMS of every stage and of every weight's gradient, of one pass over the last rows."""
    generator = torch.Generator().manual_seed(SEED)
    config = PolicyConfig(hidden_size=width, critic="graph", kernels="reference")  # every stage is called
    network: Any = (build_actor if kind == "actor" else build_critic)([graph], config, generator)
    if unit:
        to_unit(network, BATCH_SIZE, generator)
    network.update_normalizer(obs, 0)
    rows = obs[torch.randperm(len(obs), generator=generator)[:BATCH_SIZE]]
    with record(network) as stages:
        y = network.distribution(rows)[0] if kind == "actor" else network.value(rows)
        factor = loss_factor(BATCH_SIZE) if unit else 1.0
        y.backward(torch.randn(y.shape, generator=generator) * factor / BATCH_SIZE)
    return stages, {name: rms for name, rms in weight_gradients(network).items() if not name.endswith("bias")}


def table_rows(stages: list[StageRMS], weights: dict[str, float], key: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return a line for every stage, over its rounds, and for every weight. A gradient that is zero is left out."""
    rows = []
    for name in dict.fromkeys(stage.stage for stage in stages):
        forward = [s.forward for s in stages if s.stage == name]
        gradient = [s.gradient for s in stages if s.stage == name and s.gradient > 0]
        rows.append(
            (*key, "stage", name, *(f"{v:.3g}" for v in (min(forward), max(forward), min(gradient), max(gradient))))
        )
    return rows + [(*key, "weight", name, "", "", f"{rms:.3g}", f"{rms:.3g}") for name, rms in weights.items()]


def draw(found: dict[tuple[str, int, str], tuple[list[StageRMS], dict[str, float]]], body: str) -> bytes:
    """Draw forward, gradient and weight-gradient RMS of one body's actor, a column for each width."""
    figure = new_figure(10.0, 8.5)
    axes = figure.subplots(3, len(WIDTHS), sharey="row", squeeze=False)
    for column, width in enumerate(WIDTHS):
        for name, color in COLORS.items():
            stages, weights = found[body, width, name]
            order = [
                f"{s.stage} {s.call + 1}" if s.call or s.stage.startswith(("message", "update", "agg")) else s.stage
                for s in stages
            ]
            for row, values in ((0, [s.forward for s in stages]), (1, [s.gradient or np.nan for s in stages])):
                axes[row, column].plot(values, ".-", color=color, label=f"{name} parametrisation")
                axes[row, column].set_xticks(range(0, len(order), 3), order[::3], rotation=90, fontsize=6)
            axes[2, column].plot(list(weights.values()), ".-", color=color)
            axes[2, column].set_xticks(range(len(weights)), list(weights), rotation=90, fontsize=6)
        for row, (label, low) in enumerate((("activation", 0.25), ("gradient", 0.25), ("weight gradient", 0.1))):
            axes[row, column].axhspan(low, 4.0, color="#0b5fa5", alpha=0.08)
            axes[row, column].set_yscale("log", base=2)
            axes[row, column].set_title(f"{label}, {body}, width {width}", fontsize=9)
            plain(axes[row, column])
        axes[0, 0].set_ylabel("RMS")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return render(figure)


def main() -> int:
    """Measure, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--image", type=Path, default=ROOT / "docs" / "images" / "unit-scaling.png")
    parser.add_argument("--table", type=Path, default=ROOT / "docs" / "results" / "unit-scaling.csv")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found, lines = {}, []
    for body in BODIES:
        graph, obs = observations(body)
        for width in WIDTHS:
            for name in COLORS:
                for kind in ("actor", "critic"):
                    stages, weights = measure(kind, graph, obs, width, name == "unit")
                    lines += table_rows(stages, weights, (kind, name, body, width))
                    if kind == "actor":
                        found[body, width, name] = stages, weights
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows(lines)
    write_atomic(args.table, text.getvalue())
    write_atomic(args.image, draw(found, BODIES[-1]))
    print(f"wrote {args.image} and {args.table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
