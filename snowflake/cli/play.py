"""``snowflake play``: watch a trained policy live in MuJoCo's viewer."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from typing import Any

import mujoco

from agents.errors import UserError
from snowflake.cli.parsing import parse
from snowflake.cli.video import WatchFlags, open_watched


@dataclass(frozen=True, kw_only=True)
class PlayFlags(WatchFlags):
    """Watch a trained policy in MuJoCo's viewer, in real time, until its window is closed."""

    speed: float = 1.0
    """How fast time goes; 0.5 is slow motion."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.01 <= self.speed <= 100:
            raise UserError(f"--speed {self.speed:g}: must lie between 0.01 and 100")
        if len(self.agents) > 1:
            raise UserError(f"--agents: a window shows one body, not {len(self.agents)}")


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = parse(PlayFlags, argv, "snowflake play")
    run, bodies = open_watched(flags)
    require_display(flags.run)
    from snowflake.evaluation.player import make_players

    player = make_players(run, bodies[:1], flags.checkpoint, deterministic=not flags.stochastic, seed=flags.seed)[0]
    try:
        watch(player.env, player.controller, launch_viewer(player.env), seed=flags.seed, speed=flags.speed)
    finally:
        player.env.close()
    return 0


def require_display(run: str) -> None:
    """Check that a window can be opened.

    Raises:
        UserError: there is no display, or macOS is not running MuJoCo's own interpreter.
    """
    if platform.system() == "Linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise UserError(
            f"there is no display (DISPLAY is not set) for a window: film it instead with `snowflake video {run}`"
        )
    if platform.system() == "Darwin" and not os.environ.get("MJPYTHON_BIN"):
        raise UserError("on macOS the viewer needs MuJoCo's interpreter: mjpython -m snowflake.cli play ...")


def launch_viewer(env: Any) -> Any:
    """Open MuJoCo's viewer on an environment.

    Raises:
        UserError: the window cannot be opened.
    """
    try:
        from mujoco import viewer

        return viewer.launch_passive(env.model, env.physics.data[0], show_left_ui=False, show_right_ui=False)
    except (ImportError, RuntimeError, mujoco.FatalError) as error:
        raise UserError(f"MuJoCo's viewer cannot be opened: {error}") from error


def watch(env: Any, controller: Any, viewer: Any, *, seed: int = 0, speed: float = 1.0) -> int:
    """Step an environment in real time as long as its window is open; returns the number of steps.

    Args:
        env: one environment.
        controller: maps observations (1, D) to actions (1, A).
        viewer: what `mujoco.viewer.launch_passive` returns.
        seed: of the first start state.
        speed: simulated seconds per second.
    """
    steps = 0
    with viewer:
        viewer.cam.type = mujoco.mjtCamera.mjCAMERA_TRACKING
        viewer.cam.trackbodyid = env.robot.root_body
        controller.begin()
        with viewer.lock():
            obs, _ = env.reset(seed=seed)
        next_frame = time.monotonic()
        while viewer.is_running():
            with viewer.lock():
                obs, _, terminated, truncated, _ = env.step(controller(obs))
            viewer.sync()
            steps += 1
            if terminated[0] or truncated[0]:
                controller.begin()
            next_frame += env.dt / speed
            time.sleep(max(0.0, next_frame - time.monotonic()))
    return steps
