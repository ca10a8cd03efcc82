"""Body sets: the shipped files, where their bodies go, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import agents
from agents.errors import UserError
from snowflake.config import loader
from snowflake.config.body_sets import expand_sets, read_set, set_names
from snowflake.evaluation.bodies import load_bodies


def test_every_shipped_body_loads_under_its_own_name() -> None:
    assert {"ants", "centipedes", "centipede-6-variations", "legged", "walkers"} <= set(set_names())
    for name in set_names():
        for bodies in read_set(name).values():
            assert [agents.load(body).name for body in bodies] == list(bodies)


def test_no_body_is_both_trained_and_tested_on() -> None:
    for name in set_names():
        splits = read_set(name)
        assert not set(splits.get("train", ())) & set(splits.get("test", ())), name


def test_expands_in_place() -> None:
    train = read_set("centipedes")["train"]
    assert expand_sets(["ant", "set:centipedes/train", "hopper"]) == ("ant", *train, "hopper")
    assert expand_sets(["set:centipedes/train+mass=1.5+seed=1"]) == tuple(f"{body}+mass=1.5+seed=1" for body in train)
    assert expand_sets(["ant+mass=2", "a/b.xml"]) == ("ant+mass=2", "a/b.xml")


def test_a_set_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my+sets"
    folder.mkdir()
    (folder / "mine.yaml").write_text("small: [hopper-3]\nlarge:\n  - hopper-9\n  - hopper-9+broken=1+seed=2\n")
    assert expand_sets([f"set:{folder}/mine.yaml/large"]) == ("hopper-9", "hopper-9+broken=1+seed=2")
    monkeypatch.chdir(folder)
    assert [body.name for body in load_bodies(["set:mine.yaml/small", "hopper-3"])] == ["hopper-3"]


def test_a_config_holds_plain_names(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("agents: ['set:hoppers/train', walker-7]\nenv: {n_envs: 3}\n")
    config = loader.resolve(configs=[path])
    assert config.agents == ("hopper-3", "hopper-5", "walker-7")
    stored = tmp_path / "config.yaml"
    stored.write_text(loader.to_yaml(config))
    assert "set:hoppers" not in stored.read_text()
    assert loader.load(stored) == config
    path.write_text("agents: ['set:hoppers/train', hopper-5]\n")
    with pytest.raises(UserError, match="names 'hopper-5' twice"):
        loader.resolve(configs=[path])
    path.write_text("seed: 1\nagents: ['set:hoppers/tran']\n")
    with pytest.raises(UserError, match=r"run.yaml:2: agents: body set 'hoppers' has no split 'tran': .*'train'"):
        loader.resolve(configs=[path])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("set:centipedse/train", "no body set 'centipedse': did you mean 'centipedes'"),
        ("set:centipedes/tets", "no split 'tets': did you mean 'test'"),
        ("set:centipedes", "names no split: write set:centipedes/SPLIT with one of train, test"),
        ("set:", "no body set ''"),
        ("set:nowhere.yaml/test", "nowhere.yaml: is missing"),
        ("set:centipedes/train+mass", "no body set"),
    ],
)
def test_unknown_sets(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_bodies([name])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: hopper-3\n", ":1: split 'train' must be a list of bodies"),
        ("train: []\n", "must be a list of bodies"),
        ("a: [hopper-3]\nb: [4]\n", ":2: split 'b' must be a list"),
        ("a: [hopper-3, hopper-3]\n", "names 'hopper-3' twice"),
        ("a: ['set:ants/train']\n", "is a set in a set"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        expand_sets([f"set:{path}/a"])
