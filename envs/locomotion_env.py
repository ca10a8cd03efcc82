"""Locomotion, one environment: the batched form with N = 1 behind Gymnasium's `Env`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import mujoco
import numpy as np

from agents import Morphology
from envs.observation import ObservationLayout
from envs.robot import Robot
from envs.tasks.options import TaskOptions
from envs.vector_env import LocomotionVectorEnv


class LocomotionEnv(gymnasium.Env):
    """One body on its task; see `LocomotionVectorEnv` for observations, rewards, infos and the ends of episodes.

    Infos hold plain numbers; `termination_reason` is there in the step that ends an episode.
    `copy.deepcopy` and pickling keep the state of the episode, unlike Gymnasium's own MuJoCo environments.

    Args:
        morphology: a body or its name.
        task: name of the task; the body's own if not given.
        task_options: what to change of the task, as `TaskOptions` or as a dict of its fields; its own settings if not
            given.
        features: feature set of the observations, `"auto"`, `"paper"` or `"general"`.
        root_body: top body of the tree to control; the morphology's own if not given.
        max_episode_steps: control steps after which an episode is truncated, `None` for no limit.
        num_threads: accepted as in the batched form; one environment takes one thread.
        render_mode: `None`, `"human"` or `"rgb_array"`.

    Raises:
        UserError: unknown body, task or feature set, a body without a task, or a model that is no robot.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 20}  # noqa: RUF012 (Gymnasium's)

    def __init__(
        self,
        morphology: Morphology | str,
        *,
        task: str | None = None,
        task_options: TaskOptions | Mapping[str, Any] | None = None,
        features: str = "auto",
        root_body: str | None = None,
        max_episode_steps: int | None = 1000,
        num_threads: int = 0,
        render_mode: str | None = None,
    ) -> None:
        self.batch = LocomotionVectorEnv(
            morphology,
            1,
            task=task,
            task_options=task_options,
            features=features,
            root_body=root_body,
            max_episode_steps=max_episode_steps,
            num_threads=num_threads,
            render_mode=render_mode,
        )
        self.observation_space = self.batch.single_observation_space
        self.action_space = self.batch.single_action_space
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["human", "rgb_array"], "render_fps": round(1 / self.batch.dt)}

    @property
    def morphology(self) -> Morphology:
        """The body."""
        return self.batch.morphology

    @property
    def model(self) -> mujoco.MjModel:
        """The body, compiled."""
        return self.batch.model

    @property
    def robot(self) -> Robot:
        """Which part of the model is observed and controlled."""
        return self.batch.robot

    @property
    def layout(self) -> ObservationLayout:
        """What the D columns of an observation are."""
        return self.batch.layout

    @property
    def dt(self) -> float:
        """Duration of a control step [s]."""
        return self.batch.dt

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: seeds the generator of the start states; `None` goes on with the one it has.
            options: not used.

        Returns:
            Observation (D,) float32, and an empty dict.
        """
        super().reset(seed=seed)
        self.batch.generators = [self.np_random]
        observations, _ = self.batch.reset(options=options)
        return observations[0], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance by one control step.

        Args:
            action: (A,), one entry a control of the robot.

        Returns:
            Observation (D,) float32, reward, terminated, truncated, info.
        """
        observations, rewards, terminated, truncated, infos = self.batch.step_without_reset(np.asarray(action)[None])
        info = {name: values[0] for name, values in infos.items()}
        return observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), info

    def get_state(self) -> dict[str, Any]:
        """See `LocomotionVectorEnv.get_state`."""
        return self.batch.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """See `LocomotionVectorEnv.set_state`."""
        self.batch.set_state(state)
        if self.batch.generators:
            self._np_random = self.batch.generators[0]

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self.__dict__.update(attributes)
        if self.batch.generators:
            self._np_random = self.batch.generators[0]

    def render(self) -> np.ndarray | None:
        """Draw the body: (480, 640, 3) uint8, or `None` in human mode."""
        images = self.batch.render()
        return images[0] if images else None

    def close(self) -> None:
        """Free the renderer."""
        self.batch.close()
