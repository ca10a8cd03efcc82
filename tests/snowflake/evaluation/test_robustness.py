"""Which bodies make a robustness curve, and what it draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from snowflake.cli import main
from snowflake.evaluation.robustness import robustness_figure, variation_curves
from snowflake.run import Run


def test_curves_are_of_one_key_and_one_base() -> None:
    names = ("ant+mass=2", "ant", "ant+mass=0.5", "ant+gear=2", "ant+mass=2+gear=2", "ant+broken=hip_1")
    names += ("hopper+gear=0.5", "hopper+gear=2", "ant+broken=hip_2", "ant+mass=2", "file+of=mine", "file+of=2")
    names += ("hopper+broken=1+seed=0", "hopper+broken=1+seed=1", "hopper+broken=2+seed=0", "ant+payload=1")
    assert variation_curves(names) == {
        ("ant", "mass"): {0.5: ["ant+mass=0.5"], 1.0: ["ant"], 2.0: ["ant+mass=2"]},
        ("hopper", "gear"): {0.5: ["hopper+gear=0.5"], 2.0: ["hopper+gear=2"]},
        ("hopper", "broken"): {
            1.0: ["hopper+broken=1+seed=0", "hopper+broken=1+seed=1"],
            2.0: ["hopper+broken=2+seed=0"],
        },
    }
    assert list(variation_curves(("ant", "ant+payload=3", "ant+payload=1"))["ant", "payload"]) == [0.0, 1.0, 3.0]


def test_the_figure_shows_means_and_bands(result: Any) -> None:
    assert robustness_figure([result("transfer", ("centipede-6", "centipede-8"))]) is None
    names = ("centipede-6", "centipede-6+mass=2", "centipede-6+mass=0.5", "centipede-6+gear=1", "centipede-6+gear=2")
    made = result("transfer", names)
    figure = robustness_figure([made])
    assert figure is not None
    panels = {axes.get_xlabel(): axes for axes in figure.axes}
    assert set(panels) == {"mass", "gear"}
    line = next(line for line in panels["mass"].lines if line.get_label() == "policy, mean action")
    assert list(line.get_xdata()) == [0.5, 1.0, 2.0]
    returns = [made.bodies[k].episodes["mean_action"].returns for k in (2, 0, 1)]
    np.testing.assert_allclose(line.get_ydata(), [x.mean() for x in returns])
    band = panels["mass"].collections[0].get_paths()[0].vertices[:, 1]
    error = [2 * x.std(ddof=1) / np.sqrt(6) for x in returns]
    assert np.isclose(band, returns[0].mean() + error[0]).any()
    assert np.isclose(band, returns[2].mean() - error[2]).any()
    two = robustness_figure([made, made])
    assert two is not None
    assert len(two.axes[0].get_legend().get_texts()) == 3


def test_bodies_that_differ_in_the_seed_share_a_point(result: Any) -> None:
    made = result("transfer", ("ant", "ant+broken=1+seed=0", "ant+broken=1+seed=1", "ant+broken=2+seed=0"))
    figure = robustness_figure([made])
    assert figure is not None
    line = next(line for line in figure.axes[0].lines if line.get_label() == "policy, stochastic")
    means = [body.episodes["stochastic"].returns.mean() for body in made.bodies]
    assert list(line.get_xdata()) == [0.0, 1.0, 2.0]
    np.testing.assert_allclose(line.get_ydata(), [means[0], (means[1] + means[2]) / 2, means[3]])


def test_the_command_writes_the_curve(run: Run, tmp_path: Path) -> None:
    bodies = ["centipede-4+mass=0.5", "centipede-4+mass=2"]
    assert main(["transfer", str(run.path), "--to", *bodies, "--episodes", "1", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "robustness.png").read_bytes().startswith(b"\x89PNG")
    assert f"{bodies[0]},True,mean_action" in (tmp_path / "transfer.csv").read_text()
