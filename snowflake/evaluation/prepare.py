"""Put a checkpoint on bodies, check that it fits them all, and only then play."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents import Morphology, model_hash
from snowflake.evaluation.extras import Extras, default_checkpoint, measure_expert, settings_of, who
from snowflake.evaluation.files import is_packaged
from snowflake.evaluation.fit import Refusal, refusal
from snowflake.evaluation.measure import Settings, Told, measure_body, measure_siblings
from snowflake.evaluation.provenance import provenance
from snowflake.evaluation.results import BodyResult, Result
from snowflake.run import PRETRAINED, Run

if TYPE_CHECKING:
    from snowflake.policy import GraphActorCriticPolicy

CRITIC_NOTE = "Zero-shot: the actor's weights and statistics as trained; the critic stays behind, acting needs none."
EARLIER_NOTE = (
    "Not new to the actor: {}. It was trained there before it was finetuned (finetune.json names the bodies)."
)
MLP_NOTE = (
    "Flat policy on another body: columns and outputs matched by node class and rank (--mlp-transfer); new inputs have "
    "weight 0, new actuators the mean action 0."
)


@dataclass(frozen=True)
class Seat:
    """A policy on a body.

    Attributes:
        morphology: The body.
        policy: The policy.
        body: Index of the body among ``policy.graphs``.
        zero_shot: The policy was not trained on it.
    """

    morphology: Morphology
    policy: GraphActorCriticPolicy
    body: int
    zero_shot: bool


@dataclass(frozen=True)
class Prepared:
    """A checkpoint that fits its bodies.

    Attributes:
        run: The run.
        checkpoint: Which checkpoint.
        policy: Its policy.
        seats: The bodies that it plays on.
        refused: Why it cannot play others, by name of the body.
        extras: Options.
    """

    run: Run
    checkpoint: str
    policy: GraphActorCriticPolicy
    seats: tuple[Seat, ...]
    refused: dict[str, Refusal]
    extras: Extras

    @property
    def name(self) -> str:
        """The run as the user may give it."""
        return PRETRAINED + self.run.name if is_packaged(self.run.path) else str(self.run.path)

    @property
    def trained_steps(self) -> int:
        """Environment steps of training behind the checkpoint."""
        return int(self.run.find_checkpoint(self.checkpoint).name.removeprefix("step_"))


def prepare(run: Run, checkpoint: str | int | None, bodies: Sequence[Morphology], extras: Extras) -> Prepared:
    """Load a checkpoint and put it on bodies; a misfit must not cost the minutes of the bodies before it.

    Raises:
        UserError: No such checkpoint, or a body has the name of one of the run's own and is another model.
    """
    which = default_checkpoint(run) if checkpoint is None else str(checkpoint)
    found = {body.name: refusal(run, body, mlp_transfer=extras.mlp_transfer) for body in bodies}
    refused = {name: why for name, why in found.items() if why is not None}
    policy = run.load_policy(which)
    seats: list[Seat] = []
    for body in bodies:
        if body.name in refused:
            continue
        k = run.own_index(body)
        if k is not None:
            seats.append(Seat(run.morphologies[k], policy, k, False))
        else:
            moved = policy.for_bodies([run.graph_of(body)], mlp_transfer=extras.mlp_transfer)
            seats.append(Seat(body, moved, 0, True))
    return Prepared(run, which, policy, tuple(seats), refused, extras)


def _precision_notes(policy: GraphActorCriticPolicy) -> tuple[str, ...]:
    return () if policy.numerics is None else (f"Linear layers: {policy.numerics.arithmetic()}.",)


def base_settings(episodes: int, seed: int, num_threads: int, told: Told | None) -> Settings:
    """Settings of no run yet; :func:`measure` completes them."""

    def no_env(*_: object) -> None:
        raise RuntimeError("these settings belong to no run")

    return Settings(episodes, seed, 1, no_env, num_threads, told)  # type: ignore[arg-type]


def measure(
    kind: str,
    prepared: Prepared,
    settings: Settings,
    command: str,
    experts: Mapping[str, Sequence[tuple[Run, int]]] | None = None,
) -> Result:
    """Play a prepared checkpoint on its bodies.

    Args:
        kind: Kind of the result.
        prepared: The checkpoint.
        settings: From :func:`base_settings`; what was measured with the same object is not played again.
        command: Command line, for the record.
        experts: References by hash of the model, from ``extras.match_references``.
    """
    run, extras = prepared.run, prepared.extras
    settings = settings_of(run, settings)
    results: list[BodyResult] = []
    for seat in prepared.seats:
        player = (seat.policy, seat.body, seat.morphology, settings)
        found = measure_body(*player, zero_shot=seat.zero_shot, who=who(run, prepared.checkpoint))
        if seat.zero_shot and seat.morphology.name in run.earlier_bodies:
            found = dataclasses.replace(found, trained_earlier=True)
        references = (experts or {}).get(model_hash(seat.morphology.compile()))
        if references:
            found = dataclasses.replace(found, expert=measure_expert(references, settings))
        # A flat policy knows only the order that it was trained in.
        if extras.sibling_orders and (run.config.policy.network != "mlp" or extras.mlp_transfer):
            orders = measure_siblings(
                *player,
                orders=extras.sibling_orders,
                mlp_transfer=extras.mlp_transfer,
            )
            found = dataclasses.replace(found, siblings=orders)
        results.append(found)
    zero_shot = any(r.zero_shot for r in results)
    mapped = zero_shot and run.config.policy.network == "mlp"
    earlier = ", ".join(r.morphology for r in results if r.trained_earlier)
    return Result(
        kind=kind,
        run=prepared.name,
        checkpoint=prepared.checkpoint,
        trained_steps=prepared.trained_steps,
        episodes=settings.episodes,
        seed=settings.seed,
        max_episode_steps=settings.max_episode_steps,
        bodies=tuple(results),
        provenance=provenance(command, settings.num_threads, str(prepared.policy.device)),
        notes=_precision_notes(prepared.policy)
        + (CRITIC_NOTE,) * (zero_shot and not mapped)
        + (MLP_NOTE,) * mapped
        + (EARLIER_NOTE.format(earlier),) * bool(earlier),
    )
