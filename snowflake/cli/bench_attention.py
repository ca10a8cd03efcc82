"""``snowflake bench attention``: what SparQ attention saves, costs and changes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from agents.errors import UserError
from snowflake.cli.parsing import parse
from snowflake.files import dump_json


@dataclass(frozen=True, kw_only=True)
class AttentionFlags:
    """Measure SparQ attention: time, bytes moved and, of a run with --memory window, how its policy changes."""

    run: Annotated[Positional[str | None], arg(metavar="[RUN]")] = None
    """Run folder of a policy with policy.memory window; without it, cost alone."""
    checkpoint: Annotated[
        str | None, arg(metavar="best|last|STEP", help_behavior_hint="(default: best, else last)")
    ] = None
    """Which checkpoint."""
    r: Annotated[tuple[int, ...], arg(help_behavior_hint="(default: d/8 d/4 d/2 d)")] = ()
    """Components of the query to try."""
    k: Annotated[tuple[int, ...], arg(help_behavior_hint="(default: W/16 W/8 W/4 W/2)")] = ()
    """Positions to try."""
    windows: tuple[int, ...] = (64, 256, 1024)
    """Lengths of the cache to time."""
    episodes: int = 20
    """Episodes dense, and with SparQ at r = d/4, k = W/8, from the same start states."""
    steps: int = 256
    """Steps of 16 environments along which each r and k is compared."""
    seed: int = 1000
    """Seed of the first start state and of the samples."""
    json: bool = False
    """Print everything that was measured as JSON."""

    def __post_init__(self) -> None:
        for flag, values, low, high in (
            ("r", self.r, 1, 4096),
            ("k", self.k, 1, 65_536),
            ("windows", self.windows, 1, 65_536),
            ("episodes", (self.episodes,), 2, 100_000),
            ("steps", (self.steps,), 1, 1_000_000),
            ("seed", (self.seed,), 0, 2**31 - 1),
        ):
            for value in values:
                if not low <= value <= high:
                    raise UserError(f"--{flag} {value}: must lie between {low} and {high}")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(AttentionFlags, argv, "snowflake bench attention")
    from snowflake.run import Run

    run = None if flags.run is None else Run.open(flags.run)
    if run is not None:
        run.find_checkpoint(flags.checkpoint)
    from snowflake.bench.attention import attention_text, bench_attention  # here, since it takes torch seconds to load

    result = bench_attention(
        run,
        checkpoint=flags.checkpoint,
        rs=flags.r,
        ks=flags.k,
        windows=flags.windows,
        episodes=flags.episodes,
        steps=flags.steps,
        seed=flags.seed,
        told=lambda line: print(line, file=sys.stderr, flush=True),
    )
    sys.stdout.write(dump_json(result) if flags.json else attention_text(result) + "\n")
    return 0
