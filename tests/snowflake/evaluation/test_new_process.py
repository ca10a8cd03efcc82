"""The evaluation of a checkpoint is the one that training made, in any process."""

from __future__ import annotations

import json
import subprocess
import sys

from snowflake.evaluation.report import evaluate_run
from snowflake.run import Run


def test_evaluation_in_a_new_process_equals_the_one_in_training(run: Run) -> None:
    """Observation statistics, weights and start states reach another process exactly."""
    last = json.loads((run.path / "evaluations.jsonl").read_text().splitlines()[-1])
    seed = 1_000_000  # training evaluates from seed 0 + this
    command = [sys.executable, "-m", "snowflake.cli", "evaluate", str(run.path), "--checkpoint", str(last["step"])]
    options = ["--episodes", "3", "--seed", str(seed), "--json", "--output", str(run.path / "new")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)["bodies"][0]["policies"]["mean_action"]["episodes"]
    assert found["returns"] == last["bodies"]["centipede-4"]["returns"]
    assert found["lengths"] == last["bodies"]["centipede-4"]["lengths"]
    here = evaluate_run(run, last["step"], episodes=3, seed=seed).bodies[0]
    assert here.episodes["mean_action"].returns.tolist() == found["returns"]


def test_several_bodies_are_evaluated_as_in_training(two_bodies: Run) -> None:
    last = json.loads((two_bodies.path / "evaluations.jsonl").read_text().splitlines()[-1])
    result = evaluate_run(two_bodies, "last", episodes=3, seed=1_000_000)
    assert [b.morphology for b in result.bodies] == ["centipede-4", "centipede-3"]
    assert not any(b.zero_shot for b in result.bodies)
    for body in result.bodies:
        assert body.episodes["mean_action"].returns.tolist() == last["bodies"][body.morphology]["returns"]
