"""PPO on graph policies: Stable-Baselines3's algorithm with an inner loop on tensors."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from agents.errors import UserError
from envs.physics import available_cores
from snowflake.config import TrainConfig
from snowflake.graph import MorphologyGraph
from snowflake.policy import GraphActorCriticPolicy, State
from snowflake.ppo.activations import measure_activations
from snowflake.ppo.bad_numbers import (
    BadNumbers,
    Snapshot,
    fault_of_networks,
    fault_of_rollout,
    fault_of_statistics,
    fault_of_update,
)
from snowflake.ppo.buffer import ReturnScaler, RolloutBuffer
from snowflake.ppo.critic_warmup import update_critic
from snowflake.ppo.diagnostics import UpdateDiagnostics
from snowflake.ppo.episodes import EpisodeBuffer, collect_episodes
from snowflake.ppo.records import count_records, update_records
from snowflake.ppo.update import PPOUpdate, UpdateSettings, decayed_parameters, set_component_rates
from snowflake.ppo.vec_env import LocomotionVecEnv
from snowflake.ppo.workers import Workers
from snowflake.precision import scalars


class SnowflakePPO(PPO):
    """Proximal policy optimisation (Schulman et al. 2017) with SB3's constructor, ``learn``, callbacks and tags.

    What differs from SB3: the buffer lives on the training device; the environment gets the action as sampled (the
    control cost charges it, only what reaches ``ctrl`` is clipped); time limits are bootstrapped in one call; actor
    and critic have their own optimisers, so ``vf_coef`` has no effect; the actor's gradient is clipped alone;
    advantages are standardised once a batch and per body; every draw comes from this object's own generators;
    metrics of an iteration are written when it ends; ``save`` and ``load`` run no pickle.

    Args:
        policy: :class:`~snowflake.policy.GraphActorCriticPolicy` or a subclass.
        env: :class:`~snowflake.ppo.vec_env.LocomotionVecEnv`.
        timelimit_bootstrap: add the value of the last observation where an episode was truncated.
        scale_returns: divide rewards by the running standard deviation of the discounted return.
        weight_decay: L2 coefficient of the actor's loss.
        weight_decay_components: actor components that it acts on; all but ``log_std`` if none is named.
        component_learning_rates: constant step sizes of single actor components.
        collection: ``"whole_episodes"`` gathers whole episodes, see :mod:`snowflake.ppo.episodes`.
        step_accounting: ``"nominal"`` counts ``n_steps * n_envs`` steps for them, however many they were.
        mlp_update: ``"official"`` lets a flat actor descend its objective, as the official code does.
        diagnostics_every: updates between measurements of :mod:`snowflake.ppo.diagnostics`; 0 = off.
        activations_every: updates between measurements of :mod:`snowflake.ppo.activations`; 0 = off.
        update_threads: threads that share an update on the CPU; 0 = as many as torch's. No result depends on it.
        statistics_every: updates between readings of the statistics of quantised layers; 0 = never.
        on_non_finite: ``"stop"`` raises at numbers that are not finite, ``"skip"`` leaves the update out and counts it.
        **kwargs: SB3's, see :class:`stable_baselines3.PPO`.
    """

    env: LocomotionVecEnv  # type: ignore[assignment]
    policy: GraphActorCriticPolicy  # type: ignore[assignment]
    clip_range: Callable[[float], float]  # type: ignore[assignment]  # a number until SB3 has set itself up
    rollout_buffer: RolloutBuffer  # type: ignore[assignment]

    def __init__(
        self,
        policy: type[GraphActorCriticPolicy],
        env: LocomotionVecEnv,
        *args: Any,
        timelimit_bootstrap: bool = True,
        scale_returns: bool = False,
        weight_decay: float = 0.0,
        weight_decay_components: tuple[str, ...] = (),
        component_learning_rates: Mapping[str, float] | None = None,
        collection: str = "fixed",
        step_accounting: str = "real",
        mlp_update: str = "correct",
        diagnostics_every: int = 0,
        activations_every: int = 0,
        update_threads: int = 0,
        statistics_every: int = 10,
        on_non_finite: str = "stop",
        **kwargs: Any,
    ) -> None:
        self.timelimit_bootstrap = timelimit_bootstrap
        self.weight_decay, self.weight_decay_components = weight_decay, tuple(weight_decay_components)
        self.mlp_update, self.diagnostics_every = mlp_update, diagnostics_every
        self.activations_every = activations_every
        self.on_non_finite, self.skipped_updates = on_non_finite, 0
        self.collection, self.step_accounting = collection, step_accounting
        kwargs.setdefault("rollout_buffer_class", RolloutBuffer if collection == "fixed" else EpisodeBuffer)
        kwargs.setdefault("rollout_buffer_kwargs", {"body_of_env": env.body_of_env})
        super().__init__(policy, env, *args, **kwargs)
        set_component_rates(self.policy, component_learning_rates or {})
        decayed_parameters(self.policy, self.weight_decay_components)  # names a wrong component before the first step
        seed = 0 if self.seed is None else self.seed
        self.action_generator = torch.Generator(self.device).manual_seed(seed + 1)
        self.minibatch_generator = torch.Generator().manual_seed(seed + 2)
        self.return_scaler = ReturnScaler(env.num_envs, self.gamma) if scale_returns else None
        self.body_episodes: dict[str, deque[tuple[float, int]]] = {
            name: deque(maxlen=self._stats_window_size) for name in env.body_names
        }
        self.statistics_every = statistics_every
        self.workers = Workers(update_threads or torch.get_num_threads())
        self.unstable_resets = 0
        self.critic_warmup_left = 0
        """Updates to come that train the critic alone and leave every byte of the actor as it is."""
        self.memory: State = {}
        """Memory of the policy after the last step; empty before the first, and for a policy without."""
        self.iteration = 0
        self.milestones: dict[str, float] = {}
        self._rollout_statistics: dict[str, float] = {}
        self.compile_time_told = False

    @classmethod
    def from_config(
        cls, config: TrainConfig, env: LocomotionVecEnv, graphs: tuple[MorphologyGraph, ...]
    ) -> SnowflakePPO:
        """The algorithm that ``config`` describes, on ``env`` with one graph per body."""
        ppo = config.ppo
        rate = ppo.learning_rate
        schedule = (lambda left: rate * left) if ppo.learning_rate_schedule == "linear" else (lambda _: rate)
        ppo.check_rollout(env.num_envs)
        own = ("learning_rate", "learning_rate_schedule", "critic_learning_rate", "critic_warmup_updates")
        shared = {key: value for key, value in dataclasses.asdict(ppo).items() if key not in own}
        algorithm = cls(
            GraphActorCriticPolicy,
            env,
            learning_rate=schedule,
            **shared,
            statistics_every=config.numerics.statistics_every,
            update_threads=config.torch_threads or available_cores(),
            seed=config.seed,
            device="cpu" if config.device == "auto" else config.device,
            policy_kwargs={
                "graphs": graphs,
                "config": config.policy,
                "seed": config.seed,
                "critic_learning_rate": ppo.critic_learning_rate,
                "batch_size": ppo.batch_size,
            },
        )
        algorithm.policy.set_precision(config.precision, backend=config.numerics.backend)
        return algorithm

    def begin(self) -> None:
        """Reset the environments, as the first ``learn`` would, so that a checkpoint can be written before it."""
        self._last_obs = self.env.reset()
        self._last_episode_starts = np.ones(self.env.num_envs, bool)

    # --- rollout ------------------------------------------------------------------------------------------------

    def collect_rollouts(  # type: ignore[override]  # works with our environments and buffers only
        self, env: LocomotionVecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Fill the buffer with ``n_rollout_steps`` steps of every environment. False if a callback stops it."""
        if isinstance(rollout_buffer, EpisodeBuffer):
            nominal = self.step_accounting == "nominal"
            collected = collect_episodes(self, env, callback, rollout_buffer, nominal=nominal)
            self._rollout_statistics = collected or {}
            return collected is not None
        self.policy.set_training_mode(False)
        self.memory = self.memory or self.policy.initial_state(env.num_envs)
        rollout_buffer.reset(self.memory)
        callback.on_rollout_start()
        seconds = {"physics": 0.0, "inference": 0.0}
        sums: dict[str, float] = {}
        obs = self._tensor(self._last_obs)
        starts = self._tensor(self._last_episode_starts)
        while rollout_buffer.pos < n_rollout_steps:
            clock = time.perf_counter()
            with torch.no_grad():
                actions, values, log_probs, self.memory = self.policy.act(
                    obs, self.memory, starts, generator=self.action_generator
                )
            actions_host = actions.cpu().numpy()
            seconds["inference"] += time.perf_counter() - clock
            clock = time.perf_counter()
            step = env.step_batch(actions_host)
            seconds["physics"] += time.perf_counter() - clock
            self.num_timesteps += env.num_envs
            # Names of SB3's local variables, which callbacks read.
            rewards, dones, infos, new_obs = step.rewards, step.dones, env.sb3_infos(step), step.obs
            callback.update_locals(locals())
            if not callback.on_step():
                return False
            self._record_step(step, sums)
            stored = rewards if self.return_scaler is None else self.return_scaler(rewards, dones)
            assert values is not None
            rollout_buffer.add(obs, actions, self._bootstrap(self._tensor(stored), step), starts, values, log_probs)
            self._last_obs, self._last_episode_starts = new_obs, dones
            obs, starts = self._tensor(new_obs), self._tensor(dones)
        with torch.no_grad():
            last_values = self.policy.predict_values(obs)
        rollout_buffer.compute_returns_and_advantage(last_values, starts)
        count = n_rollout_steps * env.num_envs
        self._rollout_statistics = {f"reward/{k.removeprefix('reward_')}": v / count for k, v in sums.items()}
        self._rollout_statistics |= {f"time/fps_{k}": count / max(v, 1e-9) for k, v in seconds.items()}
        callback.update_locals(locals())
        callback.on_rollout_end()
        return True

    def _tensor(self, array: Any) -> torch.Tensor:
        return torch.as_tensor(np.asarray(array), dtype=torch.float32, device=self.device)

    def _bootstrap(self, rewards: torch.Tensor, step: Any) -> torch.Tensor:
        """Add the discounted value of the last observation where the time limit ended an episode."""
        rows = np.flatnonzero(step.truncated & ~step.terminated)
        if not self.timelimit_bootstrap or not len(rows):
            return rewards
        with torch.no_grad():
            values = self.policy.predict_values(self._tensor(step.final_obs[rows]))
        index = torch.as_tensor(rows, device=self.device)
        return rewards.index_add(0, index, self.gamma * values)

    def _record_step(self, step: Any, sums: dict[str, float]) -> None:
        """Statistics of one step: reward terms, ended episodes, unstable physics."""
        for name, values in step.terms.items():
            sums[name] = sums.get(name, 0.0) + float(values.sum())
        self.unstable_resets += int(step.unstable.sum())
        if step.episodes:
            self._update_info_buffer([info for _, info in step.episodes])
            for _, info in step.episodes:
                self.body_episodes[info["body"]].append((info["episode"]["r"], info["episode"]["l"]))

    # --- update -------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """One update on the buffer, then the statistics of observations move, then the iteration is logged."""
        fault = fault_of_rollout(self.rollout_buffer, self.env)
        if fault is None:
            before = Snapshot(self.policy) if self.on_non_finite == "skip" else None
            fault = self._train_critic() if self.critic_warmup_left else self._train_both()
            if fault is not None and before is not None:
                before.restore()
        if fault is not None:
            self._leave_out(fault)

    def _train_both(self) -> str | None:
        """One update of actor and critic; says what is not finite after it, and logs nothing in that case."""
        clock = time.perf_counter()
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        settings = UpdateSettings(
            batch_size=self.batch_size,
            n_epochs=self.n_epochs,
            clip_range=float(self.clip_range(self._current_progress_remaining)),
            ent_coef=self.ent_coef,
            max_grad_norm=self.max_grad_norm,
            target_kl=self.target_kl,
            weight_decay=self.weight_decay,
            weight_decay_components=self.weight_decay_components,
            mlp_update=self.mlp_update,
            recompute_log_prob=self.policy.numerics is not None or self.policy.unit_scaled,
            skip_nonfinite=self.policy.numerics is not None,
        )
        due = self.diagnostics_every and self.iteration % self.diagnostics_every == 0
        diagnostics = UpdateDiagnostics(self.policy, self.rollout_buffer.flat()) if due else None
        if self.activations_every and self.iteration % self.activations_every == 0:
            obs = self.rollout_buffer.flat().obs
            self._rollout_statistics |= measure_activations(self.policy, obs, self.batch_size, self.iteration)
        update = PPOUpdate(self.policy, settings, self.minibatch_generator, self.workers)
        try:
            statistics = update.run(self.rollout_buffer)
        except BadNumbers as error:
            return str(error)
        if fault := fault_of_update(update, statistics):
            return fault
        if diagnostics is not None:
            measured = diagnostics.measure(self.rollout_buffer.flat(), settings.clip_range)
            self._rollout_statistics |= {f"diagnostics/{name}": value for name, value in measured.items()}
        self._step_numerics(int(statistics["skipped_steps"]))
        self.policy.update_normalizers(self.rollout_buffer.obs.flatten(0, 1))
        self._n_updates += int(statistics["n_epochs"])
        seconds = time.perf_counter() - clock
        self._rollout_statistics["time/fps_update"] = self.n_steps * self.n_envs / max(seconds, 1e-9)
        self._rollout_statistics |= update_records(self, statistics, settings)
        self._log_iteration()
        return None

    def _train_critic(self) -> str | None:
        """One update of the warm-up: a fresh critic learns what the actor is worth before the actor moves."""
        clock = time.perf_counter()
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        statistics = update_critic(
            self.policy, self.rollout_buffer, self.batch_size, self.n_epochs, self.minibatch_generator, self.workers
        )
        if fault := fault_of_statistics(statistics) or fault_of_networks(self.policy):
            return fault
        self._step_numerics(0)
        self.policy.update_normalizers(self.rollout_buffer.obs.flatten(0, 1), actor=False)
        self.critic_warmup_left -= 1
        self._n_updates += self.n_epochs
        self._rollout_statistics["time/fps_update"] = self.n_steps * self.n_envs / (time.perf_counter() - clock)
        self._rollout_statistics |= {f"train/{name}": value for name, value in statistics.items()}
        self._log_iteration()
        return None

    def _update_learning_rate(self, optimizers: Any) -> None:
        """Set the scheduled rate; a group of unit-scaled parameters gets its share of it."""
        super()._update_learning_rate(optimizers)
        for group in self.policy.optimizer.param_groups:
            group["lr"] *= group.get("lr_factor", 1.0)

    def _step_numerics(self, skipped_steps: int) -> None:
        """Let formats change, between an update and the next rollout, and log what was seen."""
        numerics = self.policy.numerics
        if numerics is not None:
            numerics.skipped_steps += skipped_steps
            due = bool(self.statistics_every) and self.iteration % self.statistics_every == 0
            self._rollout_statistics |= scalars(numerics.step(), numerics.skipped_steps, layers=due)

    def _leave_out(self, fault: str) -> None:
        """End the run at numbers that are not finite, or count the update that was undone.

        Raises:
            BadNumbers: ``on_non_finite`` is ``"stop"``.
        """
        bodies = "" if "of body" in fault else f" (trained on {', '.join(self.env.body_names)})"
        told = f"training diverged at step {self.num_timesteps}: {fault} is not finite{bodies}"
        if self.on_non_finite == "stop":
            raise BadNumbers(told, self.iteration + 1)
        self.skipped_updates += 1
        print(f"{told}; update left out, {self.skipped_updates} so far", file=sys.stderr, flush=True)
        self._log_iteration()

    def dump_logs(self, iteration: int = 0) -> None:
        """SB3 calls this before the update; we write after it, so that an iteration's metrics share one step."""

    def _log_iteration(self) -> None:
        """Write the metrics of an iteration under one step."""
        for name, value in (self._rollout_statistics | count_records(self)).items():
            self.logger.record(name, value)
        self.iteration += 1
        super().dump_logs(self.iteration)

    # --- saving -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Write a complete checkpoint folder (see :mod:`snowflake.ppo.checkpoint`)."""
        from snowflake.ppo.checkpoint import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, env: Any = None, *args: Any, **kwargs: Any) -> SnowflakePPO:  # type: ignore[override]
        """Not available: a checkpoint lies in a run folder, which knows its bodies and config.

        Raises:
            UserError: always, with what to call instead.
        """
        raise UserError(
            f"SnowflakePPO.load({str(path)!r}): open the run instead: snowflake.load(RUN) for acting, "
            "`snowflake resume RUN` or snowflake.ppo.train.resume(RUN) for training"
        )
