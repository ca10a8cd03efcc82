"""Body sets: the shipped files, where their bodies go, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import agents
from agents.errors import UserError
from snowflake.config import loader
from snowflake.config.body_sets import expand_sets, read_set, set_names
from snowflake.evaluation.bodies import load_bodies
from tests.envs.robots import ROBOTS


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
        ("set:centipedes/train+mass", r"\+mass has no value: write \+mass=NUMBER"),
    ],
)
def test_unknown_sets(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_bodies([name])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: hopper-3\n", ":1: split 'a' must be a list of bodies"),
        ("a: []\n", "must be a list of bodies"),
        ("b: [hopper-3]\na: [4]\n", ":2: split 'a' must be a list"),
        ("a: [hopper-3]\nb: [4\n", "not valid YAML"),
        ("a: [hopper-3, hopper-3]\n", "names 'hopper-3' twice"),
        ("a: ['set:ants/train']\n", "is a set in a set"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        expand_sets([f"set:{path}/a"])


def test_a_faulty_split_bars_none_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("empty: []\ntwice: [ant, ant]\nnone: 3\ngood: [hopper-3]\n")
    assert expand_sets([f"set:{path}/good"]) == ("hopper-3",)
    with pytest.raises(UserError, match="with one of empty, twice, none, good"):
        expand_sets([f"set:{path}"])
    for split in ("empty", "twice", "none"):
        with pytest.raises(UserError, match=f"split '{split}'"):
            expand_sets([f"set:{path}/{split}"])
    with pytest.raises(UserError, match="split 'empty'"):
        read_set(str(path))


def test_paths_of_model_files_start_from_the_folder_of_the_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my sets"
    (folder / "robots").mkdir(parents=True)
    for name in ("bot.xml", "robots/arm.XML", "plain"):
        (folder / name).write_text(ROBOTS["fixed base"])
    files = ["bot.xml", "bot.xml+mass=2", "robots/arm.XML+gear=2", "robots/arm", "../bot.urdf", "a+mass=2.xml", "plain"]
    others = ["ant+mass=2", "walker-7", "humanoid+remove=a/b", "/opt/bot.xml", "~/bot.xml+mass=2"]
    (folder / "mine.yaml").write_text(f"a: {files}\nb: {others}\n")
    for start in ("my sets", str(folder)):
        monkeypatch.chdir(tmp_path)
        assert expand_sets([f"set:{start}/mine.yaml/a+limb=2"]) == tuple(f"{start}/{name}+limb=2" for name in files)
        assert expand_sets([f"set:{start}/mine.yaml/b"]) == tuple(others)
    (tmp_path / "bot.xml").write_text("not this one")  # where the command runs
    names = expand_sets(["set:my sets/mine.yaml/a"])
    assert agents.load(names[1]) == agents.load(f"{folder}/bot.xml+mass=2")
    (folder / "bot.xml").unlink()
    with pytest.raises(UserError, match=r"no model file \S.*my sets/bot.xml: /.*/my sets holds none"):
        load_bodies(names[:1])
    monkeypatch.chdir(folder)
    assert expand_sets(["set:mine.yaml/a"]) == tuple(files)
