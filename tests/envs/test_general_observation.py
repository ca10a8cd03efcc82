"""The general feature set and the actions, on small robots of every kind."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from agents import UserError
from envs import LocomotionEnv, LocomotionVectorEnv, TaskOptions, make_vector_env
from envs.observation import ACTUATOR, BODY, JOINT, ROOT, ObservationLayout
from envs.observation.general import BOUND
from envs.observation.root import RootMotion
from tests.envs.robots import ROBOTS, TWO_ROBOTS, morphology

STEPS = 50
_HINGE, _SLIDE, _BALL = (int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("HINGE", "SLIDE", "BALL"))
FREE_ROOT = ["height", *(f"rot_{i}" for i in range(6)), *(f"linvel_{i}" for i in range(3)),
             *(f"angvel_{i}" for i in range(3))]  # fmt: skip
PLANAR_ROOT = ["height", "rot_0", "rot_2", "linvel_0", "linvel_2", "angvel_1"]
FIXED = ("fixed base", "several actuators a joint", "several controls an actuator", "fixed tendon", "spatial tendon",
         "muscle", "slider-crank", "pendulum", "tendon to the world")  # fmt: skip


def make(folder: Path, name: str, num_envs: int = 1) -> LocomotionVectorEnv:
    env = LocomotionVectorEnv(morphology(folder, ROBOTS[name]), num_envs, num_threads=1)
    env.reset(seed=0)
    return env


def columns(layout: ObservationLayout, kind: int, owner: int) -> dict[str, int]:
    """Return the columns of an owner, by feature."""
    found = np.flatnonzero((layout.owner_kind == kind) & (layout.owner_id == owner))
    return {layout.features[column]: int(column) for column in found}


def expected(env: LocomotionVectorEnv, index: int = 0) -> np.ndarray:
    """Compute an observation column by column, from MuJoCo's own results."""
    model, layout, robot = env.model, env.layout, env.robot
    late = env.physics.data[index]
    data = mujoco.MjData(model)
    data.qpos, data.qvel, data.act = late.qpos, late.qvel, late.act
    mujoco.mj_forward(model, data)
    velocity = np.zeros(6)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, robot.root_body, velocity, 1)
    values = np.full(layout.size, np.nan)
    for column, (kind, owner, feature) in enumerate(
        zip(layout.owner_kind, layout.owner_id, layout.features, strict=True)
    ):
        what, _, number = feature.partition("_")
        i = int(number or 0)
        if kind == ROOT:
            matrix = data.xmat[owner].reshape(3, 3)
            here = {"height": data.xpos[owner, 2], "rot": matrix[i % 3, i // 3] if what == "rot" else 0,
                    "linvel": velocity[3 + i % 3], "angvel": velocity[i % 3]}  # fmt: skip
            values[column] = here[what]
        elif kind == JOINT and what == "vel":
            values[column] = data.qvel[model.jnt_dofadr[owner] + i]
        elif kind == JOINT:
            values[column] = position(model, data, int(owner), i)
        elif kind == BODY:
            welded = np.flatnonzero(robot.moving_body == owner)
            values[column] = np.clip(late.cfrc_ext[welded, i].sum(), -1, 1)
        else:
            assert kind == ACTUATOR
            act = data.act[model.actuator_actadr[owner] + i]
            bounded = model.actuator_dyntype[owner] == int(mujoco.mjtDyn.mjDYN_MUSCLE)
            high = model.actuator_actrange[owner, 1] if model.actuator_actlimited[owner] else 0
            values[column] = act if bounded else act / max(high, 1) if high else act / (1 + abs(act))
    return values


def position(model: mujoco.MjModel, data: mujoco.MjData, joint: int, i: int) -> float:
    q = data.qpos[model.jnt_qposadr[joint] :]
    if model.jnt_type[joint] == _HINGE:
        return float((np.sin, np.cos)[i](q[0]))
    if model.jnt_type[joint] == _SLIDE:
        scale = np.ptp(model.jnt_range[joint]) / 2 if model.jnt_limited[joint] else 1.0
        return float(q[0] / (abs(q[0]) + scale))
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, q[:4] / np.linalg.norm(q[:4]))
    return float(matrix[3 * (i % 3) + i // 3])


@pytest.mark.parametrize("name", ROBOTS)
def test_observations_of_random_steps(tmp_path: Path, name: str) -> None:
    env = make(tmp_path, name, num_envs=2)
    model, layout, robot = env.model, env.layout, env.robot
    assert layout.feature_set == "general"
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(STEPS):
        obs, rewards, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape))
        assert env.observation_space.contains(obs)
        assert np.isfinite(obs).all()
        assert np.isfinite(rewards).all()
        np.testing.assert_allclose(obs[1], np.clip(expected(env, 1), -BOUND, BOUND), rtol=1e-5, atol=1e-5)
        seen.append(obs)
    spread = np.stack(seen).std(axis=(0, 1))
    moves = [column for column, feature in enumerate(layout.features) if not feature.startswith("contact")]
    assert (spread[moves] > 1e-7).all(), [layout.names[column] for column in moves if spread[column] <= 1e-7]
    root = columns(layout, ROOT, robot.root_body)
    assert list(root) == ([] if name in FIXED else PLANAR_ROOT if name == "planar root" else FREE_ROOT)
    widths = {_HINGE: (2, 1), _SLIDE: (1, 1), _BALL: (6, 3)}
    for joint in robot.node_joints.tolist():
        positions, velocities = widths[int(model.jnt_type[joint])]
        features = [f"pos_{i}" for i in range(positions)] + [f"vel_{i}" for i in range(velocities)]
        assert list(columns(layout, JOINT, joint)) == features
    owners = {int(owner) for owner in layout.owner_id[layout.owner_kind == BODY]}
    assert owners == set(robot.moving_body[robot.bodies].tolist())
    acting = {int(owner) for owner in layout.owner_id[layout.owner_kind == ACTUATOR]}
    assert acting == {int(a) for a in robot.actuators if model.actuator_actnum[a]}
    env.close()


@pytest.mark.parametrize("name", ROBOTS)
def test_an_action_moves_its_actuator_alone(tmp_path: Path, name: str) -> None:
    env = make(tmp_path, name)
    model, robot, data = env.model, env.robot, env.physics.data[0]
    assert env.single_action_space.shape == (len(robot.controls),) == (model.nu,)
    for actuator in range(model.nactuator):  # a muscle or filter at rest gives no force yet
        if model.actuator_actnum[actuator]:
            data.act[model.actuator_actadr[actuator]] = 0.3

    def effect(actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        data.ctrl[:] = env.control_map.control(actions[None])[0]
        mujoco.mj_forward(model, data)
        return data.actuator_force.copy(), data.act_dot.copy(), data.qfrc_actuator.copy()

    rest = effect(np.zeros(model.nu))
    for action in range(model.nu):
        forces, rates, torques = effect(0.5 * np.eye(model.nu)[action])
        actuator = robot.actuators[action]
        outputs = model.actuator_outadr[actuator] + np.arange(model.actuator_outnum[actuator])
        acts = model.actuator_actadr[actuator] + np.arange(model.actuator_actnum[actuator])
        changed, changed_rates = np.flatnonzero(forces != rest[0]), np.flatnonzero(rates != rest[1])
        assert len(changed) + len(changed_rates) > 0
        assert set(changed) <= set(outputs)
        assert set(changed_rates) <= set(acts)
        moment = np.zeros((len(data.actuator_force), model.nv))
        mujoco.mju_sparse2dense(
            moment, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind
        )
        moved = np.flatnonzero(np.abs(torques - rest[2]) > 1e-9)
        assert set(moved) <= set(np.flatnonzero(np.abs(moment[outputs]).max(axis=0)))
    env.close()


def test_of_two_robots_the_other_stays_at_its_nominal_control(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="2 actuated trees"):
        LocomotionVectorEnv(morphology(tmp_path, TWO_ROBOTS), 1)
    env = LocomotionVectorEnv(morphology(tmp_path, TWO_ROBOTS), 1, root_body="body#2")
    same = LocomotionVectorEnv(morphology(tmp_path, TWO_ROBOTS, "body#2"), 1)
    assert same.layout.names == env.layout.names
    assert env.single_action_space.shape == (2,)
    assert set(env.layout.owner_id[env.layout.owner_kind == JOINT]) == {1, 2}
    env.reset(seed=0)
    env.step(np.array([[1.0, -0.5]]))
    # 0 lies outside the other's range of .2 to .8: the nearest control stands in for it.
    np.testing.assert_array_equal(env.physics.data[0].ctrl, [1.0, 0.2, -0.5])


def test_paper_features_on_request(tmp_path: Path) -> None:
    assert LocomotionVectorEnv("centipede-3").layout.feature_set == "paper"
    assert LocomotionVectorEnv("centipede-3", features="general").layout.feature_set == "general"
    body = morphology(tmp_path, ROBOTS["plain"])
    assert LocomotionVectorEnv(body, features="paper").layout.feature_set == "paper"
    with pytest.raises(UserError, match="did you mean 'general'"):
        LocomotionVectorEnv(body, features="generel")


def test_batch_equals_single(tmp_path: Path) -> None:
    body = morphology(tmp_path, ROBOTS["slide joint"])
    batch, single = LocomotionVectorEnv(body, 5), LocomotionEnv(body)
    obs, _ = batch.reset(seed=3)
    np.testing.assert_array_equal(obs[2], single.reset(seed=5)[0])
    rng = np.random.default_rng(1)
    for _ in range(20):
        actions = rng.uniform(-1, 1, batch.action_space.shape)
        np.testing.assert_array_equal(batch.step(actions)[0][2], single.step(actions[2])[0])
    assert single.robot.node_joints.tolist() == [1, 2, 3, 4]


def test_bodies_of_both_kinds_share_the_general_features(tmp_path: Path) -> None:
    body = morphology(tmp_path, ROBOTS["fixed base"])
    env = make_vector_env(["centipede-3", body], 2)
    assert [part.layout.feature_set for part in env.body_envs] == ["general", "general"]
    alone = make_vector_env(["centipede-3", "centipede-4"], 2)
    assert [part.layout.feature_set for part in alone.body_envs] == ["paper", "paper"]
    with pytest.raises(UserError, match="root body 'base' is given for 2 bodies"):
        make_vector_env(["centipede-3", body], 2, root_body="base")
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)


def test_the_command_is_observed(tmp_path: Path) -> None:
    body = morphology(tmp_path, ROBOTS["plain"])
    env = LocomotionVectorEnv(body, 3, task_options=TaskOptions(command=True))
    obs, _ = env.reset(seed=0)
    command = columns(env.layout, ROOT, env.robot.root_body)
    assert [env.layout.units[command[f"command_{i}"]] for i in range(3)] == ["m/s", "m/s", "rad/s"]
    values = obs[:, [command[f"command_{i}"] for i in range(3)]]
    assert np.abs(values).max() > 0
    assert len(np.unique(values[:, 0])) == 3


def test_states_with_activations_go_on_as_they_were(tmp_path: Path) -> None:
    env, other = make(tmp_path, "muscle", 2), make(tmp_path, "muscle", 2)
    rng = np.random.default_rng(0)
    for _ in range(5):
        env.step(rng.uniform(-1, 1, env.action_space.shape))
    other.set_state(env.get_state())
    np.testing.assert_array_equal(other.physics.act, env.physics.act)
    actions = rng.uniform(-1, 1, env.action_space.shape)
    np.testing.assert_array_equal(other.step(actions)[0], env.step(actions)[0])


def test_reset_to_a_keyframe_takes_its_activations_and_controls(tmp_path: Path) -> None:
    key = '<keyframe><key qpos=".3 -.2" act=".7" ctrl=".4 .1"/></keyframe></mujoco>'
    body = morphology(tmp_path, ROBOTS["muscle"].replace("</mujoco>", key))
    env = LocomotionVectorEnv(body, 1)
    env.reset(seed=0)
    np.testing.assert_allclose(env.physics.act, [[0.7]])
    np.testing.assert_allclose(env.control_map.nominal, [0.4, 0.1])
    env = LocomotionVectorEnv(body, 1, task_options=TaskOptions(reset="qpos0"))
    env.reset(seed=0)
    np.testing.assert_allclose(env.physics.act, [[0.0]])
    np.testing.assert_allclose(env.control_map.nominal, [0.5, 0.0])


ROOTS = {
    "free": "<freejoint/>",
    "planar": '<joint type="slide" axis="1 0 .3" ref=".4"/><joint axis="0 1 0" pos=".1 .2 .3" ref=".5"/>'
    '<joint type="slide" axis="0 0 1"/><joint axis="1 0 1" pos="0 0 -.2"/>',
    "ball": '<joint type="slide" axis="0 0 1"/><joint type="ball" pos=".3 .1 0"/>',
    "fixed": "",
}


@pytest.mark.parametrize("kind", ROOTS)
def test_kinematics_of_the_root(kind: str) -> None:
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><worldbody><body><freejoint/><geom size=".1"/></body><body pos="1 2 3" euler="20 30 40">{ROOTS[kind]}'
        '<geom size=".1" pos=".1 .2 .3"/></body></worldbody></mujoco>'
    )
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    qpos, qvel = rng.normal(size=(7, model.nq)), rng.normal(size=(7, model.nv))
    state = RootMotion(model, 2).state(qpos, qvel)
    for row in range(7):
        data.qpos, data.qvel = qpos[row], qvel[row]
        mujoco.mj_forward(model, data)
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, 2, velocity, 1)
        np.testing.assert_allclose(state.position[row], data.xpos[2], atol=1e-12)
        np.testing.assert_allclose(state.rotation[row], data.xmat[2].reshape(3, 3), atol=1e-12)
        np.testing.assert_allclose(state.angular[row], velocity[:3], atol=1e-12)
        np.testing.assert_allclose(state.linear[row], velocity[3:], atol=1e-12)


def assert_same_layout(one: LocomotionVectorEnv, other: LocomotionVectorEnv) -> None:
    """Hold that two robots observe and act alike."""
    for field in ("names", "features", "units"):
        assert getattr(one.layout, field) == getattr(other.layout, field)
    np.testing.assert_array_equal(one.layout.owner_kind, other.layout.owner_kind)
    np.testing.assert_array_equal(one.layout.owner_id, other.layout.owner_id)
    assert one.robot.attachments == other.robot.attachments
    np.testing.assert_allclose(one.control_map.low, other.control_map.low)
    np.testing.assert_allclose(one.reset(seed=0)[0], other.reset(seed=0)[0], atol=1e-6)
    np.testing.assert_allclose(one.step(np.full(one.action_space.shape, 0.4))[0],
                               other.step(np.full(one.action_space.shape, 0.4))[0], atol=1e-5)  # fmt: skip


def test_units_defaults_and_includes_are_the_same_robot(tmp_path: Path) -> None:
    text = ROBOTS["plain"]
    plain = LocomotionVectorEnv(morphology(tmp_path, text))
    radians = text.replace("<mujoco>", '<mujoco><compiler angle="radian"/>').replace(
        'range="-50 70"', f'range="{np.radians(-50)} {np.radians(70)}"'
    )
    defaults = text.replace(' axis="0 1 0" range="-50 70"', "").replace(
        "<mujoco>", '<mujoco><default><joint axis="0 1 0" range="-50 70"/></default>'
    )
    start, end = text.index("<body"), text.index("</worldbody>")
    (tmp_path / "part.xml").write_text(f"<mujocoinclude>{text[start:end]}</mujocoinclude>")
    included = f'{text[:start]}<include file="part.xml"/>{text[end:]}'
    for variant in (radians, defaults, included):
        assert_same_layout(plain, LocomotionVectorEnv(morphology(tmp_path, variant)))
