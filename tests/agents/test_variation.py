"""Variations: closed forms of what each key changes, seeds, names, refusals."""

from __future__ import annotations

import json
import pickle

import mujoco
import numpy as np
import pytest

import agents
from agents.tree import find_tree, lowest
from envs import LocomotionVectorEnv

EXAMPLES = ("centipede-6+mass=1.5", "ant+vary=0.2+seed=7", "humanoid+remove=right_thigh", "half_cheetah+payload=2.5",
            "ant+broken=hip_1,ankle_2", "centipede-6+remove=2+broken=1+seed=3",
            "quadruped+limb=1.2+gear=0.5")  # fmt: skip


def pair(base: str, changes: str) -> tuple[mujoco.MjModel, mujoco.MjModel]:
    """Compile a body without and with changes."""
    return agents.load(base).compile(), agents.load(f"{base}+{changes}").compile()


@pytest.mark.parametrize("name", EXAMPLES)
def test_rebuilds_from_its_source_and_runs(name: str) -> None:
    body = agents.load(name)
    again = agents.from_source(json.loads(json.dumps(body.source)))
    assert again == body == pickle.loads(pickle.dumps(body)) == agents.load(body.name)
    assert agents.model_hash(again.compile()) == agents.model_hash(body.compile())
    assert agents.model_hash(body.compile()) != agents.model_hash(body.unvaried.compile())
    assert (body.unvaried.name, body.task) == (name.split("+")[0], agents.load(name.split("+")[0]).task)
    env = LocomotionVectorEnv(body)
    env.reset(seed=0)
    assert np.isfinite(env.step(np.zeros((1, env.model.nu)))[0]).all()
    env.close()


@pytest.mark.parametrize("base", ["centipede-6", "ant", "humanoid", "half_cheetah", "walker2d", "quadruped"])
def test_mass_and_payload(base: str) -> None:
    plain, heavy = pair(base, "mass=1.5")
    np.testing.assert_allclose(heavy.body_mass, 1.5 * plain.body_mass, rtol=1e-12)
    np.testing.assert_allclose(heavy.body_inertia, 1.5 * plain.body_inertia, rtol=1e-9)
    loaded = agents.load(f"{base}+payload=2.5").compile()
    root = find_tree(plain, None, base).root
    expected = plain.body_mass.copy()
    expected[root] += 2.5
    np.testing.assert_allclose(loaded.body_mass, expected, rtol=1e-12)
    np.testing.assert_allclose(loaded.body_ipos, plain.body_ipos, atol=1e-12)  # at the centre of mass
    both = agents.load(f"{base}+payload=2.5+mass=1.5").compile()
    assert both.body_mass.sum() == pytest.approx(1.5 * plain.body_mass.sum() + 2.5)
    assert loaded.nbody == plain.nbody


def test_gear_and_friction() -> None:
    plain, strong = pair("ant", "gear=2")
    np.testing.assert_array_equal(strong.actuator_gear, 2 * plain.actuator_gear)
    plain, slippery = pair("centipede-6", "friction=0.5")
    np.testing.assert_allclose(slippery.geom_friction, 0.5 * plain.geom_friction)
    assert slippery.geom_friction[slippery.geom("floor").id, 0] == 0.75  # it decides where it is the larger


def test_gear_of_servos_keeps_their_setpoint() -> None:
    plain, strong = pair("quadruped-position", "gear=2")
    np.testing.assert_array_equal(strong.actuator_gear, plain.actuator_gear)
    for model, torque in ((plain, 15.0), (strong, 30.0)):
        data = mujoco.MjData(model)
        data.ctrl[0] = 0.1
        mujoco.mj_forward(model, data)
        assert data.qfrc_actuator[6] == pytest.approx(torque)
        data.qpos[7] = 0.1  # where it is told to be
        mujoco.mj_forward(model, data)
        assert data.qfrc_actuator[6] == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_array_equal(strong.actuator_forcerange, 2 * plain.actuator_forcerange)


@pytest.mark.parametrize("base", ["centipede-6", "ant", "humanoid", "half_cheetah", "quadruped", "cheetah-7"])
def test_limb_scales_the_distances_between_joints(base: str) -> None:
    plain, long = pair(base, "limb=1.3")
    tree = find_tree(plain, None, base)
    points = []
    for model in (plain, long):
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        points.append(data.xanchor[model.body_jntadr] - data.xpos[tree.root])
    for body in tree.limb_bodies():
        parent = int(tree.moving[plain.body_parentid[body]])
        if not plain.body_jntnum[body]:
            continue
        offset = points[0][body] - (0 if parent == tree.root else points[0][parent])
        scaled = points[1][body] - (0 if parent == tree.root else points[1][parent])
        # Where a limb is held by the root stays; everything farther out moves out.
        np.testing.assert_allclose(scaled, offset if parent == tree.root else 1.3 * offset, atol=1e-9)
    capsules = (plain.geom_type == mujoco.mjtGeom.mjGEOM_CAPSULE) & np.isin(plain.geom_bodyid, tree.limb_bodies())
    np.testing.assert_allclose(long.geom_size[capsules, 1], 1.3 * plain.geom_size[capsules, 1], rtol=1e-9)
    np.testing.assert_allclose(long.geom_size[capsules, 0], plain.geom_size[capsules, 0])
    assert capsules.any()
    own = (plain.geom_bodyid == tree.root) | (plain.geom_bodyid == 0)
    np.testing.assert_array_equal(long.geom_size[own], plain.geom_size[own])
    # It stands as high above the floor as before.
    below = [lowest(model, tree.bodies, model.qpos0) for model in (plain, long)]
    assert below[0] == pytest.approx(below[1], abs=1e-9)


def test_mass_of_a_longer_capsule_in_closed_form() -> None:
    plain, long = pair("ant-4", "limb=1.5")
    shin = plain.body("shin_0").id
    radius, half = plain.geom_size[plain.geom("shin_0").id, :2]
    volume = np.pi * radius**2 * (2 * 1.5 * half + 4 / 3 * radius)
    assert long.body_mass[shin] == pytest.approx(25.0 * volume)
    assert plain.body_mass[shin] == pytest.approx(25.0 * np.pi * radius**2 * (2 * half + 4 / 3 * radius))


def test_height_of_a_planar_root_stays_its_coordinate() -> None:
    plain, long = pair("hopper", "limb=1.2")
    rise = long.body_pos[1, 2] - plain.body_pos[1, 2]
    assert rise > 0.1
    assert long.qpos0[1] - plain.qpos0[1] == pytest.approx(rise)  # the task's healthy heights are of this number


def test_removing_a_limb_drops_what_is_its() -> None:
    plain, model = pair("humanoid", "remove=right_thigh")
    assert (plain.njnt - model.njnt, plain.nu - model.nu, plain.ntendon - model.ntendon) == (4, 4, 1)
    names = {model.joint(joint).name for joint in range(model.njnt)}
    assert {plain.joint(joint).name for joint in range(plain.njnt)} - names == {
        "right_hip_x", "right_hip_z", "right_hip_y", "right_knee"}  # fmt: skip
    ant, lame = pair("ant", "remove=front_left_leg")
    assert (ant.nbody - lame.nbody, ant.nu - lame.nu) == (3, 2)


def test_paper_features_and_node_classes_of_varied_centipedes() -> None:
    from snowflake.run import graph_of

    whole = LocomotionVectorEnv("centipede-6")
    classes = list(whole.morphology.node_class(whole.model))
    legs = {"remove=legbody_0,legbody_3": {1, 2, 9, 10}, "broken=5+seed=1": set(), "vary=0.3": set()}
    for changes, gone in legs.items():
        env = LocomotionVectorEnv(f"centipede-6+{changes}")
        assert env.layout.feature_set == "paper"
        expected = [kind for joint, kind in enumerate(classes) if joint not in gone]
        assert list(env.morphology.node_class(env.model)) == expected
        graph = graph_of(env)
        assert (graph.num_nodes, graph.act_dim) == (len(expected), env.model.nu)
        env.close()
    with pytest.raises(ValueError, match="13 joints"):
        agents.load("centipede-6+remove=legbody_0,legbody_3").node_class(whole.model)
    whole.close()


def test_broken_actuators_leave_passive_joints() -> None:
    plain, model = pair("centipede-6", "broken=lefthip_0,ankle_0,righthip_1,ankle_1")
    assert (model.njnt, model.nu) == (plain.njnt, plain.nu - 4)
    crippled = agents.load("centipede-6-crippled").compile()
    for key in ("body_mass", "jnt_range", "actuator_trnid", "actuator_gear"):
        np.testing.assert_array_equal(getattr(model, key), getattr(crippled, key))


def test_seeds_reproduce_and_differ() -> None:
    names = [f"ant-6+{changes}+seed={seed}" for changes in ("vary=0.2", "remove=2", "broken=3") for seed in (1, 2)]
    hashes = [agents.model_hash(agents.load(name).compile()) for name in names]
    assert hashes == [agents.model_hash(agents.load(name).compile()) for name in names]
    assert len(set(hashes)) == len(names)
    plain, varied = pair("ant-6", "vary=0.2+seed=1")
    gears = varied.actuator_gear[:, 0] / plain.actuator_gear[:, 0]
    lengths = varied.geom_size[:, 1] / np.maximum(plain.geom_size[:, 1], 1e-9)
    shins = [plain.geom(f"shin_{leg}").id for leg in range(6)]
    for factors in (gears, lengths[shins]):
        assert ((factors > 0.8) & (factors < 1.2)).all()
        assert len(set(np.round(factors, 9))) == len(factors)  # each part has its own


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("ant+gear=0.80+friction=.5", "ant+gear=0.8+friction=0.5"),
        ("ant+payload=1+limb=1.1", "ant+limb=1.1+payload=1"),
        ("ant+mass=1+gear=2", "ant+gear=2"),
        ("ant+mass=1.0", "ant"),
        ("ant+vary=0+seed=4", "ant"),
        ("ant+vary=0.1", "ant+vary=0.1+seed=0"),
        ("ant+remove=1", "ant+remove=1+seed=0"),
        ("ant+seed=5+mass=2+broken=2", "ant+mass=2+broken=2+seed=5"),
        ("ant+broken=actuator#0", "ant+broken=hip_4"),
        ("ant+remove=body#2", "ant+remove=front_left_leg"),
    ],
)
def test_names_are_canonical(name: str, canonical: str) -> None:
    assert agents.load(name).name == canonical


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ant+mas=2", "'mas' is nothing that can be varied: did you mean 'mass'"),
        ("ant+mass=heavy", "mass=heavy must be a number from 0.05 to 20"),
        ("ant+mass=nan", "mass=nan must be a number"),
        ("ant+mass=0", "mass=0 must be a number from 0.05"),
        ("ant+limb=9", "limb=9 must be a number from 0.2 to 5"),
        ("ant+vary=1", "vary=1 must be a number from 0 to 0.9"),
        ("ant+mass=2+mass=3", "mass is given twice"),
        ("ant+seed=2", "nothing is drawn"),
        ("ant+remove=leg+seed=2", "nothing is drawn"),
        ("ant+vary=0.1+seed=-1", "whole number"),
        ("ant+remove=front_lft_leg", "no body 'front_lft_leg': did you mean 'front_left_leg'"),
        ("ant+remove=torso", "'torso' is no limb"),
        ("ant+remove=world", "'world' is no limb"),
        ("ant+remove=5", "has 4 limbs, 5 cannot be taken"),
        ("ant+remove=4", "no actuator would be left"),
        ("ant+broken=9", "has 8 actuators, 9 cannot be taken"),
        ("ant+broken=hipp_1", "no actuator 'hipp_1': did you mean 'hip_1'"),
        ("ant+broken=hip_1,", "names nothing"),
        ("hopper+remove=thigh", "no actuator would be left"),
        ("antt+mass=2", "unknown body 'antt': did you mean 'ant'"),
        ("centipede-2+mass=2", "at least 3 legs"),
        ("+mass=2", "unknown body"),
    ],
)
def test_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(agents.UserError, match=message) as caught:
        agents.load(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("arguments", [{"base": {}, "mass": 2}, {"mass": 2.0}, {"base": "ant"}])
def test_broken_sources(arguments: dict) -> None:
    with pytest.raises(agents.UserError):
        agents.from_source({"family": "variation", "arguments": arguments})
    with pytest.raises(agents.UserError, match="'mass'"):
        agents.from_source({"family": "variation", "arguments": {"base": agents.load("ant").source, "mas": 2.0}})
