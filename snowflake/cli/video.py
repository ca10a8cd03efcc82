"""``snowflake video``: film a trained policy, without a display."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from agents.errors import UserError
from snowflake.cli.parsing import parse

if TYPE_CHECKING:
    from agents import Morphology
    from snowflake.run import Run


@dataclass(frozen=True, kw_only=True)
class WatchFlags:
    """Flags of every command that shows a trained policy."""

    run: Annotated[Positional[str], arg(metavar="RUN")]
    """Run folder, or pretrained:NAME for a policy that ships with the package."""
    agents: Annotated[
        tuple[str, ...],
        arg(aliases=("--model",), metavar="NAME [NAME ...]", help_behavior_hint="(default: the run's own)"),
    ] = ()
    """Bodies, by name or path; one that the run was not trained on is played zero-shot."""
    checkpoint: Annotated[
        str | None, arg(metavar="best|last|STEP", help_behavior_hint="(default: best, else last)")
    ] = None
    """Which checkpoint."""
    deterministic: bool = False
    """Take the mean action (this is the default)."""
    stochastic: bool = False
    """Sample the actions, as in training."""
    seed: int = 0
    """Seed of the start state and of sampled actions."""

    def __post_init__(self) -> None:
        if self.checkpoint not in (None, "best", "last") and not str(self.checkpoint).isdigit():
            raise UserError(f"--checkpoint {self.checkpoint}: write best, last or a number of steps")
        if self.deterministic and self.stochastic:
            raise UserError("--deterministic and --stochastic exclude each other: give one of them")
        if not 0 <= self.seed <= 2**31 - 1:
            raise UserError(f"--seed {self.seed}: must lie between 0 and {2**31 - 1}")


@dataclass(frozen=True, kw_only=True)
class VideoFlags(WatchFlags):
    """Film a trained policy into an MP4, through EGL or OSMesa where there is no display."""

    steps: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 10 seconds)")] = None
    """Control steps to film."""
    seconds: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 10)")] = None
    """Simulated seconds to film, instead of --steps."""
    output: Annotated[Path | None, arg(metavar="FILE.mp4|DIR", help_behavior_hint="(default: RUN/videos)")] = None
    """The file, for one body; or a folder, for several."""
    width: int = 960
    """Width in pixels, even."""
    height: int = 720
    """Height in pixels, even."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and self.seconds is not None:
            raise UserError("--steps and --seconds exclude each other: give one of them")
        if self.steps is not None and not 1 <= self.steps <= 1_000_000:
            raise UserError(f"--steps {self.steps}: must lie between 1 and 1000000")
        if self.seconds is not None and not 0 < self.seconds <= 36_000:
            raise UserError(f"--seconds {self.seconds:g}: must lie between 0 and 36000")
        for flag, value in (("width", self.width), ("height", self.height)):
            if not 16 <= value <= 4096 or value % 2:
                raise UserError(f"--{flag} {value}: must be even and lie between 16 and 4096")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(VideoFlags, argv, "snowflake video")
    from snowflake.evaluation.bodies import load_bodies
    from snowflake.rendering import find_backend, wanted_backend
    from snowflake.run import Run

    bodies = load_bodies(flags.agents)
    run = Run.open(flags.run)
    run.find_checkpoint(flags.checkpoint)
    names = [body.name for body in bodies or run.morphologies]
    paths = _paths(flags, run.path, names)
    backend = find_backend()
    if wanted_backend() not in ("", backend):
        print(f"MUJOCO_GL={wanted_backend()} does not work here, {backend} is used", file=sys.stderr)
    _film(flags, run, bodies, paths)
    return 0


def _film(flags: VideoFlags, run: Run, bodies: Sequence[Morphology], paths: list[Path]) -> None:
    from snowflake.cli.evaluate import progress
    from snowflake.evaluation.player import make_players
    from snowflake.evaluation.video import record

    players = make_players(run, bodies or None, flags.checkpoint, deterministic=not flags.stochastic, seed=flags.seed)
    try:
        for player, path in zip(players, paths, strict=True):
            steps = flags.steps or max(1, round((flags.seconds or 10.0) / player.env.dt))
            name = player.env.morphology.name
            with progress() as shown:
                video = record(
                    player.env,
                    player.controller,
                    path,
                    steps=steps,
                    seed=flags.seed,
                    size=(flags.width, flags.height),
                    told=None if shown is None else partial(_tell, shown, name),
                )
            how = "zero-shot, " if player.zero_shot else ""
            ended = f"{video.episodes} episode{'' if video.episodes == 1 else 's'} ended"
            print(f"{path}: {name}, {how}{video.steps} steps, {video.frames} frames at {video.fps:.4g}/s, {ended}")
    finally:
        for player in players:
            player.env.close()


def _tell(shown: Callable[[str, str, int, int], None], name: str, step: int, steps: int) -> None:
    shown(name, f"filming {steps} steps", step, 0)


def _paths(flags: VideoFlags, run: Path, names: list[str]) -> list[Path]:
    """Return the file of every body."""
    output = flags.output
    if output is not None and output.suffix:
        if output.suffix.lower() != ".mp4":
            raise UserError(f"--output {output}: a video ends in .mp4")
        if len(names) > 1:
            raise UserError(f"--output {output}: is one file for {len(names)} bodies, name a folder")
        if output.is_dir():
            raise UserError(f"--output {output}: is a folder, name a file in it")
        return [output]
    folder = output if output is not None else run / "videos"
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder}: is a file, name a folder")
    return [folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.mp4" for name in names]
