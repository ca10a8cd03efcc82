"""`snowflake numerics`: numbers of event files written by hand, a real run, several runs, and what it refuses."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from agents.errors import UserError
from snowflake.cli import main
from snowflake.config.numerics import NumericsConfig
from snowflake.numerics.config import OPERANDS as OPERANDS_OF_RECIPES
from snowflake.numerics.formats import FORMATS as FORMATS_OF_RECIPES
from snowflake.numerics_report.figures import scales_figure, shares_figure
from snowflake.numerics_report.files import FILES
from snowflake.numerics_report.read import FORMATS, OPERANDS, STATISTICS, SUMMARIES, Place, names_of, read_numerics
from snowflake.numerics_report.text import table
from snowflake.ppo.train import train
from snowflake.run import Run
from tests.snowflake.ppo.helpers import tiny_config

LAYER = "update.joint.gates"


def write_events(folder: Path, curves: dict[str, Sequence[tuple[int, float]]]) -> Path:
    writer = SummaryWriter(str(folder / "tensorboard"))
    for tag, points in curves.items():
        for step, value in points:
            writer.add_scalar(tag, value, step)
    writer.close()
    return folder


def by_hand(folder: Path) -> Path:
    """Two readings of one layer's activations and one of its gradients, and three updates of shares."""
    x, g = f"numerics/actor/{LAYER}/x", f"numerics/actor/{LAYER}/g"
    return write_events(
        folder,
        {
            f"{x}/amax": [(100, 4.0), (300, 2.0)],
            f"{x}/log2_scale": [(100, 6.0), (300, 7.5)],
            f"{x}/sat_frac": [(100, 0.0), (300, 0.25)],
            f"{x}/flush_frac": [(100, 0.5), (300, 0.125)],
            f"{x}/mean_rel": [(100, 0.02), (300, 0.04)],
            f"{x}/share_e4m3": [(100, 1.0), (300, 0.75)],
            f"{x}/share_bf16": [(100, 0.0), (300, 0.25)],
            f"{g}/log2_scale": [(300, -3.0)],
            f"{g}/share_e5m2": [(300, 1.0)],
            "numerics/actor/share/operands/e4m3": [(100, 1.0), (200, 0.5), (300, 0.0)],
            "numerics/actor/share/operands/e5m2": [(100, 0.0), (200, 0.5), (300, 1.0)],
            "numerics/actor/share/flops/fp32": [(100, 1.0), (200, 1.0), (300, 1.0)],
            "numerics/actor/log2_scale/x/min": [(100, 6.0), (300, 7.5)],
            "numerics/actor/log2_scale/x/median": [(100, 6.0), (300, 7.5)],
            "numerics/actor/log2_scale/x/max": [(100, 6.0), (300, 7.5)],
            "numerics/actor/nonfinite": [(100, 0.0), (200, 3.0), (300, 1.0)],
            "numerics/actor/format_changes": [(100, 0.0), (200, 2.0), (300, 0.0)],
            "numerics/skipped_steps": [(100, 0.0)],
            "rollout/ep_rew_mean": [(100, 1.0)],
        },
    )


def rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


def test_numbers_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = by_hand(tmp_path / "hand")
    assert main(["numerics", str(folder)]) == 0
    out, err = capsys.readouterr()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "hand"
    assert lines[2] == f"actor {LAYER} activations 4 6.0 -> 7.5 2.5e-01 5.0e-01 0.0300 e4m3 75 %, bf16 25 %"
    assert lines[3] == f"actor {LAYER} gradients nan -3.0 -> -3.0 nan nan nan e5m2 100 %"
    assert lines[-1] == (
        "actor, all of training: numbers e4m3 50 %, e5m2 50 %; operations fp32 100 %; 4 groups not finite, "
        "2 changes of format"
    )
    assert f"into {folder}" in err
    found = rows(folder / "numerics.csv")
    assert [(r["layer"], r["operand"], r["step"]) for r in found] == [
        (LAYER, "activations", "100"), (LAYER, "activations", "300"), (LAYER, "gradients", "300")
    ]  # fmt: skip
    assert (found[1]["amax"], found[1]["log2_scale"], found[1]["rms"]) == ("2.0", "7.5", "")
    shares = rows(folder / "numerics-shares.csv")
    assert [r["share_operands_e4m3"] for r in shares] == ["1.0", "0.5", "0.0"]
    assert [r["log2_scale_x_max"] for r in shares] == ["6.0", "", "7.5"]


def test_figures_show_every_layer_and_format(tmp_path: Path) -> None:
    run = read_numerics(by_hand(tmp_path / "hand"), "hand")
    figure = scales_figure([run, run])
    assert figure is not None
    axes = [a for a in figure.axes if a.get_title()]
    assert [a.get_title() for a in axes[:3]] == [f"hand, actor: {name}" for name in OPERANDS.values()]
    assert len(axes) == 6
    assert [label.get_text() for label in axes[0].get_yticklabels()] == [LAYER]
    assert axes[0].texts[0].get_text() == "none"  # no weights were seen
    [mesh] = axes[1].collections
    assert mesh.get_array().tolist() == [[6.0, 7.5]]
    assert mesh.get_coordinates()[0, :, 0].tolist() == [0.0, 100.0, 300.0]
    shares = shares_figure([run])
    assert shares is not None
    stack = shares.axes[0].collections
    assert [p.get_label() for p in stack] == list(FORMATS)
    heights = [p.get_paths()[0].get_extents().y1 for p in stack]
    assert heights[:2] == [1.0, 1.0]  # e4m3 begins with everything; e5m2 ends with it, on top


def test_names_of_tags_are_those_that_are_logged() -> None:
    assert set(OPERANDS) == set(OPERANDS_OF_RECIPES)
    assert (*FORMATS_OF_RECIPES, "fp32") == FORMATS


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two updates by the mixture; the encoder, messages and decoder are frozen."""
    config = tiny_config(
        policy={"hidden_size": 8, "propagation_steps": 1},
        precision="fp8-mor",
        numerics=NumericsConfig(statistics_every=1),
    )
    return train(config, tmp_path_factory.mktemp("runs") / "mor")


def test_a_run(trained: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = read_numerics(trained.path, "mor")
    assert "actor" in run.networks
    assert LAYER in run.layers("actor")
    assert {name for found in run.operands.values() for name in found} == set(STATISTICS)
    logged = {name for found in run.summaries.values() for name in found}
    assert set(SUMMARIES) - logged == set()
    for place, found in run.operands.items():
        assert found["log2_scale"].steps.tolist() == [64, 128], place
        assert sum(found[f"share_{name}"].values for name in FORMATS[:3]) == pytest.approx([1.0, 1.0])
    assert Place("actor", LAYER, "g") in run.operands
    frozen = [run.operands.get(Place("actor", "decoder.layers.0", o)) for o in "wx"]
    assert all(f is not None for f in frozen), "frozen layers pass gradients on, and are quantised too"
    capsys.readouterr()
    assert main(["numerics", str(trained.path), "--output", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert out == table(read_numerics(trained.path, trained.path.name))
    assert f"{LAYER}" in out
    assert all((tmp_path / "out" / name).stat().st_size > 0 for name in FILES)
    assert len(rows(tmp_path / "out" / "numerics.csv")) == 2 * len(run.operands)


def test_several_runs(trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hand = by_hand(tmp_path / "hand")
    assert main(["numerics", str(hand), str(trained.path)]) == 0
    assert {r["run"] for r in rows(hand / "numerics.csv")} == {"hand", trained.path.name}
    assert capsys.readouterr().out.count("all of training") >= 2
    other = by_hand(tmp_path / "other" / "hand")
    assert names_of([hand, other, trained.path]) == [str(hand), str(other), trained.path.name]
    with pytest.raises(UserError, match="is named twice"):
        names_of([hand, tmp_path / "other" / ".." / "hand"])


def test_without_statistics_by_layer_the_shares_are_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_events(tmp_path / "shares", {"numerics/critic/share/operands/e4m3": [(1, 1.0), (2, 1.0)]})
    assert main(["numerics", str(folder)]) == 0
    assert "no statistics by layer: --statistics-every" in capsys.readouterr().out
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == ["numerics-shares.csv", "numerics-shares.png"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: write_events(path, {"rollout/ep_rew_mean": [(1, 1.0)]}), "has no statistics of low precision"),
        (lambda path: path.mkdir(), "holds no event files"),
        (lambda path: path.write_text(""), "is a file: name a run folder"),
        (lambda path: None, "does not exist: name a run folder"),
    ],
)
def test_what_is_no_such_run_is_refused_in_a_line(make, words: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "run"
    make(path)
    assert main(["numerics", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err
    assert main(["numerics"]) == 2
