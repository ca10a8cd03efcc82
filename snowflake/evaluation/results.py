"""What an evaluation found: episodes of four ways to act on each body, as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from snowflake.evaluation.range_share import RangeShare
from snowflake.evaluation.rollout import EpisodeBatch
from snowflake.evaluation.score import FORMULA, Expert, normalized_score
from snowflake.evaluation.siblings import SiblingOrders
from snowflake.evaluation.statistics import PairedDifference, paired_difference, summarize

LABELS = {
    "mean_action": "mean action",
    "stochastic": "stochastic",
    "zero_action": "zero action",
    "random": "random",
}
"""Ways to act, in the order of the tables: the policy twice, then the two that know nothing."""

POLICIES = ("mean_action", "stochastic")
BASELINES = ("zero_action", "random")
DETERMINISTIC = ("mean_action", "zero_action")
"""Ways to act that draw no random number."""

FIGURES = ("returns", "lengths", "distance", "speed", "cost_of_transport")
"""Attributes of ``EpisodeBatch`` that are summarised."""


@dataclass(frozen=True)
class BodyResult:
    """Episodes on one body, all ways to act from the same start states.

    Attributes:
        morphology: Name of the body.
        zero_shot: The policy was not trained on this body.
        model_hash: Hash of the compiled model.
        mass: Mass of the body [kg].
        episodes: Episodes by way to act (keys of ``LABELS``).
        outside: Share of the observations outside the range of training, by way to act of the policy.
        expert: What policies trained on this body reach, where such were given.
        siblings: The policy under other orders of siblings, where asked for.
        trained_earlier: The run was not trained on it, but the actor was, before it was finetuned.
    """

    morphology: str
    zero_shot: bool
    model_hash: str
    mass: float
    episodes: dict[str, EpisodeBatch]
    outside: dict[str, RangeShare] = field(default_factory=dict)
    expert: Expert | None = None
    siblings: SiblingOrders | None = None
    trained_earlier: bool = False

    @property
    def acquaintance(self) -> str:
        """What a label says of the policy and the body: nothing where the run was trained on it."""
        return "trained on earlier" if self.trained_earlier else "zero-shot" if self.zero_shot else ""

    def difference(self, policy: str, baseline: str) -> PairedDifference:
        """Paired difference of the return, ``policy`` minus ``baseline``, over the shared start states."""
        return paired_difference(self.episodes[policy].returns, self.episodes[baseline].returns)

    def word(self, policy: str) -> str:
        """What the policy does on this body, in a word; see :func:`verdict`."""
        return verdict(self.episodes[policy], [self.difference(policy, b) for b in BASELINES])

    def score(self, policy: str, baseline: str) -> float:
        """Normalised score against a baseline and the expert; NaN without one. See ``score.FORMULA``."""
        if self.expert is None:
            return math.nan
        return normalized_score(
            self.episodes[policy].returns, self.episodes[baseline].returns, self.expert.returns[policy]
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form with summaries, paired differences and every episode."""
        ways = {}
        for way, batch in self.episodes.items():
            entry: dict[str, Any] = {
                "deterministic": way in DETERMINISTIC,
                "summary": {name: vars(summarize(getattr(batch, name))).copy() for name in FIGURES},
                "falls": int(batch.fell.sum()),
                "steps": batch.steps,
                "episodes": batch.to_dict(),
            }
            if way in POLICIES:
                entry["word"] = self.word(way)
                entry["return_difference"] = {
                    b: {**vars(self.difference(way, b)), "word": self.difference(way, b).word} for b in BASELINES
                }
                if way in self.outside:
                    entry["outside_range"] = self.outside[way].to_dict()
                if self.expert is not None:
                    entry["normalized_score"] = {b: self.score(way, b) for b in BASELINES}
            ways[way] = entry
        return {
            "morphology": self.morphology,
            "zero_shot": self.zero_shot,
            **({"trained_earlier": True} if self.trained_earlier else {}),
            "model_hash": self.model_hash,
            "mass_kg": self.mass,
            "policies": ways,
            **({"expert": self.expert.to_dict()} if self.expert is not None else {}),
            **({"sibling_orders": self.siblings.to_dict()} if self.siblings is not None else {}),
        }


@dataclass(frozen=True)
class Result:
    """One evaluation or transfer of a checkpoint.

    Attributes:
        kind: ``evaluation`` or ``transfer``; also the stem of its files.
        run: Run folder, or ``pretrained:NAME``.
        checkpoint: Which checkpoint: ``best``, ``last`` or a step.
        trained_steps: Environment steps of training behind the checkpoint.
        episodes: Episodes per body and way to act.
        seed: Seed of the first start state; episode i starts from ``seed + i``.
        max_episode_steps: Time limit in control steps.
        bodies: One result per body; in a transfer the bodies of the training come first.
        provenance: Versions, hardware, threads and command.
        notes: Lines that the reader should know, for example that the critic was left behind.
    """

    kind: str
    run: str
    checkpoint: str
    trained_steps: int
    episodes: int
    seed: int
    max_episode_steps: int
    bodies: tuple[BodyResult, ...]
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "kind": self.kind,
            "run": self.run,
            "checkpoint": self.checkpoint,
            "trained_steps": self.trained_steps,
            "episodes": self.episodes,
            "seed": self.seed,
            "seeds": list(range(self.seed, self.seed + self.episodes)),
            "max_episode_steps": self.max_episode_steps,
            "bodies": [body.to_dict() for body in self.bodies],
            "rule": RULE,
            **({"score_formula": FORMULA} if any(body.expert for body in self.bodies) else {}),
            "notes": list(self.notes),
            "provenance": self.provenance,
        }


RULE = (
    "walks = mean return above zero action's and random play's by more than 2 standard errors of the paired difference "
    "and at least 1 m forward on average; moves = at least 1 m forward without such a return; goes backward = at least "
    "1 m backward; else stands = fewer than half of the episodes end in a fall; falls = half or more do, which is also "
    "added to the other words."
)
"""The rule of :func:`verdict`, printed with every table."""

WALK_DISTANCE = 1.0
"""Mean forward distance in metres from which a policy counts as having gone somewhere."""


def verdict(episodes: EpisodeBatch, differences: list[PairedDifference]) -> str:
    """Say in a word what a policy does on a body; ``RULE`` is this function in prose.

    Args:
        episodes: The policy's episodes.
        differences: Paired differences of the return against the zero action and against random play.

    Returns:
        ``walks``, ``moves`` or ``goes backward`` with the mean distance and, if need be, ``, then falls``; ``stands``
        or ``falls``. One episode has no standard error, so it cannot walk.
    """
    distance = float(episodes.distance.mean())
    falls = 2 * int(episodes.fell.sum()) >= len(episodes)
    if abs(distance) < WALK_DISTANCE:
        return "falls" if falls else "stands"
    if distance < 0:
        word = "goes backward"
    else:
        word = "walks" if all(d.word == "better" for d in differences) else "moves"
    return f"{word} {abs(distance):.1f} m" + (", then falls" if falls else "")
