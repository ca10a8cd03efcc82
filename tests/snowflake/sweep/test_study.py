"""Study files, and the cells that follow from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agents.errors import UserError
from snowflake.config import loader
from snowflake.config.study import find_study, read_study, study_names
from snowflake.sweep.cells import Cell, cells_of
from tests.snowflake.sweep import studies


def test_cells_are_the_product_with_the_seed_outermost(tmp_path: Path) -> None:
    study = studies.read(tmp_path, studies.TINY.replace("[centipede-4]", "[centipede-4, [centipede-3, centipede-6]]"))
    study = dataclasses.replace(study, variants={"graph": study.variants["graph"], "other": {"method": "nervenet"}})
    names = [cell.name for cell in cells_of(study, "tiny.yaml")]
    bodies = ("centipede-4", "centipede-3+centipede-6")
    assert names == [f"{v}__{b}__seed{s}" for s in (0, 1) for b in bodies for v in ("graph", "other")]


def test_a_cell_is_what_train_would_make_of_the_same_settings(tmp_path: Path) -> None:
    cell = cells_of(studies.read(tmp_path), "tiny.yaml")[0]
    expected = loader.resolve(
        "snowflake",
        (),
        {
            "agents": ["centipede-4"],
            "total_timesteps": 512,
            "torch_threads": 1,
            "env": {"n_envs": 4, "num_threads": 1},
            "ppo": {"n_steps": 32, "batch_size": 64, "n_epochs": 1},
            "policy": {"hidden_size": 8, "propagation_steps": 1},
            "evaluation": {"eval_episodes": 1, "eval_freq": 256, "checkpoint_freq": 128},
        },
    )
    assert cell.config == expected
    assert cell.command == "snowflake sweep tiny.yaml --only graph__centipede-4__seed0"


def test_a_variant_wins_over_configs_and_its_method_over_both(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("policy: {network: nervenet, hidden_size: 32}\nppo: {gamma: 0.9}\n")
    variants = "variants:\n  a: {method: mlp, ppo: {gamma: 0.5}}\n  b: {method: mlp}\n"
    text = f"config: ['{tmp_path}/base.yaml']\n{variants}"
    a, b = cells_of(studies.read(tmp_path, text), "x")
    assert (a.config.policy.network, a.config.policy.hidden_size, a.config.ppo.gamma) == ("mlp", 32, 0.5)
    assert b.config.ppo.gamma == 0.9


def test_a_cell_survives_its_file(tmp_path: Path) -> None:
    for cell in cells_of(studies.read(tmp_path), "tiny.yaml"):
        (tmp_path / "cell.yaml").write_text(cell.to_yaml())
        assert Cell.read(tmp_path / "cell.yaml") == cell


def test_names_of_many_bodies_stay_short_and_differ(tmp_path: Path) -> None:
    many = ", ".join(f"centipede-{n}" for n in range(3, 20))
    fewer = ", ".join(f"centipede-{n}" for n in range(3, 19))
    text = f"agents: [[{many}], [{fewer}]]\nconfig: []\nvariants: {{a: {{env: {{n_envs: 272}}}}}}\n"
    names = [cell.name for cell in cells_of(studies.read(tmp_path, text), "x")]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 100


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    text = "<mujoco><worldbody><body><joint name='j'/><geom size='.1'/></body></worldbody><actuator><motor joint='j'/>"
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "bot.xml").write_text(text + "</actuator></mujoco>")
    study = studies.read(tmp_path, f"agents: ['{tmp_path}/a/bot.xml', '{tmp_path}/b/bot.xml']\n")
    with pytest.raises(UserError, match="two cells of study tiny would be called snowflake__bot__seed0"):
        cells_of(study, "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seedz: [1]\n", "tiny.yaml:1: seedz is not a key of a study: did you mean 'seeds'"),
        ("seeds: 3\n", "tiny.yaml:1: seeds wants a list"),
        ("seeds: [1, 1]\n", "seeds names something twice"),
        ("seeds: []\n", "seeds is empty"),
        ("agents: centipede-4\n", "wants a list of bodies"),
        ("variants: {}\n", "variants is empty"),
        ("variants: [a]\n", "variants is a section"),
        ("variants: {a: 3}\n", "variant a is a section"),
        ("variants:\n  a/b: {}\n", "variants 'a/b': use up to 60 letters"),
        ("variants:\n  a:\n    ppo: {gama: 1}\n", "tiny.yaml:3: ppo.gama is not a key"),
        ("variants:\n  a: {seed: 1}\n", "tiny.yaml:2: seed belongs to the study"),
        ("checkpoint: first\n", "checkpoint = 'first' is not a choice"),
        ("episodes: 0\n", "episodes = 0 is out of range"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        studies.read(tmp_path, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mistakes_that_show_when_cells_are_resolved(tmp_path: Path) -> None:
    for text, message in (
        ("agents: [centipede-1]\n", "centipede-1"),
        ("agents: [centipede-4]\ntransfer: [nope]\n", "'nope'"),
        ("agents: [[centipede-3, centipede-4]]\nvariants:\n  a: {method: mlp}\n", "'mlp' serves one body"),
        ("agents: [centipede-4]\nvariants:\n  a: {policy: {network: nerv}}\n", "policy.network = 'nerv'"),
        ("variants:\n  a: {method: snowflak}\n", "did you mean 'snowflake'"),
        ("variants:\n  a: {ppo: {gamma: 7}}\n", "variant a of study tiny: ppo.gamma = 7.0 is out of range"),
    ):
        with pytest.raises(UserError) as caught:
            cells_of(studies.read(tmp_path, text), "x")
        assert message in str(caught.value)


def test_every_shipped_study_resolves() -> None:
    assert "methods" in study_names()
    for name in study_names():
        assert cells_of(read_study(find_study(name)), name)
