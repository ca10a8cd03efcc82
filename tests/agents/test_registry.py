"""Loading by name, rebuilding from the source, and the families found by themselves."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import mujoco
import pytest

import agents
from agents.registry import Family, family, register_family

SHIPPED = {"ant": (15, 8), "half_cheetah": (9, 6), "hopper": (6, 3), "humanoid": (24, 17), "swimmer": (5, 2),
           "walker2d": (9, 6)}  # fmt: skip


def test_every_name_loads_compiles_and_rebuilds() -> None:
    for name in agents.names():
        morphology = agents.load(name)
        assert morphology.name == name
        again = agents.from_source(json.loads(json.dumps(morphology.source)))
        assert again == morphology
        model = morphology.compile()
        assert agents.model_hash(model) == agents.model_hash(again.compile())
        assert model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_AUTORESET


@pytest.mark.parametrize("name", SHIPPED)
def test_gymnasium_bodies(name: str) -> None:
    morphology = agents.load(name)
    model = morphology.compile()
    assert (model.nq, model.nu) == SHIPPED[name]
    assert morphology.task == f"{name}-v5"
    assert morphology.node_class(model) is None


def test_compiling_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    for name in SHIPPED:
        agents.load(name).compile()
    assert not recwarn.list


def test_hash_tells_bodies_apart() -> None:
    names = agents.names()
    assert len({agents.model_hash(agents.load(name).compile()) for name in names}) == len(names)


def test_morphology_pickles() -> None:
    morphology = agents.load("centipede-5-crippled-2")
    copy = pickle.loads(pickle.dumps(morphology))
    assert copy == morphology
    assert hash(copy) == hash(morphology)
    assert agents.model_hash(copy.compile()) == agents.model_hash(morphology.compile())


@pytest.mark.parametrize(
    ("name", "hint"),
    [("centiped-6", "'centipede-6'"), ("antt", "'ant'"), ("centipede-six", "centipede"), ("", "choose from")],
)
def test_unknown_name(name: str, hint: str) -> None:
    with pytest.raises(agents.UserError, match=hint) as caught:
        agents.load(name)
    assert repr(name) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [{}, {"family": "centipedes", "arguments": {}}, {"family": "centipede", "arguments": {"arms": 2}},
     {"family": "gymnasium", "arguments": {"body": "antt"}}, "centipede-6"],
)  # fmt: skip
def test_broken_source(source: object) -> None:
    with pytest.raises(agents.UserError):
        agents.from_source(source)  # type: ignore[arg-type]


def test_a_family_is_registered_once() -> None:
    with pytest.raises(ValueError, match="registered already"):
        register_family(family("centipede"))


def test_new_family(monkeypatch: pytest.MonkeyPatch) -> None:
    def spec(links: int) -> mujoco.MjSpec:
        made = mujoco.MjSpec()
        body = made.worldbody
        for _ in range(links):
            body = body.add_body(pos=[0, 0, 1])
            body.add_joint()
            body.add_geom(size=[0.1, 0, 0])
        return made

    def morphology(links: int) -> agents.Morphology:
        source = {"family": "chain", "arguments": {"links": links}}
        return agents.Morphology(name=f"chain-{links}", source=source)

    def parse(name: str) -> agents.Morphology | None:
        return morphology(int(name[6:])) if name.startswith("chain-") else None

    monkeypatch.setattr("agents.registry._FAMILIES", {"centipede": family("centipede")})
    register_family(Family(name="chain", ready_made=("chain-2",), parse=parse, morphology=morphology, spec=spec))
    assert agents.load("chain-3").compile().njnt == 3
    assert "chain-2" in agents.names()


def test_hash_in_another_process_and_no_import_of_gymnasium() -> None:
    code = (
        "import sys, agents\n"
        "for name in ('centipede-6', 'ant'): print(agents.model_hash(agents.load(name).compile()))\n"
        "print(sorted({'gymnasium', 'torch', 'stable_baselines3'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    assert out[0] == agents.model_hash(agents.load("centipede-6").compile())
    assert out[1] == agents.model_hash(agents.load("ant").compile())
    assert out[2] == "[]"
