"""The general task: rewards against a plain computation, falls, scale, commands, unstable physics."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

import agents
from agents.errors import UserError
from envs import LocomotionVectorEnv
from envs.tasks.locomotion import FASTEST, LocomotionTask, frame_skip
from envs.tasks.options import TaskOptions

LEG = (
    '<body pos="{x} {y} 0"><joint name="{n}h" axis="0 1 0" range="-60 60"/><geom type="capsule" size=".02" '
    'fromto="0 0 0 0 0 -.15"/><body pos="0 0 -.15"><joint name="{n}k" axis="0 1 0" range="-90 90"/>'
    '<geom type="capsule" size=".02" fromto="0 0 0 0 0 -.15"/></body></body>'
)
TRUNK = '<freejoint/><geom type="box" size=".2 .08 .04" pos=".02 0 .01"/>'
LEGS = "".join(LEG.format(x=x, y=y, n=f"{x}{y}") for x in (-0.2, 0.2) for y in (-0.1, 0.1))
MOTORS = "".join(
    f'<motor joint="{x}{y}{joint}" ctrlrange="-1 1" gear="5"/>'
    for x in (-0.2, 0.2) for y in (-0.1, 0.1) for joint in "hk"
)  # fmt: skip
FLOOR = '<geom type="plane" size="9 9 1"/>'
QUADRUPED = FLOOR + '<body pos="0 0 .32">' + TRUNK + LEGS + "</body>"
PROP = '<body pos="2 1 .1"><freejoint/><geom type="sphere" size=".1" mass="7"/></body>'
SNAKE = FLOOR + (
    '<body pos="0 0 .05"><freejoint/><geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/><body pos=".3 0 0">'
    '<joint name="a" axis="0 0 1"/><geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/></body></body>'
)
ARM = FLOOR + (
    '<body pos="0 0 1"><geom size=".05"/><body><joint name="a" axis="0 1 0"/>'
    '<geom type="capsule" size=".03" fromto="0 0 0 .3 0 0"/></body></body>'
)
CAR = FLOOR + (
    '<body pos="0 0 .3"><joint type="slide" axis="1 0 0" {limits}/><geom size=".05"/><body><joint name="a"/>'
    '<geom type="capsule" size=".03" fromto="0 0 0 0 .2 0"/></body></body>'
)
ONE = '<motor joint="a" ctrlrange="-1 1" gear="1"/>'


@dataclass(frozen=True)
class XmlBody(agents.Morphology):
    """A body from MJCF text."""

    xml: str = ""

    def spec(self) -> mujoco.MjSpec:
        return mujoco.MjSpec.from_string(self.xml)

    def node_class(self, model: mujoco.MjModel) -> None:
        return None


def body(world: str, motors: str = MOTORS, option: str = 'timestep="0.005"', rest: str = "") -> XmlBody:
    text = (
        f'<mujoco><compiler autolimits="true"/><option {option}/><worldbody>{world}</worldbody>'
        f"<actuator>{motors}</actuator>{rest}</mujoco>"
    )
    return XmlBody("it", {"family": "xml", "arguments": {}}, "locomotion", text)


def task_of(env: LocomotionVectorEnv) -> LocomotionTask:
    assert isinstance(env._task, LocomotionTask)
    return env._task


def make(world: str, num_envs: int = 1, motors: str = MOTORS, **options: Any) -> LocomotionVectorEnv:
    return LocomotionVectorEnv(body(world, motors), num_envs, task_options=TaskOptions(**options))


@pytest.mark.parametrize(
    ("timestep", "steps"),
    [(0.001, 20), (0.002, 10), (0.003, 7), (0.005, 4), (0.01, 2), (0.015, 2), (0.02, 1), (0.05, 1)],
)
def test_control_runs_at_25_to_50_hertz(timestep: float, steps: int) -> None:
    assert frame_skip(timestep) == steps
    env = LocomotionVectorEnv(body(QUADRUPED, option=f'timestep="{timestep}"'))
    assert env.dt == pytest.approx(steps * timestep)
    assert env.dt >= 0.02 - 1e-9
    assert env.dt <= 0.04 or timestep > 0.04


def test_rewards_of_a_plain_loop() -> None:
    """By MuJoCo alone, with the robot behind a prop; actions beyond [-1, 1] are charged as they are."""
    weights = {"forward_reward_weight": 2.0, "ctrl_cost_weight": 0.3, "contact_cost_weight": 0.2, "healthy_reward": 0.7}
    env = make(PROP + QUADRUPED, 2, **weights)
    model, rng = env.model, np.random.default_rng(0)
    data, robot = mujoco.MjData(model), range(2, model.nbody)
    mass = model.body_mass[2:]
    env.reset(seed=1)
    mujoco.mj_setState(model, data, env.physics.get_state()[1], mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    touched = 0
    for _ in range(40):
        actions = rng.uniform(-1.5, 1.5, (2, 8))
        before = mass @ data.xipos[2:] / mass.sum()
        data.ctrl[:] = np.clip(actions[1], -1, 1)
        mujoco.mj_step(model, data, 4)
        mujoco.mj_rnePostConstraint(model, data)
        velocity = (mass @ data.xipos[2:] / mass.sum() - before) / 0.02
        forces = [min(np.linalg.norm(data.cfrc_ext[i, 3:]) / (mass.sum() * 9.81), 1) for i in robot]
        _, rewards, terminated, _, infos = env.step(actions)
        assert infos["reward_forward"][1] == pytest.approx(2 * velocity[0], rel=1e-9)
        assert infos["x_velocity"][1] == pytest.approx(velocity[0], rel=1e-9)
        assert infos["reward_ctrl"][1] == pytest.approx(-0.3 * np.mean(actions[1] ** 2))
        assert infos["reward_contact"][1] == pytest.approx(-0.2 * np.sum(np.square(forces)))
        touched += infos["reward_contact"][1] < 0
        if not terminated[1]:
            assert infos["reward_survive"][1] == 0.7
        assert rewards[1] == pytest.approx(sum(infos[name][1] for name in infos if name.startswith("reward_")))
        if terminated[1]:
            break
    assert touched > 5


def test_a_fall_ends_the_episode() -> None:
    for ends in (True, None, False):
        env = make(QUADRUPED, 2, terminate_when_unhealthy=ends)
        assert task_of(env).scale.healthy_z_range == pytest.approx((0.165, 0.66))  # its centre of mass is 0.33 m up
        env.reset(seed=0)
        env.physics.data[1].qpos[2:7] = [0.1, 0, 1, 0, 0]  # on its back
        _, _, terminated, _, infos = env.step_without_reset(np.zeros((2, 8)))
        assert terminated.tolist() == [False, ends is not False]
        assert infos["reward_survive"].tolist() == [1.0, 0.0]
        if ends is not False:
            assert infos["termination_reason"][1] == "fall: the root's height left (0.165, 0.66) m"


@pytest.mark.parametrize(
    ("world", "option", "falls"),
    [
        (QUADRUPED, "", True),
        (QUADRUPED, 'gravity="0 0 0"', False),
        (QUADRUPED.replace("<freejoint/>", '<joint type="slide" axis="1 0 0"/><joint axis="0 1 0"/>'), "", False),
        (QUADRUPED.replace("<freejoint/>", '<joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>'), "", True),
        (QUADRUPED.replace("<freejoint/>", ""), "", False),
        (SNAKE, "", False),
        (ARM, "", False),
    ],
)
def test_what_can_fall(world: str, option: str, falls: bool) -> None:
    motors = MOTORS if "0.2-0.1h" in world else ONE
    env = LocomotionVectorEnv(body(world, motors, option=option))
    assert task_of(env).scale.can_fall == falls
    env.reset(seed=0)
    env.physics.data[0].qpos[env.model.jnt_qposadr[0]] = -3.0
    outcome = task_of(env).step(env.physics, np.zeros((1, env.model.nu)))
    assert len(outcome.failures) == falls
    assert outcome.reward_terms["reward_survive"][0] == falls


def test_a_healthy_range_without_the_start_is_refused_and_one_with_it_counts() -> None:
    with pytest.raises(UserError, match=r"healthy_z_range = \[1.0, 2.0\] does not hold the start height .* 0.33 m"):
        make(QUADRUPED, healthy_z_range=(1.0, 2.0))
    env = make(ARM, motors=ONE, healthy_z_range=(0.9, 1.1))
    env.reset(seed=0)
    _, _, terminated, _, infos = env.step(np.zeros((1, 1)))
    assert (terminated[0], infos["reward_survive"][0]) == (False, 1.0)


@pytest.mark.parametrize(("limits", "travels"), [("", True), ('range="-1 1"', False)])
def test_what_cannot_travel_is_rewarded_for_its_speed(limits: str, travels: bool) -> None:
    for world, expected in ((CAR.format(limits=limits), travels), (ARM, False)):
        env = make(world, motors=ONE)
        assert task_of(env).scale.can_travel == expected
        env.reset(seed=0)
        signs = set()
        for step in range(60):
            *_, infos = env.step(np.full((1, 1), 1.0 if step < 30 else -1.0))
            signs.add(bool(infos["reward_forward"][0] < 0))
            unit = 1 / task_of(env).scale.speed
            least = min(unit * abs(infos["x_velocity"][0]), FASTEST)  # as far as speed is rewarded
            assert expected or infos["reward_forward"][0] >= least - 1e-9
            assert abs(infos["reward_forward"][0]) <= FASTEST + 1e-9
        assert signs == ({True, False} if expected else {False})


def test_walking_earns_one_at_any_size() -> None:
    """A robot k times as large walks sqrt(k) times as fast."""
    scales = []
    for k in (0.01, 1.0, 9.0):
        spec = mujoco.MjSpec.from_string(body(QUADRUPED).xml)
        for element in spec.bodies[1:]:
            element.pos = k * element.pos
        for geom in spec.geoms[1:]:
            geom.pos, geom.size = k * geom.pos, k * geom.size
            if not np.isnan(geom.fromto[0]):
                geom.fromto = k * geom.fromto
        env = LocomotionVectorEnv(XmlBody("it", {"family": "xml", "arguments": {}}, "locomotion", spec.to_xml()))
        scales.append(task_of(env).scale)
    speeds = np.array([scale.speed for scale in scales])
    np.testing.assert_allclose(speeds / speeds[1], [0.1, 1, 3], rtol=1e-3)
    assert speeds[1] == pytest.approx(0.5 * np.sqrt(9.81 * 0.33))
    assert scales[1].weight == pytest.approx(9.81 * mujoco.MjModel.from_xml_string(body(QUADRUPED).xml).body_mass.sum())


def test_a_keyframe_brings_its_controls() -> None:
    key = f'<keyframe><key qpos="0 0 .5 1 0 0 0 {"0.2 -.4 " * 4}" ctrl="{".5 -.25 " * 4}"/></keyframe>'
    for reset, height, nominal in (("auto", 0.5, [0.5, -0.25]), ("qpos0", 0.32, [0.0, 0.0])):
        it = body(QUADRUPED, rest=key)
        env = LocomotionVectorEnv(it, task_options=TaskOptions(reset=reset, reset_noise_scale=0.0))
        env.reset(seed=0)
        assert env.physics.qpos[0, 2] == pytest.approx(height)
        env.step_without_reset(np.zeros((1, 8)))
        np.testing.assert_allclose(env.physics.data[0].ctrl, 4 * nominal)


def test_a_robot_alone_is_given_a_floor() -> None:
    alone = QUADRUPED.removeprefix(FLOOR)
    default = '<default><geom contype="2" conaffinity="4" material="m"/></default><asset><material name="m"/></asset>'
    for rest in ("", default):
        it = body(alone.replace('pos="0 0 .32"', 'pos="0 0 5"'), rest=rest)
        env = LocomotionVectorEnv(it, 1, task_options=TaskOptions(reset_noise_scale=0.0))
        assert env.model.ngeom == it.compile().ngeom + 1
        env.reset(seed=0)
        for _ in range(20):
            env.step_without_reset(np.zeros((1, 8)))
        assert env.physics.qpos[0, 2] > 4.5
    flying = body(alone, option='gravity="0 0 0"')
    for it in (flying, body(ARM.removeprefix(FLOOR), ONE), body(QUADRUPED), body(alone.replace("<freejoint/>", ""))):
        assert LocomotionVectorEnv(it).model.ngeom == it.compile().ngeom


def commanded(num_envs: int = 3, **options: Any) -> LocomotionVectorEnv:
    return make(QUADRUPED, num_envs, command=True, command_interval=0.1, terminate_when_unhealthy=False, **options)


def test_commands_change_on_schedule_and_are_observed() -> None:
    env = commanded(4, command_speed=2.0, command_turn_rate=3.0)
    columns = [i for i, name in enumerate(env.layout.features) if name.startswith("command_")]
    assert len(columns) == 3
    obs, _ = env.reset(seed=0)
    seen = []
    for _ in range(300):
        seen.append(obs[:, columns])
        np.testing.assert_allclose(obs[:, columns], task_of(env).command, rtol=1e-6)
        obs, *_ = env.step(np.zeros((4, 8)))
    changed = np.any(np.diff(np.array(seen), axis=0) != 0, axis=2)
    assert not changed[np.arange(299) % 5 != 4].any()  # an interval is 5 steps
    assert changed[4::5].mean() > 0.9
    commands = np.array(seen)[::5].reshape(-1, 3)
    assert 0.03 < np.mean(~commands.any(axis=1)) < 0.2
    most = np.abs(commands).max(axis=0)
    assert np.all((most > [1.8, 0.9, 2.7]) & (most <= [2, 1, 3]))
    again = commanded(4, command_speed=2.0, command_turn_rate=3.0)
    np.testing.assert_array_equal(again.reset(seed=0)[0][:, columns], seen[0])


def test_following_the_command_earns_most() -> None:
    """In the heading frame, whichever way the robot faces."""
    env = commanded(3)
    env.reset(seed=0)
    commands = task_of(env)._commands
    assert commands is not None
    angles, turn = np.array([0.0, 2.0, -2.5]), 0.1
    for step in range(2):
        commands.values[:] = [0.5, -0.2, turn / env.dt]
        heading = angles + turn * step
        forward = np.stack([np.cos(heading), np.sin(heading), 0 * heading], axis=1)
        left = np.stack([-np.sin(heading), np.cos(heading), 0 * heading], axis=1)
        rotation = np.stack([forward, left, np.tile([0.0, 0, 1], (3, 1))], axis=2)
        planar, turned = commands.follow(0.5 * forward - 0.2 * left, rotation)
        np.testing.assert_allclose(planar, 1, rtol=1e-9)
    np.testing.assert_allclose(turned, 0.5, rtol=1e-9)
    error = 0.5 * task_of(env).scale.speed  # half the largest command: 1/e
    commands.values[:] = [0.5, -0.2, 0]
    planar, turned = commands.follow((0.5 + error) * forward - 0.2 * left, rotation)
    np.testing.assert_allclose(planar, np.exp(-1), rtol=1e-9)
    np.testing.assert_allclose(turned, 0.5, rtol=1e-9)


def test_what_the_root_cannot_do_is_not_commanded() -> None:
    env = make(CAR.format(limits=""), motors=ONE, command=True)
    commands = task_of(env)._commands
    assert commands is not None
    assert commands.possible.tolist() == [True, False, False]
    env.reset(seed=1)
    assert not task_of(env).command[:, 1:].any()
    with pytest.raises(UserError, match="cannot travel or turn"):
        make(ARM, motors=ONE, command=True)


@pytest.mark.parametrize("command", [True, False])
def test_continuing_from_a_state_is_exact(command: bool) -> None:
    def run(env: LocomotionVectorEnv, steps: int, rng: np.random.Generator) -> list[np.ndarray]:
        results = [env.step(rng.uniform(-1, 1, (3, 8))) for _ in range(steps)]
        return [np.concatenate([obs.ravel(), rewards]) for obs, rewards, *_ in results]

    options = TaskOptions(command=command, command_interval=0.06 if command else None)
    env, other = (LocomotionVectorEnv(body(QUADRUPED), 3, task_options=options) for _ in range(2))
    env.reset(seed=0)
    other.reset(seed=8)
    run(env, 7, np.random.default_rng(0))
    other.set_state(env.get_state())
    expected = run(env, 60, np.random.default_rng(1))
    np.testing.assert_array_equal(run(other, 60, np.random.default_rng(1)), expected)


def test_unstable_physics_ends_the_episode_and_is_not_hidden(tmp_path: Path) -> None:
    """MuJoCo alone puts this robot back to its start and goes on; here the episode ends, with the reason."""
    os.chdir(tmp_path)
    wild = body(QUADRUPED, MOTORS.replace('gear="5"', 'gear="1e9"'))
    model = mujoco.MjModel.from_xml_string(wild.xml)
    data = mujoco.MjData(model)
    handler = mujoco.get_mju_user_warning()
    assert handler is not None  # ours, since the environments were imported and built: nothing is written
    times = []
    for _ in range(40):
        data.ctrl[:] = 1.0
        mujoco.mj_step(model, data)
        times.append(data.time)
    assert times[-1] < 0.005 * 40 - 1e-9  # reset by itself
    assert np.isfinite(data.qpos).all()

    env = LocomotionVectorEnv(wild, 2, max_episode_steps=None)
    env.reset(seed=0)
    actions = np.zeros((2, 8))
    actions[1] = 1.0
    for _ in range(20):
        obs, rewards, terminated, _, infos = env.step(actions)
        assert np.isfinite(obs).all()
        assert np.isfinite(rewards).all()
        if terminated[1]:
            break
    assert infos["unstable"].tolist() == [False, True]
    assert infos["termination_reason"][1].startswith("unstable: mjWARN_")
    assert "mjWARN_BADQACC" in infos["termination_reason"][1]
    assert rewards[1] == 0.0
    assert np.isfinite(infos["final_obs"]).all()
    *_, infos = env.step(np.zeros((2, 8)))  # the next episode is its own: no displacement from before the reset
    assert abs(infos["x_velocity"][1]) < 1.0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frame_skip": 0}, "task.frame_skip = 0 is out of range"),
        ({"ctrl_cost_weight": -1.0}, "task.ctrl_cost_weight = -1.0 is out of range"),
        ({"forward_reward_weight": float("nan")}, "task.forward_reward_weight = nan"),
        ({"healthy_z_range": (1.0,)}, "task.healthy_z_range = .* is no range"),
        ({"healthy_z_range": (2.0, 1.0)}, "task.healthy_z_range = .* is no range"),
        ({"reset": "home"}, "task.reset = 'home' is not a choice: .*keyframe:NAME"),
        ({"reset": "keyframe:"}, "task.reset = 'keyframe:' is not a choice"),
        ({"command_speed": 1.0}, "task.command_speed is for commanded motion only"),
        ({"command": True, "command_interval": 0.0}, "task.command_interval = 0.0 is out of range"),
    ],
)
def test_mistakes_in_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TaskOptions(**options)


def test_id_with_a_keyword() -> None:
    vector = gymnasium.make_vec("Snowflake/Locomotion-v0", num_envs=2, model="hopper")
    assert isinstance(vector, LocomotionVectorEnv)
    assert (vector.morphology.name, type(vector._task)) == ("hopper", LocomotionTask)
    env = gymnasium.make("Snowflake/Locomotion-v0", model=body(QUADRUPED), task_options=TaskOptions(frame_skip=7))
    assert env.unwrapped.dt == pytest.approx(0.035)  # type: ignore[attr-defined]
    env.reset(seed=0)
    env.step(env.action_space.sample())


def test_plain_sb3_trains_on_ant() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", "Snowflake/Ant-v0", n_steps=500, batch_size=250, n_epochs=2, seed=0, device="cpu")
    model.learn(1000)
    assert model.num_timesteps == 1000
    assert all(parameter.isfinite().all() for parameter in model.policy.parameters())
    assert len(model.ep_info_buffer) > 0
