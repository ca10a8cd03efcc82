"""Locomotion, batched: N environments of one body behind Gymnasium's vector interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode

import agents
from agents import Morphology
from agents.errors import UserError, nearest
from envs.actions import ControlMap
from envs.faults import MotorFaults
from envs.observation import GeneralObserver, ObservationLayout, PaperObserver
from envs.physics import BatchedPhysics
from envs.rendering import Renderer
from envs.robot import find_robot
from envs.tasks import Outcome, task_class
from envs.tasks.options import TaskOptions

FEATURES = ("auto", "paper", "general")
"""Feature sets of observations; `auto` is `paper` where the body supplies the paper's node classes, else `general`."""
MAX_START_DRAWS = 10_000
_NOT_FINITE = "unstable: the state or the reward is not finite"


class LocomotionVectorEnv(gymnasium.vector.VectorEnv):
    """N environments of one body and task; observations, rewards and ends of episodes are computed for all at once.

    An environment whose episode ends restarts in the same step (`AutoresetMode.SAME_STEP`). `step` returns infos of
    arrays (N,), which hold what the step brought, also where it ended an episode:

    - `reward_<term>`: the addends of the reward; their sum is the reward.
    - `x_position` [m], `x_velocity` [m/s]: of the point whose advance is rewarded.
    - `energy` [J]: mechanical energy spent by the actuators, sum |force x velocity| x dt, with the forces and
      velocities of the last substep taken for the whole control step.
    - `unstable`: bool, the physics diverged.

    and, only in steps that ended an episode:

    - `final_obs` (N, D) float32, last observations, valid where `_final_obs` (N,) bool says so;
    - `termination_reason` (N,) object: `""`, `"fall: ..."` or `"unstable: ..."`;
    - `final_info` and `_final_info`: the arrays above once more, where Gymnasium's wrappers look for them.

    Unstable physics (a warning of MuJoCo's or a number that is not finite) terminates the episode: every reward term is
    0 there and `final_obs` is the observation before the step, so that no such number leaves the environment.

    A limit of steps truncates: `truncated` and `terminated` are never both true.

    Attributes:
        morphology: the body.
        model: the body, compiled, with what the task adds around it (see `Task.prepare`). `mujoco.MjModel`
        robot: which part of the model is observed and controlled. `envs.robot.Robot`
        layout: what the columns of an observation are.
        control_map: what an action sets. `envs.actions.ControlMap`
        dt: duration of a control step [s].
        physics: the N simulations.
        max_episode_steps: limit, `None` for none.
        faults: motors that fail during an episode, with `TaskOptions.motor_fault`. `envs.faults.MotorFaults`
        generators: the random generator of every environment, which draws its start states and its faults.

    Args:
        morphology: a body or its name.
        num_envs: N.
        task: name of the task; the body's own if not given.
        task_options: what to change of the task, as `TaskOptions` or as a dict of its fields; its own settings if not
            given.
        features: feature set of the observations, one of `FEATURES`.
        root_body: top body of the tree to control; the morphology's own if not given. See `envs.robot.find_robot`.
        max_episode_steps: control steps after which an episode is truncated, `None` for no limit.
        num_threads: threads that step the physics, 0 for one a core. Results do not depend on it.
        render_mode: `None` or `"rgb_array"`; `"human"` for one environment.

    Raises:
        UserError: unknown body, task or feature set, a body without a task, or a model that is no robot.
    """

    def __init__(
        self,
        morphology: Morphology | str,
        num_envs: int = 1,
        *,
        task: str | None = None,
        task_options: TaskOptions | Mapping[str, Any] | None = None,
        features: str = "auto",
        root_body: str | None = None,
        max_episode_steps: int | None = 1000,
        num_threads: int = 0,
        render_mode: str | None = None,
    ) -> None:
        self.morphology = agents.load(morphology) if isinstance(morphology, str) else morphology
        self._arguments = {
            "morphology": self.morphology,
            "num_envs": num_envs,
            "task": task,
            "task_options": task_options,
            "features": features,
            "root_body": root_body,
            "max_episode_steps": max_episode_steps,
            "num_threads": num_threads,
            "render_mode": render_mode,
        }
        if num_envs < 1:
            raise UserError(f"num_envs is {num_envs}: at least one environment is needed")
        if max_episode_steps is not None and max_episode_steps < 1:
            raise UserError(f"max_episode_steps is {max_episode_steps}: an episode has at least one step")
        name = task or self.morphology.task
        if not name:
            raise UserError(
                f"body {self.morphology.name!r} has no training task yet: choose a Centipede, or name a task"
            )
        self.model = self.morphology.compile()
        self.robot = find_robot(self.model, root_body or self.morphology.root_body, f"body {self.morphology.name!r}")
        task_type, options = task_class(name), TaskOptions.of(task_options)
        self.model = task_type.prepare(self.morphology, self.model, self.robot, options)
        self._task = task_type(self.morphology, self.model, num_envs, self.robot, options)
        self.physics = BatchedPhysics(
            self.model, num_envs, self._task.frame_skip, num_threads, keyframe=self._task.keyframe
        )
        self._observer = self._make_observer(features)
        self.control_map = ControlMap(self.model, self.robot, self._task.keyframe)
        self.faults = MotorFaults(num_envs, len(self.robot.controls), options)
        self._outputs = self._robot_outputs()
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.dt = self.model.opt.timestep * self._task.frame_skip
        self.generators: list[np.random.Generator] = []
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._observations = np.zeros((num_envs, self.layout.size), dtype=np.float32)
        self._set_spaces()
        self.render_mode = render_mode
        self._renderer = Renderer(self.model, render_mode, num_envs) if render_mode else None

    def _make_observer(self, features: str) -> PaperObserver | GeneralObserver:
        if features not in FEATURES:
            raise UserError(f"features is {features!r}: {nearest(features, FEATURES)}")
        if features == "auto":
            features = "paper" if self.morphology.node_class(self.model) is not None else "general"
        if features == "paper":
            return PaperObserver(self.model)
        return GeneralObserver(self.model, self.robot, command=self._task.command is not None)

    def _robot_outputs(self) -> np.ndarray:
        """Return which actuator outputs are the robot's, in their order."""
        model = self.model
        first, count = model.actuator_outadr, model.actuator_outnum
        outputs = [first[a] + i for a in np.unique(self.robot.actuators) for i in range(count[a])]
        return np.array(outputs, dtype=np.intp)

    def _observe(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        return self._observer.observe(self.physics, rows, self._task.command)

    def _set_spaces(self) -> None:
        box = gymnasium.spaces.Box
        self.single_observation_space = box(-np.inf, np.inf, (self.layout.size,), np.float32)
        self.single_action_space = box(-1.0, 1.0, (len(self.robot.controls),), np.float32)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, self.num_envs)
        self.metadata = {
            "render_modes": ["human", "rgb_array"],
            "render_fps": round(1 / self.dt),
            "autoreset_mode": AutoresetMode.SAME_STEP,
        }

    @property
    def layout(self) -> ObservationLayout:
        """What the D columns of an observation are."""
        return self._observer.layout

    @property
    def mass(self) -> float:
        """Mass of the robot [kg], without what else is in its model."""
        return float(self.model.body_subtreemass[self.robot.root_body])

    @property
    def body_envs(self) -> tuple[LocomotionVectorEnv, ...]:
        """The environments by body: this one alone. See `MultiBodyVectorEnv`."""
        return (self,)

    @property
    def body_of_env(self) -> np.ndarray:
        """Index into `body_envs` of every environment, (N,) int64: zeros."""
        return np.zeros(self.num_envs, dtype=np.int64)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a new episode everywhere.

        Args:
            seed: environment i draws from a generator seeded with `seed + i`, or `seed[i]`; `None` goes on with the
                generators it has.
            options: not used.

        Returns:
            Observations (N, D) float32, and an empty dict.
        """
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, (int, np.integer)) else seed
        if seeds is None:
            seeds = [None] * self.num_envs
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        fresh = not self.generators
        for env, value in enumerate(seeds):
            if fresh:
                self.generators.append(seeding.np_random(value)[0])
            elif value is not None:
                self.generators[env] = seeding.np_random(int(value))[0]
        for env in range(self.num_envs):
            self._start_episode(env)
        self._observations = self._observe()
        self._render_if_human()
        return self._observations.copy(), {}

    def _start_episode(self, env: int) -> None:
        for _ in range(MAX_START_DRAWS):
            self.physics.place(env, *self._task.draw_start(self.generators[env]))
            if self._task.accepts_start(self.physics.xpos[env]):
                break
        else:
            raise RuntimeError(f"body {self.morphology.name!r}: no start state was accepted in {MAX_START_DRAWS} draws")
        self.physics.start(env)
        self._task.begin(env, self.physics, self.generators[env])
        self.faults.begin(env, self.generators[env])
        self._elapsed[env] = 0

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance by one control step and restart the environments whose episode ends.

        Args:
            actions: (N, A), one column a control of the robot. Values beyond [-1, 1] are charged as they are; only
                what reaches the actuators is clipped.

        Returns:
            Observations (N, D) float32, after the restart where there was one; rewards (N,) float64; terminated and
            truncated (N,) bool; infos, see the class.
        """
        observations, rewards, terminated, truncated, infos = self.step_without_reset(actions)
        done = terminated | truncated
        if done.any():
            final_info = infos.copy()
            infos |= {"final_obs": observations, "_final_obs": done, "final_info": final_info, "_final_info": done}
            rows = np.flatnonzero(done)
            for env in rows.tolist():
                self._start_episode(env)
            observations = observations.copy()
            observations[rows] = self._observe(rows)
            self._observations[rows] = observations[rows]
        return observations, rewards, terminated, truncated, infos

    def step_without_reset(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance by one control step; like `step`, but ended episodes stay as they ended and infos lack `final_*`."""
        if not self.generators:
            raise gymnasium.error.ResetNeeded("call reset before step")
        actions = np.asarray(actions, dtype=np.float64)
        if actions.shape != self.action_space.shape:
            raise ValueError(f"actions have the shape {actions.shape}, not {self.action_space.shape}")
        with np.errstate(invalid="ignore", over="ignore"):  # a diverged state is dealt with below
            self.physics.step(self.control_map.control(self.faults.apply(actions, self._elapsed)))
            outcome = self._task.step(self.physics, actions)
            rewards = np.sum(list(outcome.reward_terms.values()), axis=0)
            power = np.abs(self.physics.actuator_force * self.physics.actuator_velocity)
            power = power.take(self._outputs, axis=1).sum(axis=1)  # indexing may lay it out so that sums round apart
            observations = self._observe()
        self._elapsed += 1
        infos: dict[str, Any] = {**outcome.reward_terms, "x_velocity": outcome.x_velocity}
        infos["x_position"] = outcome.x_position.copy()  # the task may hold on to its array
        infos["energy"] = power * self.dt
        unstable = self.physics.warnings.any(axis=1) | ~np.isfinite(rewards) | ~np.isfinite(observations).all(axis=1)
        infos["unstable"] = unstable
        if unstable.any():
            for values in (rewards, *outcome.reward_terms.values(), infos["x_velocity"], infos["energy"]):
                values[unstable] = 0.0
            infos["x_position"][~np.isfinite(infos["x_position"])] = 0.0
            observations[unstable] = self._observations[unstable]
        terminated = unstable.copy()
        for mask in outcome.failures.values():
            terminated |= mask
        truncated = np.zeros(self.num_envs, dtype=bool)
        if self.max_episode_steps is not None:
            truncated = (self._elapsed >= self.max_episode_steps) & ~terminated
        if terminated.any() or truncated.any():
            infos["termination_reason"] = self._reasons(terminated, unstable, outcome)
        self._observations = observations
        self._render_if_human()
        return observations.copy(), rewards, terminated, truncated, infos

    def _reasons(self, terminated: np.ndarray, unstable: np.ndarray, outcome: Outcome) -> np.ndarray:
        reasons = np.full(self.num_envs, "", dtype=object)
        for env in np.flatnonzero(terminated).tolist():
            if unstable[env]:
                warnings = self.physics.warning_names(env)
                reasons[env] = "unstable: " + ", ".join(warnings) if warnings else _NOT_FINITE
            else:
                reasons[env] = next(reason for reason, mask in outcome.failures.items() if mask[env])
        return reasons

    def get_state(self) -> dict[str, Any]:
        """Return everything that the next steps depend on; `set_state` continues from it bit for bit.

        Returns:
            Arrays by name, and under `rng` a list of N JSON-able states of the generators.
        """
        task = {f"task/{name}": array for name, array in self._task.get_state().items()}
        task |= {f"fault/{name}": array for name, array in self.faults.get_state().items()}
        return {
            "physics": self.physics.get_state(),
            "elapsed": self._elapsed.copy(),
            "observations": self._observations.copy(),
            **task,
            "rng": [generator.bit_generator.state for generator in self.generators],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Put back what `get_state` of an environment with the same body and N returned.

        Raises:
            ValueError: the state is of another body or number of environments.
        """
        if state["observations"].shape != self._observations.shape or len(state["rng"]) not in (0, self.num_envs):
            raise ValueError(
                f"state of {len(state['rng'])} environments with {state['observations'].shape[1:]} columns; "
                f"these are {self.num_envs} with {self._observations.shape[1:]}"
            )
        self.physics.set_state(state["physics"])
        self._elapsed = state["elapsed"].copy()
        self._observations = state["observations"].copy()
        self._task.set_state({name[5:]: array for name, array in state.items() if name.startswith("task/")})
        self.faults.set_state({name[6:]: array for name, array in state.items() if name.startswith("fault/")})
        if len(self.generators) != len(state["rng"]):
            self.generators = [seeding.np_random(0)[0] for _ in state["rng"]]
        for generator, value in zip(self.generators, state["rng"], strict=True):
            generator.bit_generator.state = value

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": self._arguments, "state": self.get_state(), "spec": self.spec}

    def __setstate__(self, pickled: dict[str, Any]) -> None:
        LocomotionVectorEnv.__init__(self, **pickled["arguments"])  # subclasses may take other arguments
        self.set_state(pickled["state"])
        self.spec = pickled["spec"]

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Draw every environment: N images (480, 640, 3) uint8, or `None` in human mode."""
        return self._renderer.render(self.physics.data) if self._renderer else None

    def _render_if_human(self) -> None:
        if self.render_mode == "human":
            self.render()

    def close_extras(self, **kwargs: Any) -> None:
        """End the physics threads and close the renderer."""
        self.physics.close()
        if self._renderer:
            self._renderer.close()
