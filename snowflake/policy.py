"""Actor and critic for one or several bodies, as a Stable-Baselines3 ``ActorCriticPolicy``."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from torch.nn import functional as F

from agents.errors import UserError
from snowflake.compilation import NetworkCalls
from snowflake.config import PolicyConfig
from snowflake.files import RECIPE_FILE, read_tensors
from snowflake.freezing import freeze, trainable_parameters
from snowflake.graph import MorphologyGraph
from snowflake.networks import Network, build_actor, build_critic, map_log_std, map_mlp
from snowflake.networks.memory import Past, State
from snowflake.numerics import find_recipe, unit
from snowflake.precision import PolicyNumerics, load_state, mean_std, numerics_of
from snowflake.prepared import PreparedBatch, Runner
from snowflake.remembering import Remembering

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_UNIT_MARK = "unit_scaled"


def spaces_for(graphs: Sequence[MorphologyGraph]) -> tuple[spaces.Box, spaces.Box]:
    """Observation and action space shared by ``graphs``.

    The widest body's, and with several bodies one more observation column on the right, the body's index.
    """
    obs_dim = max(g.obs_dim for g in graphs) + (len(graphs) > 1)
    observation_space = spaces.Box(-np.inf, np.inf, (obs_dim,), np.float32)
    return observation_space, spaces.Box(-1.0, 1.0, (max(g.act_dim for g in graphs),), np.float32)


class GraphActorCriticPolicy(Remembering, ActorCriticPolicy):
    """Diagonal Gaussian policy over the actuators of one or several bodies.

    ``actor`` holds all that acting needs (weights, log standard deviation, observation statistics) and fits any
    body of the same feature set; ``critic`` belongs to training. The two have an optimiser each, which hold
    trainable parameters only (Snowflake, Blake et al. 2021).

    Args:
        observation_space: Box ``(D,)``; with several bodies the last column is the index of the body.
        action_space: Box ``(A,)``, the largest body's; columns beyond a body's own actuators are ignored.
        lr_schedule: actor's step size as a function of the remaining progress, 1 to 0.
        graphs: morphology graph of each body.
        config: networks, freezing, log standard deviation.
        seed: seed of the initial weights.
        critic_learning_rate: the critic's Adam step size.
        batch_size: transitions of a minibatch; only the gradients of unit-scaled networks depend on it.
        use_sde: Stable-Baselines3 passes it; must be False.

    Shapes:
        observations ``(N, D)`` float32, actions ``(N, A)``, values and log-probabilities ``(N,)``.
    """

    action_space: spaces.Box
    action_mask: torch.Tensor

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Any,
        *,
        graphs: Sequence[MorphologyGraph],
        config: PolicyConfig,
        seed: int = 0,
        critic_learning_rate: float = 3e-4,
        batch_size: int = 256,
        use_sde: bool = False,
    ) -> None:
        if use_sde:
            raise UserError("use_sde is not supported: the policy is a diagonal Gaussian")
        self.graphs = tuple(graphs)
        self.config = config
        self.seed = seed
        self.critic_learning_rate = critic_learning_rate
        self.batch_size = batch_size
        super().__init__(observation_space, action_space, lr_schedule, optimizer_kwargs={"eps": 1e-8, "fused": True})

    def _build(self, lr_schedule: Any) -> None:
        """Create actor, critic and their optimisers (the one method that SB3's constructor leaves to us)."""
        generator = torch.Generator().manual_seed(self.seed)
        self.actor = build_actor(self.graphs, self.config, generator)
        self.critic = build_critic(self.graphs, self.config, generator)
        self.numerics: PolicyNumerics | None = None
        """How the networks are computed; None in 32 bits."""
        if self.unit_scaled:
            for network in (self.actor, self.critic):
                unit.to_unit(network, self.batch_size, generator)
                # Stands in the state dict, so that no checkpoint is taken for one of the other parametrisation.
                network.register_buffer(_UNIT_MARK, torch.ones((), dtype=torch.uint8))
        freeze(self.actor, self.config.freeze, train_node_table=self.config.train_node_table)
        freeze(self.critic, self.config.freeze_critic)
        mask = torch.zeros(len(self.graphs), self.action_space.shape[0])
        for k, graph in enumerate(self.graphs):
            mask[k, : graph.act_dim] = 1.0
        self.register_buffer("action_mask", mask, persistent=False)  # (bodies, A)
        self.calls = NetworkCalls(self.actor, self.critic)
        self.optimizer = torch.optim.Adam(self._groups(self.actor, lr_schedule(1)), **self.optimizer_kwargs)
        rate = self.critic_learning_rate
        self.critic_optimizer = torch.optim.Adam(self._groups(self.critic, rate), eps=1e-5, fused=True)

    @property
    def unit_scaled(self) -> bool:
        """Whether the networks are unit-scaled (:mod:`snowflake.numerics.unit`)."""
        return self.config.parametrization == "unit"

    def _groups(self, network: Network, rate: float) -> list[dict[str, Any]]:
        """Groups of trainable parameters for Adam."""
        if self.unit_scaled:
            return unit.parameter_groups(network, rate)
        return [{"params": trainable_parameters(network), "lr": rate}]

    def loss_factors(self, batch_size: int) -> tuple[float, float]:
        """By what to multiply the actor's and the critic's loss of a minibatch: 1, unless they are unit-scaled."""
        if not self.unit_scaled:
            return 1.0, 1.0
        return unit.loss_factor(batch_size, mean_std(self.actor.log_std)), unit.loss_factor(batch_size)

    # --- precision ----------------------------------------------------------------------------------------------

    def set_precision(self, recipe: str, *, backend: str = "auto", sampling: str = "training") -> None:
        """Compute the linear layers of actor and critic by a recipe from now on. Once, on the policy's device.

        Args:
            recipe: a name; ``fp32`` leaves everything as it is.
            backend: auto, emulate, scaled_mm, triton or native.
            sampling: which tensors statistics see: training (differentiated ones), always, or off.

        Raises:
            UserError: no such recipe or backend; one that does not suit the networks or the device.
        """
        if find_recipe(recipe).converts:
            networks = {"actor": self.actor, "critic": self.critic}
            unit_or_standard = self.config.parametrization
            self.numerics = numerics_of(
                networks, recipe, backend=backend, parametrization=unit_or_standard, sampling=sampling
            )

    # --- distribution -------------------------------------------------------------------------------------------

    def body_index(self, obs: torch.Tensor) -> torch.Tensor:
        """Index of the body of each row: the last column with several bodies, else 0. ``(N,)`` int64."""
        if len(self.graphs) == 1:
            return torch.zeros(obs.shape[0], dtype=torch.long, device=obs.device)
        return obs[:, -1].long()

    def prepare(self, obs: torch.Tensor, network: Network, runner: Runner | None = None) -> PreparedBatch:
        """What the actor or the critic makes of observations ``(N, D)`` before its first trainable parameter.

        With a runner, for an update: threads share the work, and there are no gradients.
        """
        body = self.body_index(obs) if len(self.graphs) > 1 else None
        if runner is None:
            return PreparedBatch.of(network, obs, body)
        with torch.no_grad():
            return PreparedBatch.of(network, obs, body, runner if self.splits_batches else None)

    def rows_at_once(self, network: Network, size: int) -> int:
        """Into parts of how many rows a minibatch of ``size`` is cut."""
        return network.rows_at_once() if self.splits_batches else size

    @property
    def splits_batches(self) -> bool:
        """Whether an update cuts minibatches into parts: on the CPU, uncompiled, without quantised layers."""
        whole = self.numerics is not None and self.numerics.whole_batches
        return self.action_mask.device.type == "cpu" and not self.calls.compiled and not whole

    def distribution(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Mean, log standard deviation and mask of real actuators, each ``(N, A)``; padded entries are 0.

        Of a policy with memory, at the start of an episode.
        """
        prepared = self.prepare(obs, self.actor)
        if self.has_memory:
            prepared = self.recall(prepared, Past.now(self.initial_state(len(obs)), None))
        mean, log_std, mask = self.distribution_of(prepared)
        return mean, log_std.expand_as(mean), mask.expand_as(mean)

    def distribution_of(self, prepared: PreparedBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The same, of observations that were prepared for the actor; the last two ``(A,)`` with one body."""
        if prepared.body is None and prepared.parts[0].rows is None:
            (part,) = prepared.parts
            return *self.calls.distribution(part.tensors, part.body), self.action_mask[part.body]
        width = self.action_mask.shape[1]
        means, log_stds, masks = [], [], []
        distributions = self.calls.distributions([p.tensors for p in prepared.parts], [p.body for p in prepared.parts])
        for part, (mean, log_std) in zip(prepared.parts, distributions, strict=True):
            pad = (0, width - mean.shape[1])
            means.append(F.pad(mean, pad))
            log_stds.append(F.pad(log_std, pad).expand_as(means[-1]))
            masks.append(self.action_mask[part.body].expand_as(means[-1]))
        return prepared.join(means), prepared.join(log_stds), prepared.join(masks)

    @staticmethod
    def log_prob(actions: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Log-density of ``actions`` under the diagonal Gaussian, summed over real actuators. ``(N,)``."""
        z = (actions - mean) * (torch.exp(-log_std) * mask)
        return -0.5 * z.square().sum(-1) - ((log_std + _LOG_SQRT_2PI) * mask).sum(-1)

    @staticmethod
    def entropy(log_std: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Entropy of the diagonal Gaussian in nats, summed over real actuators. ``(N,)``."""
        return ((log_std + 0.5 + _LOG_SQRT_2PI) * mask).sum(-1)

    # --- acting and evaluating ----------------------------------------------------------------------------------

    def act(
        self,
        obs: torch.Tensor,
        state: State | None = None,
        episode_start: torch.Tensor | None = None,
        *,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
        with_value: bool = True,
        deployed: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, State]:
        """One inference call for all environments.

        Args:
            obs: ``(N, D)`` float32.
            state: memory of the policy, which is brought up to date in place and returned; None or empty to begin.
            episode_start: ``(N,)`` bool, rows whose memory is to be cleared.
            deterministic: take the mean instead of a sample.
            generator: source of the samples; the global one if None.
            with_value: also compute the value.
            deployed: see :meth:`initial_state`, for a state that begins here.

        Returns:
            Actions ``(N, A)`` (unclipped), values ``(N,)`` or None, log-probabilities ``(N,)``, state.
        """
        prepared, past = self.prepare(obs, self.actor), None
        if self.has_memory:
            past = Past.now(state or self.initial_state(len(obs), deployed=deployed), episode_start)
            prepared = self.recall(prepared, past)
        mean, log_std, mask = self.distribution_of(prepared)
        actions = mean
        if not deterministic:
            noise = torch.empty_like(mean).normal_(generator=generator)
            actions = mean + noise * torch.exp(log_std) * mask
        if past is not None:
            past.done(actions)
        values = self.predict_values(obs) if with_value else None
        return actions, values, self.log_prob(actions, mean, log_std, mask), past.state if past else state or {}

    def predict_values(self, obs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no dict observations
        """Value of each observation, ``(N,)``."""
        return self.value_of(self.prepare(obs, self.critic))

    def value_of(self, prepared: PreparedBatch) -> torch.Tensor:
        """Value of observations that were prepared for the critic, ``(N,)``."""
        parts = prepared.parts
        return prepared.join(self.calls.values([part.tensors for part in parts], [part.body for part in parts]))

    def action_log_prob(self, obs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of ``actions`` (actor only), each ``(N,)``."""
        return self.action_log_prob_of(self.prepare(obs, self.actor), actions)

    def action_log_prob_of(self, prepared: PreparedBatch, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The same, of observations that were prepared for the actor."""
        mean, log_std, mask = self.distribution_of(prepared)
        log_prob = self.log_prob(actions, mean, log_std, mask)
        return log_prob, self.entropy(log_std, mask).expand_as(log_prob)

    def evaluate_actions(  # type: ignore[override]  # no dict observations
        self, obs: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Values, log-probabilities and entropies, each ``(N,)`` (SB3's signature)."""
        log_prob, entropy = self.action_log_prob(obs, actions)
        return self.predict_values(obs), log_prob, entropy

    def forward(
        self, obs: torch.Tensor, deterministic: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Actions, values and log-probabilities (SB3's signature)."""
        actions, values, log_prob, _ = self.act(obs, deterministic=deterministic)
        assert values is not None
        return actions, values, log_prob

    def _predict(  # type: ignore[override]  # no dict observations
        self, observation: torch.Tensor, deterministic: bool = False
    ) -> torch.Tensor:
        return self.act(observation, deterministic=deterministic, with_value=False)[0]

    @torch.no_grad()
    def update_normalizers(self, obs: torch.Tensor, *, actor: bool = True) -> None:
        """Add observations ``(N, D)`` to the running statistics of the critic and, unless it rests, of the actor."""
        body = self.body_index(obs)
        for k in range(len(self.graphs)):
            rows = obs if len(self.graphs) == 1 else obs[body == k]
            if len(rows):
                if actor:
                    self.actor.update_normalizer(rows, k)
                self.critic.update_normalizer(rows, k)

    # --- other bodies -------------------------------------------------------------------------------------------

    @classmethod
    def for_graphs(
        cls, graphs: Sequence[MorphologyGraph], config: PolicyConfig, *, seed: int = 0
    ) -> GraphActorCriticPolicy:
        """A fresh policy for ``graphs``, outside any training."""
        observation_space, action_space = spaces_for(graphs)
        return cls(observation_space, action_space, lambda _: 0.0, graphs=graphs, config=config, seed=seed)

    def for_bodies(
        self, graphs: Sequence[MorphologyGraph], *, mlp_transfer: bool = False, precision: str | None = None
    ) -> GraphActorCriticPolicy:
        """This actor on other bodies, without retraining (zero-shot). The critic is left behind (a fresh one).

        Args:
            graphs: the bodies.
            mlp_transfer: map a flat actor by node class and column (:mod:`snowflake.networks.mlp_transfer`), which is
                otherwise refused; graph actors need no map.
            precision: recipe; this policy's own, with its choices of formats, if None.

        Raises:
            UserError: the bodies have another feature set or node vocabulary, or the actor is bound to its body.
        """
        source = self.graphs[0]
        flat = self.config.network == "mlp"
        if flat and not mlp_transfer:
            raise UserError(
                f"the mlp policy is bound to its body {source.name!r}: train a graph policy (--method snowflake or "
                "nervenet) to transfer, or map this one by node class with `snowflake transfer --mlp-transfer`"
            )
        for graph in graphs:
            source.check_compatible(graph)
        config = self.config
        fresh = dataclasses.replace(config, critic="auto", freeze_critic=())
        policy = GraphActorCriticPolicy.for_graphs(graphs, fresh, seed=self.seed)
        state = self.actor.state_dict()
        if flat:
            state = map_mlp(state, source, graphs[0])
        elif config.log_std == "per_actuator":
            state = map_log_std(state, source, graphs[0])
        policy.actor.load_state_dict(state, strict=True)
        policy = policy.to(self.device)
        if precision is None and self.numerics is not None:
            policy.numerics = self.numerics.again({"actor": policy.actor, "critic": policy.critic})
        elif precision is not None:
            policy.set_precision(precision, sampling="off")
        return policy

    def load_actor(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load an actor's ``state_dict`` strictly.

        Raises:
            UserError: names or shapes differ: the checkpoint is of another node type or network.
        """
        self._load(self.actor, "actor", state)

    def load_critic(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load a critic's ``state_dict`` strictly; see :meth:`load_actor`."""
        self._load(self.critic, "critic", state)

    def load_recipe_state(self, folder: Path) -> None:
        """Take over what a checkpoint's recipe has learned, if this policy has the same; else say that it is left out.

        Raises:
            UserError: it is damaged, or does not fit.
        """
        file = folder / RECIPE_FILE
        words = load_state(self.numerics, read_tensors(file) if file.exists() else {})
        if words:
            print(words, file=sys.stderr)

    def _load(self, module: torch.nn.Module, what: str, state: Mapping[str, torch.Tensor]) -> None:
        stored = "unit" if _UNIT_MARK in state else "standard"
        if stored != self.config.parametrization:
            raise UserError(
                f"the checkpoint's {what} has parametrization {stored!r}, and policy.parametrization is "
                f"{self.config.parametrization!r}: its weights mean something else there, open it with its own"
            )
        try:
            module.load_state_dict(dict(state), strict=True)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"the checkpoint's {what} does not fit body {self.graphs[0].name!r}: {reason}") from error
