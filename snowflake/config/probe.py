"""Settings of ``snowflake probe stability``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from agents.errors import UserError
from snowflake.config.checks import check_choice, check_range
from snowflake.config.probe_variants import NAMES, settings

MAX_RATES = 200
"""Most learning rates on a grid."""


@dataclass(frozen=True)
class ProbeConfig:
    """What is tried: every variant at every learning rate of a grid with every seed."""

    objective: str = "ppo"
    """ppo: real training on the bodies. bc: regression on a fixed synthetic set with the same blocks, no simulator."""
    variants: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = (
        *("none", "soft_cap", "qk", "qk_cap", "qkv", "qk_fc"),
    )
    """Ways to write attention: the names of --attn-variant, and qk_bare, qkv_pre, fc (docs/stability.md); NAME:C sets
    the bound of the logits, as in soft_cap:10 or qk:auto."""
    agents: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ("hopper",)
    """Bodies to train on together (ppo)."""
    config: Annotated[tuple[str, ...], arg(metavar="NAME|PATH [...]")] = ()
    """Run configs below the probe's own settings, as for snowflake train."""
    lr_min: float = 3e-4
    """Smallest learning rate."""
    lr_max: float = 0.1
    """Upper end of the grid."""
    ratio: float = 1.5
    """Each rate of the grid over the one before."""
    refine: int = 2
    """Rates to try beyond the grid, each in the geometric middle of the bracket."""
    seeds: int = 5
    """Number of seeds, from 0; a statement about a variant needs 5."""
    updates: int = 300
    """Updates of each run."""
    hidden_size: int = 48
    """Width of the tokens."""
    layers: int = 3
    """Blocks."""
    heads: int = 3
    """Attention heads."""
    samples: int = 32
    """Samples of each update (bc)."""

    @classmethod
    def quick(cls) -> ProbeConfig:
        """The setting for CPUs: regression, a coarse grid, minutes on two cores."""
        return cls(objective="bc", variants=NAMES, lr_min=0.01, lr_max=0.64, ratio=4.0, updates=100)

    def __post_init__(self) -> None:
        check_choice("", "objective", self.objective, ("ppo", "bc"))
        for what, names in (("variants", self.variants), ("agents", self.agents)):
            if not names:
                raise UserError(f"{what} is empty: name at least one")
            if len(set(names)) < len(names):
                raise UserError(f"{what} names something twice: name each once")
        for name in self.variants:
            settings(name)
        check_range("", "lr_min", self.lr_min, 0.0, 1000.0, open_low=True)
        check_range("", "lr_max", self.lr_max, 0.0, 1000.0, open_low=True)
        if self.lr_max <= self.lr_min:
            raise UserError(f"lr_max = {self.lr_max:g} must exceed lr_min = {self.lr_min:g}")
        check_range("", "ratio", self.ratio, 1.01, 100.0)
        if math.log(self.lr_max / self.lr_min) > MAX_RATES * math.log(self.ratio):
            raise UserError(f"the grid from {self.lr_min:g} to {self.lr_max:g} has over {MAX_RATES} rates: raise ratio")
        check_range("", "refine", self.refine, 0, 20)
        check_range("", "seeds", self.seeds, 1, 1000)
        check_range("", "updates", self.updates, 20, 10_000_000)
        check_range("", "hidden_size", self.hidden_size, 2, 8192)
        check_range("", "layers", self.layers, 1, 64)
        check_range("", "heads", self.heads, 1, 64)
        check_range("", "samples", self.samples, 1, 4096)
