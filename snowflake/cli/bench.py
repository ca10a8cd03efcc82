"""``snowflake bench``: where training spends its time on this machine, and which settings suit it.

``snowflake bench attention`` is in :mod:`snowflake.cli.bench_attention`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from agents.errors import UserError
from snowflake.cli.parsing import parse
from snowflake.cli.train import check_config
from snowflake.config import TrainConfig, loader
from snowflake.files import dump_json

MIN_SECONDS, MAX_SECONDS = 1.0, 86_400.0


@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """Measure where training spends its time on your robot and this machine, and recommend settings.

    `snowflake bench attention` measures SparQ attention instead.
    """

    agents: Annotated[tuple[str, ...], arg(aliases=("--model",), metavar="NAME [NAME ...]")] = TrainConfig.agents
    """Bodies to train on: names, or paths of MJCF or URDF files."""
    method: str | None = None
    """Method preset; without it the config's, or snowflake."""
    config: Annotated[tuple[str, ...], arg(metavar="NAME|PATH [...]")] = ()
    """Run configs, by shipped name or path to a YAML; later ones win."""
    precision: Annotated[str | None, arg(metavar="RECIPE", help_behavior_hint="(default: the config's)")] = None
    """Recipe of the linear layers."""
    seconds: float = 60.0
    """Time limit; what does not fit is not tried."""
    json: bool = False
    """Print everything that was measured as JSON."""

    def __post_init__(self) -> None:
        if not MIN_SECONDS <= self.seconds <= MAX_SECONDS:
            raise UserError(f"--seconds {self.seconds:g}: must lie between {MIN_SECONDS:g} and {MAX_SECONDS:g}")


def parse_bench(argv: Sequence[str]) -> tuple[BenchFlags, TrainConfig, list[str]]:
    """Return the flags, the config to measure, and what the user chose as arguments of ``snowflake train``.

    Raises:
        agents.errors.UserError: A flag, config or body is wrong.
    """
    flags = parse(BenchFlags, argv, "snowflake bench")
    layers = loader.preset_layers(flags.method, flags.config)
    named = any(a.partition("=")[0] in ("--agents", "--model") for a in argv) or not flags.config
    own = {"agents": list(flags.agents)} if named else {}
    layer = loader.check_layer(own if flags.precision is None else own | {"precision": flags.precision})
    config = loader.build([*layers, layer])
    check_config(config)
    given = ["--config", *flags.config] if flags.config else []
    if named:
        given += ["--agents", *config.agents]
    given += [] if flags.precision is None else ["--precision", flags.precision]
    return flags, config, given + (["--method", flags.method] if flags.method is not None else [])


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    if argv[:1] == ["attention"]:
        from snowflake.cli.bench_attention import main as attention

        return attention(argv[1:])
    flags, config, given = parse_bench(argv)
    from snowflake.bench.advice import advise  # here, since it takes torch seconds to load
    from snowflake.bench.text import advice_text

    result = advise(config, flags.seconds, given, lambda line: print(line, file=sys.stderr, flush=True))
    sys.stdout.write(dump_json(result) if flags.json else advice_text(result) + "\n")
    return 0
