"""How close the policy of a run stays to itself when SparQ reads its cache: step by step, and over whole episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from agents.errors import UserError
from snowflake.evaluation.controllers import policy_controller
from snowflake.evaluation.rollout import evaluate
from snowflake.evaluation.statistics import paired_difference
from snowflake.networks.memory import Past
from snowflake.networks.memory.sparq import SparqResult
from snowflake.networks.memory.traffic import Traffic, dense_traffic, sparq_traffic
from snowflake.networks.memory.window import WindowMemory
from snowflake.policy import GraphActorCriticPolicy
from snowflake.run import Run

BOOTSTRAP = 2000
"""Draws of the bootstrap."""

Told = Callable[[str], None]


class Record(NamedTuple):
    """What a policy saw and did: observations (T, N, D), whether they start an episode (T, N), actions (T, N, A), and
    mean (T, N, A) and log standard deviation (A,) or (T, N, A) of its actions."""

    obs: Tensor
    starts: Tensor
    actions: Tensor
    mean: Tensor
    log_std: Tensor


def check_window(run: Run) -> None:
    """Require that the run's policy has a cache.

    Raises:
        UserError: it has not.
    """
    if run.config.policy.memory != "window":
        raise UserError(
            f"{run.path} has policy.memory = {run.config.policy.memory!r}: bench attention is for runs that were "
            "trained with --memory window"
        )


def variant(policy: GraphActorCriticPolicy, **changes: Any) -> GraphActorCriticPolicy:
    """The same weights under another window or another SparQ, on which no parameter depends."""
    config = dataclasses.replace(policy.config, **changes)
    other = GraphActorCriticPolicy.for_graphs(policy.graphs, config, seed=policy.seed)
    other.load_actor(policy.actor.state_dict())
    other.set_training_mode(False)
    return other


def sparse_variant(policy: GraphActorCriticPolicy, r: int, k: int) -> GraphActorCriticPolicy:
    """The same weights under SparQ with r, k and k / 4 local positions, whatever the size of the cache."""
    return variant(policy, sparq="eval", sparq_r=r, sparq_k=k, sparq_local=k // 4, sparq_min_bytes=0)


@torch.no_grad()
def distributions(
    policy: GraphActorCriticPolicy, obs: Tensor, starts: Tensor, actions: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and log standard deviation of a policy's actions along given observations and actions; see `Record`."""
    state, means, log_std = policy.initial_state(obs.shape[1], deployed=True), [], torch.zeros(0)
    for t in range(len(obs)):
        past = Past.now(state, starts[t])
        mean, log_std, _ = policy.distribution_of(policy.recall(policy.prepare(obs[t], policy.actor), past))
        past.done(actions[t])
        means.append(mean)
    return torch.stack(means), log_std


@torch.no_grad()
def record(run: Run, policy: GraphActorCriticPolicy, *, n_envs: int, steps: int, seed: int) -> Record:
    """Play the first body of a run with sampled actions and write down what happens."""
    env = run.make_env(run.morphologies[0], n_envs, num_threads=run.config.env.num_threads)
    generator, state, rows = torch.Generator().manual_seed(seed), None, []
    try:
        obs, starts = env.reset(seed=seed)[0], np.ones(n_envs, bool)
        for _ in range(steps):
            seen, begun = torch.as_tensor(obs), torch.as_tensor(starts)
            actions, _, _, state = policy.act(seen, state, begun, generator=generator, with_value=False)
            rows.append((seen, begun, actions))
            obs, _, terminated, truncated, _ = env.step(actions.numpy())
            starts = terminated | truncated
    finally:
        env.close()
    seen, begun, actions = (torch.stack(column) for column in zip(*rows, strict=True))
    return Record(seen, begun, actions, *distributions(policy, seen, begun, actions))


class _Sums:
    """Sums over steps of what SparQ shows to its probe."""

    def __init__(self) -> None:
        self.totals: dict[str, float] = {}
        self.count = 0

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor, valid: Tensor, result: SparqResult) -> None:
        logits = (q @ keys.mT / q.shape[-1] ** 0.5).masked_fill(~valid[..., None, :], -torch.inf)
        weights = logits.softmax(-1)
        chosen = result.chosen[..., None, :].expand(*weights.shape[:-1], -1)
        mass = (weights.gather(-1, chosen) * result.used[..., None, :]).sum(-1)
        exact = weights @ values
        error = (result.output - exact).norm(dim=-1) / exact.norm(dim=-1).clamp_min(1e-12)
        found = {"mass": mass, "alpha": result.alpha, "coverage": result.coverage, "output_error": error}
        for name, value in found.items():
            self.totals[name] = self.totals.get(name, 0.0) + float(value.mean())
        self.count += 1


def compare(policy: GraphActorCriticPolicy, other: GraphActorCriticPolicy, taken: Record) -> dict[str, float]:
    """How far another form of a policy acts from it, along what the policy did.

    Returns:
        ``kl``: mean of KL(policy || other) in nats over all steps; ``kl_95``: its 95th percentile; ``action_error``:
        root mean square of the difference of the means, in standard deviations; and under SparQ the means over steps
        and heads of ``mass`` (exact attention on the chosen positions), ``alpha`` (the approximate one), ``coverage``
        (of the query by its components) and ``output_error`` (relative, of a head's output). The masses are of the
        uncapped logits.
    """
    sums = _Sums()
    layers = cast(WindowMemory, other.actor.memory.core).layers()  # type: ignore[union-attr]
    for layer in layers:
        layer.probe = sums
    mean, log_std = distributions(other, taken.obs, taken.starts, taken.actions)
    shift = (mean - taken.mean) * torch.exp(-taken.log_std)
    kl = 0.5 * shift.double().square().sum(-1)  # the two have the same standard deviation
    assert torch.equal(log_std, taken.log_std)
    result = {
        "kl": float(kl.mean()),
        "kl_95": float(kl.flatten().quantile(0.95)),
        "action_error": float(shift.square().mean().sqrt()),
    }
    return result | {name: total / sums.count for name, total in sums.totals.items()}


def grid(
    policy: GraphActorCriticPolicy, taken: Record, rs: Sequence[int], ks: Sequence[int], told: Told
) -> list[dict[str, Any]]:
    """Compare SparQ with dense attention over r and k, and a window of as many elements with both.

    Returns:
        One dict an (r, k): those, `compare`'s figures, ``elements`` and ``sectors`` (how many times less is moved than
        by dense attention) and ``window_kl``, ``window_k`` of the window.
    """
    config, found = policy.config, []
    size, count = config.head_size, config.memory_window
    dense = dense_traffic(size, count, 4)
    for r in rs:
        for k in ks:
            told(f"r = {r}, k = {k}")
            moved = sparq_traffic(size, count, 4, r, k, both_layouts=config.sparq_layout == "both")
            short = int(max(1, min(count, (moved[0] - 2 * size) // (2 * size))))
            windowed = compare(policy, variant(policy, sparq="off", memory_window=short), taken)
            row: dict[str, Any] = {"r": r, "k": k, **compare(policy, sparse_variant(policy, r, k), taken)}
            row |= {"elements": dense[0] / moved[0], "sectors": dense[1] / moved[1]}
            found.append(row | {"window_k": short, "window_kl": windowed["kl"]})
    return found


def closed_loop(
    run: Run, policy: GraphActorCriticPolicy, r: int, k: int, *, episodes: int, seed: int
) -> dict[str, Any]:
    """Play whole episodes dense and with SparQ from the same start states, the first body of the run, mean actions.

    Returns:
        ``dense`` and ``sparse``: mean returns; ``ratio``, ``low`` and ``high``: of the two, with a 95 % interval from a
        bootstrap over pairs of episodes; ``difference`` and its ``standard_error``; ``elements`` and ``sectors``: how
        many times less was moved, counted; ``sectors_with_copies``: the same with the second copy of each new key, at
        a sector a number.
    """
    make_env = partial(run.make_env, run.morphologies[0], num_threads=run.config.env.num_threads)
    returns, counts = [], []
    for form in (variant(policy, sparq="off"), sparse_variant(policy, r, k)):
        traffic = Traffic()
        for layer in cast(WindowMemory, form.actor.memory.core).layers():  # type: ignore[union-attr]
            layer.traffic = traffic
        batch = evaluate(
            policy_controller(form),
            run.morphologies[0],
            episodes=episodes,
            seed=seed,
            max_episode_steps=run.config.env.max_episode_steps,
            make_env=make_env,
        )
        returns.append(batch.returns)
        counts.append(traffic)
    dense, sparse = returns
    draws = np.random.default_rng(seed).integers(episodes, size=(BOOTSTRAP, episodes))
    low, high = np.quantile(sparse[draws].mean(1) / dense[draws].mean(1), [0.025, 0.975])
    paired = paired_difference(sparse, dense)
    per = [np.array([c.elements, c.sectors, c.sectors + c.scattered]) / c.queries for c in counts]
    elements, sectors, copies = (per[0] / per[1]).tolist()
    return {
        "r": r,
        "k": k,
        "episodes": episodes,
        "dense": float(dense.mean()),
        "sparse": float(sparse.mean()),
        "ratio": float(sparse.mean() / dense.mean()),
        "low": float(low),
        "high": float(high),
        "difference": paired.mean,
        "standard_error": paired.standard_error,
        "elements": elements,
        "sectors": sectors,
        "sectors_with_copies": copies,
    }
