"""The environments as other packages meet them: ids, checkers, a fresh process, plain SB3."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import agents
import envs
from envs.registration import environment_id

INFINITE_BOUNDS = ("observation space minimum value is -infinity", "observation space maximum value is infinity")
IDS = sorted(key for key in gymnasium.registry if key.startswith("Snowflake/"))


def run(code: str, folder: Path) -> list[str]:
    root = Path(envs.__file__).parent.parent
    script = f"import sys; sys.path.insert(0, {str(root)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_body_with_a_task_has_an_id() -> None:
    with_task = [name for name in agents.names() if agents.load(name).task]
    assert set(IDS) == {"Snowflake/Centipede-v0", "Snowflake/Locomotion-v0", *map(environment_id, with_task)}
    assert {"Snowflake/Ant-v0", "Snowflake/HalfCheetah-v0", "Snowflake/Walker2d-v0"} <= set(IDS)
    assert {"Snowflake/Centipede-6-v0", "Snowflake/Centipede-20-v0", "Snowflake/Centipede-6-Crippled-v0"} <= set(IDS)


@pytest.mark.parametrize("key", IDS)
def test_every_id_makes_an_environment(key: str) -> None:
    model = {"model": "ant"} if key == "Snowflake/Locomotion-v0" else {}
    env = gymnasium.make(key, disable_env_checker=True, **model)
    assert env.spec is not None
    assert env.spec.max_episode_steps == 1000
    obs, _ = env.reset(seed=0)
    assert obs.shape == env.observation_space.shape
    assert len(env.step(env.action_space.sample())) == 5
    env.close()


def test_keywords() -> None:
    env = gymnasium.make("Snowflake/Centipede-v0", legs=5, crippled_legs=[2])
    assert env.unwrapped.morphology.name == "centipede-5-crippled-2"  # type: ignore[attr-defined]
    with pytest.raises(agents.UserError, match="at least 3 legs"):
        gymnasium.make("Snowflake/Centipede-v0", legs=2)


def test_the_general_task_asks_for_a_robot() -> None:
    for make in (gymnasium.make, gymnasium.make_vec):
        with pytest.raises(agents.UserError, match=r"Locomotion-v0 needs a robot: give model='path/to/robot.xml'"):
            make("Snowflake/Locomotion-v0")


def test_task_options_as_a_dict() -> None:
    given = {"command": True, "healthy_z_range": [0.1, 3], "ctrl_cost_weight": 1, "frame_skip": np.int64(3)}
    env = gymnasium.make("Snowflake/Locomotion-v0", model="ant", task_options=given).unwrapped
    plain = envs.TaskOptions(command=True, healthy_z_range=(0.1, 3.0), ctrl_cost_weight=1.0, frame_skip=3)
    assert envs.TaskOptions.of(given) == plain
    assert env.batch._task.frame_skip == 3  # type: ignore[attr-defined]
    np.testing.assert_array_equal(
        env.reset(seed=3)[0], envs.LocomotionEnv("ant", task="locomotion", task_options=plain).reset(seed=3)[0]
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"healthy_range": (0, 1)}, "task_options has no 'healthy_range': did you mean 'healthy_z_range'"),
        ({"frame_skip": 2.5}, r"\['frame_skip'\] = 2.5 is not a whole number"),
        ({"command": 1}, r"\['command'\] = 1 is not true or false"),
        ({"ctrl_cost_weight": True}, "= True is not a number"),
        ({"healthy_z_range": "low"}, "= 'low' is not a list of numbers"),
        ({"frame_skip": 0}, "task.frame_skip = 0 is out of range"),
        ("command", "task_options is 'command': give a dict"),
    ],
)
def test_task_options_that_are_wrong(given: Any, message: str) -> None:
    with pytest.raises(agents.UserError, match=message):
        gymnasium.make_vec("Snowflake/Ant-v0", task_options=given)


@pytest.mark.parametrize("steps", [4, 1500])
def test_limit_of_make_holds(steps: int) -> None:
    env = gymnasium.make("Snowflake/Centipede-8-v0", max_episode_steps=steps)
    env.reset(seed=0)
    limits = [env.step(np.zeros(22, dtype=np.float32))[3] for _ in range(4)]
    assert limits == [False, False, False, steps == 4]
    assert env.unwrapped.batch.max_episode_steps is None  # type: ignore[attr-defined]


def test_make_vec() -> None:
    env = gymnasium.make_vec("Snowflake/Centipede-4-v0", num_envs=3)
    assert isinstance(env, envs.LocomotionVectorEnv)
    assert (env.num_envs, env.max_episode_steps) == (3, 1000)
    env = gymnasium.make_vec("Snowflake/Centipede-v0", num_envs=2, legs=3, max_episode_steps=6)
    assert isinstance(env, envs.LocomotionVectorEnv)
    assert (env.morphology.name, env.max_episode_steps) == ("centipede-3", 6)
    obs, _ = env.reset(seed=0)
    sync = gymnasium.make_vec("Snowflake/Centipede-v0", num_envs=2, legs=3, vectorization_mode="sync")
    np.testing.assert_array_equal(obs, sync.reset(seed=0)[0])


def test_gymnasiums_vector_wrappers_read_the_infos() -> None:
    env = gymnasium.make_vec("Snowflake/Centipede-3-v0", num_envs=2, max_episode_steps=6)
    env = gymnasium.wrappers.vector.DictInfoToList(gymnasium.wrappers.vector.RecordEpisodeStatistics(env))
    env.reset(seed=0)
    for _ in range(6):
        *_, infos = env.step(np.zeros((2, 6)))
    assert all(info["episode"]["l"] == 6 for info in infos)
    assert all(info["final_obs"].shape == (81,) for info in infos)


def test_checkers_warn_of_infinite_bounds_only() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_checker import check_env as check_env_sb3

    env = gymnasium.make("Snowflake/Centipede-6-v0").unwrapped
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env, skip_render_check=True)  # rendering needs OpenGL, see test_rendering.py
        check_env_sb3(env)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 2
    assert all(any(known in message for message in messages) for known in INFINITE_BOUNDS)


def test_fresh_process_without_torch_or_opengl_or_log_file(tmp_path: Path) -> None:
    lines = run(
        "import gymnasium\n"
        "env = gymnasium.make('envs:Snowflake/Centipede-6-v0')\n"
        "env.reset(seed=0)\n"
        "env.unwrapped.batch.physics.data[0].qvel[:] = 1e11\n"
        "print(env.step(env.action_space.sample())[2])\n"
        "print(sorted({'torch', 'stable_baselines3', 'snowflake', 'OpenGL', 'gymnasium.envs.mujoco'}"
        " & set(sys.modules)))",
        tmp_path,
    )
    assert lines == ["True", "[]"]
    assert list(tmp_path.iterdir()) == []


def test_plain_sb3_trains(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    lines = run(
        "from stable_baselines3 import PPO\n"
        "model = PPO('MlpPolicy', 'envs:Snowflake/Centipede-6-v0', n_steps=256, seed=0, device='cpu')\n"
        "model.learn(512)\n"
        "print(model.num_timesteps, all(p.isfinite().all().item() for p in model.policy.parameters()))",
        tmp_path,
    )
    assert lines[-1] == "512 True"
    assert list(tmp_path.iterdir()) == []
