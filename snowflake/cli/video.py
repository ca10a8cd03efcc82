"""``snowflake video``: film a trained policy, without a display."""

from __future__ import annotations

import os
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
from snowflake.files import check_no_file

if TYPE_CHECKING:
    from agents import Morphology
    from snowflake.evaluation.player import Player
    from snowflake.run import Run

_SECONDS = 10.0
_LONGEST = 100  # bytes of a file's name


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
    precision: Annotated[str | None, arg(metavar="RECIPE", help_behavior_hint="(default: as trained)")] = None
    """Recipe that computes the policy's linear layers: fp32, bf16, fp8-amax, ..."""
    seed: int = 0
    """Seed of the start state and of sampled actions."""

    def __post_init__(self) -> None:
        if self.checkpoint not in (None, "best", "last") and not str(self.checkpoint).isdecimal():
            raise UserError(f"--checkpoint {self.checkpoint}: write best, last or a number of steps")
        if self.deterministic and self.stochastic:
            raise UserError("--deterministic and --stochastic exclude each other: give one of them")
        if not 0 <= self.seed <= 2**31 - 1:
            raise UserError(f"--seed {self.seed}: must lie between 0 and {2**31 - 1}")


@dataclass(frozen=True, kw_only=True)
class VideoFlags(WatchFlags):
    """Film a trained policy into an MP4, through EGL or OSMesa where there is no display.

    Several bodies share one video, in a grid; one whose episode ends starts again while the others go on.
    """

    steps: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 10 seconds)")] = None
    """Control steps to film; of the first body, for several."""
    seconds: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 10)")] = None
    """Simulated seconds to film, instead of --steps."""
    output: Annotated[Path | None, arg(metavar="FILE.mp4|DIR", help_behavior_hint="(default: RUN/videos)")] = None
    """The file, or a folder for a file with the names of the bodies."""
    width: int = 960
    """Width in pixels, even; of the whole grid, for several bodies."""
    height: int = 720
    """Height in pixels, even; of the whole grid, for several bodies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and self.seconds is not None:
            raise UserError("--steps and --seconds exclude each other: give one of them")
        if self.steps is not None and not 1 <= self.steps <= 1_000_000:
            raise UserError(f"--steps {self.steps}: must lie between 1 and 1000000")
        if self.seconds is not None and not 0 < self.seconds <= 36_000:
            raise UserError(f"--seconds {self.seconds:g}: must lie above 0 and at most 36000")
        for flag, value in (("width", self.width), ("height", self.height)):
            if not 16 <= value <= 4096 or value % 2:
                raise UserError(f"--{flag} {value}: must be even and lie between 16 and 4096")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(VideoFlags, argv, "snowflake video")
    from snowflake.evaluation.fit import check_fit
    from snowflake.files import check_output

    run, bodies = open_watched(flags)
    path = video_path(flags, run.path, [body.name for body in bodies])
    check_fit(run, bodies)
    check_output(path.parent, (path.name,))
    from snowflake.rendering import find_backend, wanted_backend

    backend = find_backend()
    if wanted_backend() not in ("", backend):
        print(f"MUJOCO_GL={wanted_backend()} does not work here, {backend} is used", file=sys.stderr)
    from snowflake.evaluation.player import make_players

    players = make_players(run, bodies, flags.checkpoint, deterministic=not flags.stochastic, seed=flags.seed)
    try:
        (_film_one if len(players) == 1 else _film_grid)(flags, players, path)
    finally:
        for player in players:
            player.env.close()
    return 0


def open_watched(flags: WatchFlags) -> tuple[Run, tuple[Morphology, ...]]:
    """Open the run that the flags name, and the bodies to show: those named, else the run's own.

    Raises:
        UserError: no such run, checkpoint, recipe or body.
    """
    from snowflake.evaluation.choice import choose_bodies
    from snowflake.run import Run

    run = Run.open(flags.run).at_precision(flags.precision)
    run.find_checkpoint(flags.checkpoint)
    return run, choose_bodies(run, flags.agents) or run.morphologies


def _film_one(flags: VideoFlags, players: Sequence[Player], path: Path) -> None:
    from snowflake.cli.evaluate import status
    from snowflake.evaluation.video import record

    (player,) = players
    name, size = player.env.morphology.name, (flags.width, flags.height)
    steps = flags.steps or max(1, round((flags.seconds or _SECONDS) / player.env.dt))
    with status() as say:
        told = partial(_tell, say, f"filming {name}, step")
        video = record(player.env, player.controller, path, steps=steps, seed=flags.seed, size=size, told=told)
    length = f"{video.steps} steps, {video.frames} frames at {video.fps:.4g}/s"
    print(f"{path}: {name}, {'zero-shot, ' if player.zero_shot else ''}{length}, {_ended(video.episodes)}")


def _film_grid(flags: VideoFlags, players: Sequence[Player], path: Path) -> None:
    from snowflake.cli.evaluate import status
    from snowflake.evaluation.grid import Cell, record_grid

    names = [player.env.morphology.name + (" (zero-shot)" if player.zero_shot else "") for player in players]
    cells = [Cell(name, player.env, player.controller) for name, player in zip(names, players, strict=True)]
    seconds, size = flags.seconds or _SECONDS, (flags.width, flags.height)
    if flags.steps is not None:
        seconds = flags.steps * players[0].env.dt
    with status() as say:
        told = partial(_tell, say, f"filming {path.name}, frame")
        video = record_grid(cells, path, seconds=seconds, seed=flags.seed, size=size, told=told)
    print(f"{path}: {len(cells)} bodies, {video.frames} frames at {video.fps:.4g}/s")
    for name, steps, returns in zip(names, video.steps, video.returns, strict=True):
        print(f"  {name}: {steps} steps, {_ended(len(returns))}")


def _ended(episodes: int) -> str:
    return f"{episodes} episode{'' if episodes == 1 else 's'} ended"


def _tell(say: Callable[[str], None], what: str, done: int, total: int) -> None:
    say(f"{what} {done} of {total}")


def video_path(flags: VideoFlags, run: Path, names: Sequence[str]) -> Path:
    """Return the file of the video, one for all bodies.

    Raises:
        UserError: `--output` is no place for it.
    """
    output = flags.output
    if output is not None and output.suffix:
        if output.suffix.lower() != ".mp4":
            raise UserError(f"--output {output}: a video ends in .mp4")
        if os.path.isdir(output):
            raise UserError(f"--output {output}: is a folder, name a file in it")
        return output
    folder = output if output is not None else run / "videos"
    check_no_file(folder)
    stem = re.sub(r"[^\w.+-]+", "_", "+".join(names))
    return folder / f"{stem.encode()[:_LONGEST].decode(errors='ignore')}.mp4"
