"""A motor that fails: which, when, what it does, that nobody sees it, and that a state continues exactly."""

from __future__ import annotations

import numpy as np
import pytest

from agents.errors import UserError
from envs import LocomotionVectorEnv, TaskOptions, make_vector_env
from envs.faults import MotorFaults

OPTIONS = {"motor_fault": 1.0, "motor_fault_gain": -1.0, "motor_fault_steps": [3, 9]}


def test_the_failed_motor_gets_another_action_from_its_step_on() -> None:
    faults = MotorFaults(3, 4, TaskOptions.of(OPTIONS))
    faults.control[:], faults.step[:] = [2, -1, 0], [3, 0, 5]
    actions = np.array([[0.5, 0.5, 3.0, 0.5]] * 3)
    assert (faults.apply(actions, np.array([2, 9, 4])) == actions).all()
    changed = faults.apply(actions, np.array([3, 9, 5]))
    assert changed.tolist() == [[0.5, 0.5, -1.0, 0.5], [0.5, 0.5, 3.0, 0.5], [-0.5, 0.5, 3.0, 0.5]]
    assert actions[0, 2] == 3.0  # the given array stays
    dead = MotorFaults(1, 2, TaskOptions(motor_fault=0.5))
    dead.control[:] = 1
    assert dead.apply(np.ones((1, 2)), np.zeros(1)).tolist() == [[1.0, 0.0]]


def test_faults_are_drawn_in_range_and_as_often_as_asked() -> None:
    faults = MotorFaults(1, 5, TaskOptions(motor_fault=0.25, motor_fault_steps=(10.0, 12.0)))
    rng, controls, steps = np.random.default_rng(0), [], []
    for _ in range(4000):
        faults.begin(0, rng)
        controls.append(int(faults.control[0]))
        steps.append(int(faults.step[0]))
    assert np.mean(np.array(controls) >= 0) == pytest.approx(0.25, abs=0.03)
    assert set(controls) == {-1, 0, 1, 2, 3, 4}
    assert set(steps) == {10, 11, 12}


def test_an_episode_is_as_without_until_the_fault_and_the_observation_has_no_word_of_it() -> None:
    plain, faulty = (
        LocomotionVectorEnv("centipede-4", 4, task_options=options, num_threads=1) for options in (None, OPTIONS)
    )
    assert plain.observation_space == faulty.observation_space
    first, second = plain.reset(seed=0)[0], faulty.reset(seed=0)[0]
    assert np.array_equal(first, second)
    rng = np.random.default_rng(1)
    for t in range(9):
        actions = rng.uniform(-1, 1, plain.action_space.shape)
        a, b = plain.step(actions)[0], faulty.step(actions)[0]
        same = t < faulty.faults.step
        assert (a == b).all(axis=1)[same].all()
        assert (a != b).any(axis=1)[~same].all()
    assert (faulty.faults.step <= 9).all()


@pytest.mark.parametrize("bodies", [["centipede-4"], ["centipede-4", "ant"]])
def test_a_state_with_faults_continues_bit_for_bit(bodies: list[str]) -> None:
    one, other = (
        make_vector_env(bodies, 4, task_options=TaskOptions.of(OPTIONS), max_episode_steps=12, num_threads=1)
        for _ in range(2)
    )
    one.reset(seed=3)
    rng = np.random.default_rng(1)
    for _ in range(6):
        one.step(rng.uniform(-1, 1, one.action_space.shape))
    other.set_state(one.get_state())
    for _ in range(30):
        actions = rng.uniform(-1, 1, one.action_space.shape)
        assert np.array_equal(one.step(actions)[0], other.step(actions)[0])


def test_without_the_option_nothing_is_drawn_or_stored() -> None:
    env = LocomotionVectorEnv("centipede-4", 2, num_threads=1)
    env.reset(seed=0)
    assert not any(name.startswith("fault") for name in env.get_state())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"motor_fault": 1.5}, "task.motor_fault = 1.5 is out of range"),
        ({"motor_fault": 1.0, "motor_fault_gain": 2.0}, "task.motor_fault_gain = 2.0 is out of range"),
        ({"motor_fault": 1.0, "motor_fault_steps": [5, 2]}, "is no range of steps"),
        ({"motor_fault": 1.0, "motor_fault_steps": [0.5, 2]}, "is no range of steps"),
        ({"motor_fault": 1.0, "motor_fault_steps": 3}, "is not a list of numbers"),
        ({"motor_fault_gain": -1.0}, "need a task.motor_fault above 0"),
    ],
)
def test_wrong_settings_are_refused(options: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        TaskOptions.of(options)
