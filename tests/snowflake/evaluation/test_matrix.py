"""Several runs on the bodies of all: cells, experts, files, table, heat map."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agents import UserError, load
from snowflake.cli import main
from snowflake.evaluation import measure
from snowflake.evaluation.extras import Extras
from snowflake.evaluation.fit import BOUND, MISFIT, Refusal
from snowflake.evaluation.heat_map import heat_map
from snowflake.evaluation.matrix import Matrix, Row, transfer_matrix
from snowflake.evaluation.matrix_files import CSV_COLUMNS, matrix_csv, matrix_json
from snowflake.evaluation.matrix_tables import print_matrix
from snowflake.evaluation.report import evaluate_run
from snowflake.evaluation.score import FORMULA, Expert, normalized_score
from snowflake.run import Run


@pytest.fixture(scope="module")
def matrix(run: Run, flat: Run, two_bodies: Run) -> Matrix:
    extras = Extras(references=(two_bodies,))
    runs = (run, flat, two_bodies)
    return transfer_matrix(
        runs, (load("centipede-5"),), episodes=3, seed=5, command="snowflake transfer", extras=extras
    )


def test_every_run_plays_every_body(matrix: Matrix, run: Run, flat: Run, two_bodies: Run) -> None:
    assert matrix.columns == ("centipede-4", "centipede-3", "centipede-5")
    assert [row.trained_on for row in matrix.rows] == [
        ("centipede-4",),
        ("centipede-4",),
        ("centipede-4", "centipede-3"),
    ]
    zero_shot = [[None if (c := row.cell(b)) is None else c.zero_shot for b in matrix.columns] for row in matrix.rows]
    assert zero_shot == [[False, True, True], [False, None, None], [False, False, True]]
    assert tuple(matrix.rows[1].refused) == ("centipede-3", "centipede-5")
    for one, row in zip((run, flat, two_bodies), matrix.rows, strict=True):
        for alone in evaluate_run(one, episodes=3, seed=5).bodies:
            cell = row.cell(alone.morphology)
            assert cell is not None
            for way, episodes in alone.episodes.items():
                np.testing.assert_array_equal(episodes.returns, cell.episodes[way].returns)


def test_the_expert_is_the_run_of_the_same_model(matrix: Matrix, two_bodies: Run) -> None:
    """A reference on its own body is the expert there, scores are against it; other bodies have none."""
    for name in ("centipede-4", "centipede-3"):
        own = matrix.rows[2].cell(name)
        cell = matrix.rows[0].cell(name)
        assert own is not None and cell is not None and cell.expert is not None  # noqa: PT018
        assert cell.expert.runs == (str(two_bodies.path),)
        returns = {way: episodes.returns for way, episodes in cell.episodes.items()}
        np.testing.assert_array_equal(cell.expert.returns["mean_action"], own.episodes["mean_action"].returns)
        expected = normalized_score(returns["mean_action"], returns["random"], own.episodes["mean_action"].returns)
        np.testing.assert_equal(cell.score("mean_action", "random"), expected)
    cell = matrix.rows[0].cell("centipede-5")
    assert cell is not None
    assert cell.expert is None
    assert np.isnan(cell.score("mean_action", "random"))


def test_a_reference_of_no_body_is_refused(run: Run, two_bodies: Run, flat: Run) -> None:
    small = dataclasses.replace(two_bodies, morphologies=two_bodies.morphologies[1:])
    with pytest.raises(UserError, match="was trained on centipede-3, which is none"):
        transfer_matrix((run, flat), (), episodes=1, seed=5, extras=Extras(references=(small,)))


def test_nothing_is_played_twice(run: Run, two_bodies: Run, monkeypatch: Any) -> None:
    """Two runs and a reference among them: each policy and baseline plays a body once (two tasks' baselines)."""
    played: list[tuple[str, str]] = []
    play = measure._play

    def counted(controller: Any, way: str, morphology: Any, *others: Any) -> Any:
        played.append((way, morphology.name))
        return play(controller, way, morphology, *others)

    monkeypatch.setattr(measure, "_play", counted)
    transfer_matrix((run, two_bodies), (), episodes=1, seed=5, extras=Extras(references=(two_bodies, run)))
    for name in ("centipede-4", "centipede-3"):
        assert played.count(("mean_action", name)) == played.count(("stochastic", name)) == 2
        assert played.count(("zero_action", name)) == played.count(("random", name)) <= 2


def test_files_hold_the_cells(matrix: Matrix) -> None:
    data = json.loads(matrix_json(matrix))
    assert [row["network"] for row in data["rows"]] == ["nervenet", "mlp", "nervenet"]
    assert data["cells"][1][1]["note"] == BOUND
    assert "--mlp-transfer" in data["cells"][1][1]["reason"]
    assert {row["method"] for row in data["rows"]} == {"snowflake"}
    rows = list(csv.DictReader(io.StringIO(matrix_csv(matrix))))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert len(rows) == 7 * 2 + 2
    assert [r["morphology"] for r in rows if r["note"] == BOUND] == ["centipede-3", "centipede-5"]
    for r, row in enumerate(matrix.rows):
        for c, name in enumerate(matrix.columns):
            body = row.cell(name)
            if body is None:
                continue
            returns = body.episodes["stochastic"].returns
            stored = data["cells"][r][c]["policies"]["stochastic"]
            line = next(
                x for x in rows if (x["run"], x["morphology"], x["policy"]) == (row.result.run, name, "stochastic")
            )
            assert stored["mean"] == float(line["return_mean"]) == returns.mean()
            assert float(line["return_se"]) == pytest.approx(returns.std(ddof=1) / np.sqrt(3))
            assert float(line["outside_range"]) == stored["outside_range"] == body.outside["stochastic"].share
            assert float(line["distance_m"]) == body.episodes["stochastic"].distance.mean()


def test_a_run_of_other_features_has_refused_cells(run: Run, tiny: Any, tmp_path: Path, capsys: Any) -> None:
    """One foreign run beside two that understand each other: its cells say why, the others are played."""
    from snowflake.ppo.train import train

    config = tiny(("centipede-3",))
    other = train(config, tmp_path / "other", progress=False)
    env = dataclasses.replace(config.env, features="general")
    foreign = train(dataclasses.replace(config, agents=("hopper",), env=env), tmp_path / "foreign", progress=False)
    made = transfer_matrix((run, other, foreign), (), episodes=1, seed=5)
    played = [[row.cell(body) is not None for body in made.columns] for row in made.rows]
    assert made.columns == ("centipede-4", "centipede-3", "hopper")
    assert [row[:2] for row in played[:2]] == [[True, True], [True, True]]
    assert played[0][2] is played[1][2] is False
    assert made.rows[0].refused["hopper"].word == MISFIT
    print_matrix(made)
    words = " ".join(capsys.readouterr().out.split())
    assert MISFIT in words
    assert f"{run.path.name} on hopper: a policy of 'centipede-4' has node types" in words
    heat_map(made)
    matrix_csv(made)


def test_a_matrix_of_refused_cells_alone_is_refused(flat: Run) -> None:
    with pytest.raises(UserError, match=r"no run can play a body of another: .*--mlp-transfer"):
        transfer_matrix((flat, flat), (load("centipede-5"),), episodes=1, seed=5)


def big(result: Any) -> Matrix:
    """Two rows with easy numbers: a graph policy on six bodies, and a flat one that is bound to the first."""
    names = (*(f"centipede-{n}" for n in range(6, 11)), "centipede-6+mass=0.8+gear=1.25")
    first = result("transfer", names)
    expert = {way: first.bodies[1].episodes[way].returns + 100.0 for way in ("mean_action", "stochastic")}
    bodies = (first.bodies[0], dataclasses.replace(first.bodies[1], expert=Expert(("x",), expert)), *first.bodies[2:])
    first = dataclasses.replace(first, bodies=bodies)
    flat = dataclasses.replace(result("transfer", names[:1]), run="runs/flat")
    bound = dict.fromkeys(names[1:], Refusal(BOUND, "it is"))
    rows = (Row(first, "snowflake", "nervenet", names[:1], {}), Row(flat, "mlp", "mlp", names[:1], bound))
    return Matrix(rows, names, {})


def test_the_table_fits_a_terminal(result: Any) -> None:
    made, out = big(result), io.StringIO()
    print_matrix(made, Console(file=out, width=80, highlight=False))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    returns = made.rows[0].result.bodies[0].episodes["mean_action"].returns
    assert f"{returns.mean():.0f} ± {returns.std(ddof=1) / np.sqrt(6):.1f}*" in text
    assert "bound to its" in text
    words = " ".join(text.split())
    assert FORMULA in words
    assert "--mlp-transfer maps it" in words
    assert "0.75 / 0.82" not in words
    body = made.rows[0].result.bodies[1]
    # The second body's mean action lies 300 over the zero action (450 - 150) and 480 over random, its expert 100 more.
    assert body.score("mean_action", "zero_action") == pytest.approx(300 / 400)
    assert f"{480 / 580:.2f} / {300 / 400:.2f}" in words


def test_the_heat_map_shows_the_numbers(result: Any) -> None:
    made = big(result)
    figure = heat_map(made)
    assert len(figure.axes) == 4
    values = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    expected = [body.episodes["mean_action"].returns.mean() for body in made.rows[0].result.bodies]
    np.testing.assert_allclose(values[0], expected)
    assert np.isnan(values[1, 1:]).all()
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts.count("bound to its\nbody") == 5
    scores = np.ma.filled(figure.axes[2].images[0].get_array(), np.nan)
    assert np.isfinite(scores).tolist() == [[False, True, *[False] * 4], [False] * 6]


def test_command_of_several_runs(run: Run, flat: Run, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    arguments = [str(run.path), str(flat.path), "--to", "centipede-3", "--episodes", "2", "--output", str(out)]
    extra = ["--mlp-transfer", "--reference", str(run.path), "--sibling-orders", "1"]
    assert main(["transfer", *arguments, *extra]) == 0
    shown = capsys.readouterr()
    assert sorted(p.name for p in out.iterdir()) == ["matrix.csv", "matrix.json", "matrix.png"]
    assert "wrote" in shown.err
    assert "return drop under other orders of siblings" in shown.out
    data = json.loads((out / "matrix.json").read_text())
    assert BOUND not in json.dumps(data["cells"])
    graph = data["results"][0]["bodies"][1]["sibling_orders"]
    assert max(graph["action_change"]) < 1e-5
    assert data["provenance"]["command"].endswith("--sibling-orders 1")
    assert (out / "matrix.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["transfer"], "RUN is missing"),
        (["transfer", "{run}", "--to", "centipede-3", "--sibling-orders", "-1"], "--sibling-orders -1"),
        (["transfer", "{run}", "--to", "centipede-3", "--reference", "{run}-not-there"], "does not exist"),
        (["transfer", "{run}", "{flat}", "--to", "ant"], "or train with --features general"),
        (["transfer", "{flat}", "--to", "centipede-6"], "--mlp-transfer"),
    ],
)
def test_mistakes_get_one_line(run: Run, flat: Run, arguments: list[str], message: str, capsys: Any) -> None:
    places = {"{run}": str(run.path), "{flat}": str(flat.path)}
    for old, new in places.items():
        arguments = [a.replace(old, new) for a in arguments]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
