"""From rows to numbers: final returns, scores, the scaling curve, comparisons, the transfer matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from snowflake.evaluation.statistics import summarize
from snowflake.report.rows import Bodies, Measured, Row
from snowflake.report.statistics import Estimate, Stratum, iqm_estimate, probability_of_improvement


@dataclass(frozen=True)
class Summary:
    """A figure over the seeds of one variant on one body.

    Attributes:
        mean: Mean over seeds.
        sd: Sample standard deviation over seeds; NaN for one seed.
        median: Median over seeds.
        iqm: Interquartile mean over seeds, with its interval.
    """

    mean: float
    sd: float
    median: float
    iqm: Estimate


@dataclass(frozen=True)
class FinalRow:
    """One variant on one of its bodies, over seeds.

    Attributes:
        variant: The variant.
        body: The body.
        seeds: The seeds.
        steps: Environment steps behind the measured checkpoints, fewest and most.
        nodes: Graph nodes of the body; None where unknown.
        returns: Return by way to act; each seed counts as the mean of its episodes.
        distance: Forward distance with the mean action [m].
        falls: Episodes with the mean action that ended before the time limit, over all seeds.
        episodes: Episodes with the mean action, over all seeds.
        trainable: Trainable parameters of the actor; None where unknown.
        total: All parameters of the actor; None where unknown.
    """

    variant: str
    body: str
    seeds: tuple[int, ...]
    steps: tuple[int, int]
    nodes: int | None
    returns: dict[str, Summary]
    distance: Summary
    falls: int
    episodes: int
    trainable: int | None
    total: int | None


@dataclass(frozen=True)
class Comparison:
    """P(X > Y) of two variants on the bodies that both trained on, by the final return of the mean action."""

    first: str
    second: str
    bodies: tuple[str, ...]
    probability: Estimate


@dataclass(frozen=True)
class Cell:
    """One entry of the transfer matrix: mean and deviation over seeds.

    Attributes:
        mean: Mean over seeds.
        sd: Sample standard deviation over seeds; NaN for one seed.
        seeds: Number of seeds.
        trained: The body was trained on.
        mapped: The policy is flat, and was mapped to the body by node class and column.
    """

    mean: float
    sd: float
    seeds: int
    trained: bool
    mapped: bool


@dataclass(frozen=True)
class Matrix:
    """Transfer matrix of one way to act.

    Attributes:
        way: ``mean_action`` or ``stochastic``.
        sources: Variant and the bodies that it trained on, one per line.
        targets: Bodies, one per column.
        cells: By source and target; absent where it was not measured.
        zero_action: Mean return of the zero action by target.
        random: Mean return of random play by target.
    """

    way: str
    sources: tuple[tuple[str, tuple[str, ...]], ...]
    targets: tuple[str, ...]
    cells: dict[tuple[int, int], Cell]
    zero_action: dict[str, float]
    random: dict[str, float]

    @property
    def has_mapped(self) -> bool:
        """Whether a flat policy was mapped to some body."""
        return any(cell.mapped for cell in self.cells.values())


def variants(rows: Sequence[Row]) -> tuple[str, ...]:
    """The variants, sorted."""
    return tuple(sorted({row.variant for row in rows}))


def trained_bodies(rows: Sequence[Row]) -> tuple[str, ...]:
    """The bodies that were trained on, by number of nodes, then name."""
    nodes = {body: count for row in rows for body, count in row.nodes.items()}
    return tuple(sorted({body for row in rows for body in row.agents}, key=lambda b: (nodes.get(b, 0), b)))


def groups(rows: Sequence[Row]) -> dict[str, dict[tuple[str, ...], list[Row]]]:
    """Rows by variant and training bodies, seeds ascending."""
    found: dict[str, dict[tuple[str, ...], list[Row]]] = {}
    for row in sorted(rows, key=lambda r: (r.variant, r.agents, r.seed)):
        found.setdefault(row.variant, {}).setdefault(row.agents, []).append(row)
    return found


def strata(rows: Sequence[Row], figure: Callable[[Row, str], float]) -> list[Stratum]:
    """One stratum per training set of a variant's rows, with a figure of each row and body."""
    sets: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        sets.setdefault(row.agents, []).append(row)
    return [Stratum(a, np.array([[figure(row, body) for body in a] for row in found])) for a, found in sets.items()]


def mean_return(row: Row, body: str, way: str = "mean_action") -> float:
    """Mean return of the final episodes of an evaluated row."""
    assert row.final is not None
    return float(row.final[body][way].returns.mean())


def final_table(rows: Sequence[Row]) -> list[FinalRow]:
    """Every variant on every body that it trained on; rows without an evaluation are left out."""
    table = []
    order = {body: k for k, body in enumerate(trained_bodies(rows))}
    for variant, sets in groups([row for row in rows if row.final is not None]).items():
        for body in sorted({b for agents in sets for b in agents}, key=order.__getitem__):
            found = next(g for agents, g in sets.items() if body in agents)
            table.append(_final_row(variant, body, found))
    return table


def _final_row(variant: str, body: str, rows: list[Row]) -> FinalRow:
    ways = [row.final[body] for row in rows if row.final is not None]
    trainable, total = ({row.parameters.get(k) for row in rows} for k in ("trainable", "total"))
    steps = [row.steps for row in rows]
    return FinalRow(
        variant=variant,
        body=body,
        seeds=tuple(row.seed for row in rows),
        steps=(min(steps), max(steps)),
        nodes=rows[0].nodes.get(body),
        returns={way: _summary([w[way].returns.mean() for w in ways]) for way in ways[0]},
        distance=_summary([w["mean_action"].distance.mean() for w in ways]),
        falls=sum(w["mean_action"].falls for w in ways),
        episodes=sum(len(w["mean_action"].returns) for w in ways),
        trainable=trainable.pop() if len(trainable) == 1 else None,
        total=total.pop() if len(total) == 1 else None,
    )


def _summary(values: list[float]) -> Summary:
    plain = summarize(values)
    return Summary(plain.mean, plain.sd, plain.median, iqm_estimate([Stratum(("",), np.array(values)[:, None])]))


def scores(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Return that counts as 0 and return that counts as 1, by body.

    0 is random play's mean return on the body, 1 the best variant's: its mean over seeds of the final return with the
    mean action. A body on which no variant beats random play has no score.
    """
    found = {}
    table = final_table(rows)
    for body in trained_bodies(rows):
        own = [line for line in table if line.body == body]
        if not own:
            continue
        zero = float(np.mean([line.returns["random"].mean for line in own]))
        best = max(line.returns["mean_action"].mean for line in own)
        if best > zero:
            found[body] = (zero, best)
    return found


def aggregate_scores(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Interquartile mean of the final score over all bodies and seeds of each variant; needs two bodies or more."""
    rule = scores(rows)
    found = {}
    for variant, sets in groups(rows).items():
        own = [row for group in sets.values() for row in group]
        bodies = {body for row in own for body in row.agents}
        if len(bodies) > 1 and bodies <= set(rule) and all(row.final is not None for row in own):
            found[variant] = iqm_estimate(strata(own, lambda r, b: scaled(mean_return(r, b), rule[b])))
    return found


def scaled(value: float, rule: tuple[float, float]) -> float:
    """A return as a score; see :func:`scores`."""
    return (value - rule[0]) / (rule[1] - rule[0])


def comparisons(rows: Sequence[Row]) -> list[Comparison]:
    """P(X > Y) of every pair of variants with a body in common, the better one first, clearest pairs first."""
    by_variant = {
        variant: [row for group in sets.values() for row in group]
        for variant, sets in groups([row for row in rows if row.final is not None]).items()
    }
    found = []
    for first, second in combinations(by_variant, 2):
        mine, yours = by_variant[first], by_variant[second]
        shared = {b for r in mine for b in r.agents} & {b for r in yours for b in r.agents}
        common = tuple(b for b in trained_bodies(rows) if b in shared)
        if common:
            x, y = _final_strata(mine, common), _final_strata(yours, common)
            probability = probability_of_improvement(x, y)
            if probability.value < 0.5:
                first, second, probability = second, first, probability_of_improvement(y, x)
            found.append(Comparison(first, second, common, probability))
    return sorted(found, key=lambda pair: -pair.probability.value)


def _final_strata(rows: list[Row], bodies: tuple[str, ...]) -> list[Stratum]:
    kept = []
    for s in strata(rows, mean_return):
        columns = [k for k, body in enumerate(s.bodies) if body in bodies]
        if columns:
            kept.append(Stratum(tuple(s.bodies[k] for k in columns), s.values[:, columns]))
    return kept


def transfer_matrix(rows: Sequence[Row], way: str) -> Matrix | None:
    """Sources against targets; None where no row has a transfer. Trained bodies stand in it too."""
    rows = [row for row in rows if row.final is not None or row.transfer is not None]
    if not any(row.transfer for row in rows):
        return None
    sources = [(v, agents, group) for v, sets in groups(rows).items() for agents, group in sets.items()]
    new = {body for row in rows for body in row.transfer or {}}
    own = [body for body in trained_bodies(rows) if body not in new]
    targets = (*own, *sorted(new, key=_natural))
    cells: dict[tuple[int, int], Cell] = {}
    baselines: dict[str, dict[str, list[float]]] = {"zero_action": {}, "random": {}}
    for i, (_, agents, group) in enumerate(sources):
        for j, target in enumerate(targets):
            found = [bodies[target] for row in group if target in (bodies := _played(row))]
            if found:
                summary = summarize([ways[way].returns.mean() for ways in found])
                mapped = target not in agents and any(row.mapped for row in group)
                cells[i, j] = Cell(summary.mean, summary.sd, len(found), target in agents, mapped)
                for baseline, values in baselines.items():
                    values.setdefault(target, []).extend(float(ways[baseline].returns.mean()) for ways in found)
    zero, random = (
        {target: float(np.mean(values)) for target, values in by_target.items()} for by_target in baselines.values()
    )
    return Matrix(way, tuple((v, agents) for v, agents, _ in sources), targets, cells, zero, random)


def _played(row: Row) -> Bodies:
    empty: dict[str, dict[str, Measured]] = {}
    return {**(row.transfer or empty), **(row.final or empty)}


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key in which centipede-10 follows centipede-8."""
    import re

    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
