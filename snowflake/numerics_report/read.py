"""Read the statistics of quantised layers from a run's TensorBoard event files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agents.errors import UserError
from snowflake.evaluation.curves import EVENT_FILES, Curve, read_curves

NETWORKS = ("actor", "critic")
OPERANDS = {"w": "weights", "x": "activations", "g": "gradients"}
"""Name of an operand in tags, and in figures and tables."""
FORMATS = ("e4m3", "e5m2", "bf16", "fp32")
STATISTICS = (
    "amax", "log2_scale", "log2_scale_min", "log2_scale_max", "sat_frac", "flush_frac", "subnormal_frac",
    "mean_rel", "rms_rel", "rms", "nonfinite", "share_e4m3", "share_e5m2", "share_bf16",
)  # fmt: skip
"""Of an operand of a layer: the last parts of the tags numerics/NETWORK/LAYER/OPERAND/STATISTIC."""
SUMMARIES = (
    *(f"share/operands/{name}" for name in FORMATS[:3]),
    *(f"share/flops/{name}" for name in FORMATS),
    *(f"log2_scale/{operand}/{end}" for operand in OPERANDS for end in ("min", "median", "max")),
    "nonfinite",
    "format_changes",
)
"""Of a network: the ends of the tags numerics/NETWORK/SUMMARY."""


class Place(NamedTuple):
    """An operand of a layer, or of the layer all of it where `operand` is empty."""

    network: str
    layer: str
    operand: str


@dataclass(frozen=True)
class RunNumerics:
    """The curves of one run.

    Attributes:
        name: of the run.
        operands: by place, by statistic.
        summaries: by network, by summary.
    """

    name: str
    operands: dict[Place, dict[str, Curve]]
    summaries: dict[str, dict[str, Curve]]

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks that have any curve."""
        found = {place.network for place in self.operands} | set(self.summaries)
        return tuple(name for name in NETWORKS if name in found)

    def layers(self, network: str) -> list[str]:
        """Layers of a network with statistics, by name."""
        return sorted({place.layer for place in self.operands if place.network == network})


def read_numerics(folder: Path, name: str) -> RunNumerics:
    """Read one run.

    Args:
        folder: The run folder.
        name: What to call it.

    Raises:
        UserError: It is no folder, or holds no such curves.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} {'is a file' if folder.exists() else 'does not exist'}: name a run folder")
    curves = read_curves(folder, None)
    if not curves:
        what = "curves" if next(folder.rglob(EVENT_FILES), None) else "event files"
        raise UserError(f"{folder} holds no {what}: name the folder of a run that has trained")
    operands: dict[Place, dict[str, Curve]] = {}
    summaries: dict[str, dict[str, Curve]] = {}
    for tag, curve in curves.items():
        head, _, rest = tag.partition("/")
        network, _, rest = rest.partition("/")
        if head != "numerics" or network not in NETWORKS:
            continue
        if rest in SUMMARIES:
            summaries.setdefault(network, {})[rest] = curve
            continue
        parts = rest.rsplit("/", 2)
        if len(parts) == 3 and parts[1] in OPERANDS and parts[2] in STATISTICS:
            operands.setdefault(Place(network, parts[0], parts[1]), {})[parts[2]] = curve
    if not operands and not summaries:
        raise UserError(
            f"{folder} has no statistics of low precision (tags numerics/...): snowflake train --precision RECIPE logs "
            "them, fp32 has none"
        )
    return RunNumerics(name, operands, summaries)


def names_of(folders: Sequence[Path]) -> list[str]:
    """Names that tell runs apart: those of their folders, where these differ, else their paths.

    Raises:
        UserError: One is named twice.
    """
    resolved = [folder.resolve() for folder in folders]
    if len(set(resolved)) < len(resolved):
        twice = next(f for i, f in enumerate(folders) if resolved[i] in resolved[:i])
        raise UserError(f"{twice} is named twice: name each run once")
    short = [folder.name for folder in resolved]
    return [name if short.count(name) == 1 else str(folder) for name, folder in zip(short, folders, strict=True)]
