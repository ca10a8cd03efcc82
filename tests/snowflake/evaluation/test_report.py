"""Evaluation and transfer of a small run, and the commands around them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents import UserError, load
from snowflake.cli import main
from snowflake.config import TrainConfig
from snowflake.evaluation.bodies import load_bodies
from snowflake.evaluation.extras import Extras
from snowflake.evaluation.report import evaluate_run, transfer_run, write_result
from snowflake.run import Run


def test_evaluate_command_writes_tables_and_files(run: Run, capsys: Any) -> None:
    assert main(["evaluate", str(run.path), "--episodes", "4"]) == 0
    shown = capsys.readouterr()
    assert "centipede-4\n" in shown.out
    assert "zero action" in shown.out
    assert "evaluation.json" in shown.err
    data = json.loads((run.path / "evaluation.json").read_text())
    assert data["seeds"] == [1000, 1001, 1002, 1003]
    assert data["provenance"]["command"] == f"snowflake evaluate {run.path} --episodes 4"
    assert {"snowflake-rl", "mujoco", "torch", "numpy"} <= set(data["provenance"]["versions"])
    assert data["provenance"]["hardware"]["cpu"]
    body = data["bodies"][0]
    assert body["model_hash"] == json.loads((run.path / "bodies" / "centipede-4.json").read_text())["model_hash"]
    rows = list(csv.DictReader((run.path / "evaluation.csv").open()))
    assert len(rows) == 16
    stochastic = [float(r["return"]) for r in rows if r["policy"] == "stochastic"]
    assert stochastic == body["policies"]["stochastic"]["episodes"]["returns"]
    assert stochastic != body["policies"]["mean_action"]["episodes"]["returns"]
    assert (run.path / "evaluation.png").read_bytes().startswith(b"\x89PNG")


def test_transfer_puts_the_own_body_first_and_keeps_its_weights(run: Run) -> None:
    bodies = tuple(load(n) for n in ("centipede-6", "centipede-4", "centipede-6-crippled"))
    result = transfer_run(run, bodies, episodes=3, seed=5)
    assert [(b.morphology, b.zero_shot) for b in result.bodies] == [
        ("centipede-4", False),
        ("centipede-6", True),
        ("centipede-6-crippled", True),
    ]
    assert "critic stays behind" in result.notes[0]
    own = evaluate_run(run, episodes=3, seed=5).bodies[0]
    for way, episodes in own.episodes.items():
        np.testing.assert_array_equal(episodes.returns, result.bodies[0].episodes[way].returns)
    assert evaluate_run(run, episodes=3, seed=5, agents=bodies[:1]).bodies[0].zero_shot


def test_transfer_command(run: Run, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    code = main(["transfer", str(run.path), "--to", "centipede-3", "--episodes", "2", "--output", str(out)])
    assert code == 0
    assert sorted(p.name for p in out.iterdir()) == ["transfer.csv", "transfer.json", "transfer.png"]
    shown = capsys.readouterr().out
    assert "centipede-3, zero-shot" in shown
    assert "walks = mean return above" in " ".join(shown.split())


def test_a_run_that_cannot_be_written_is_evaluated_elsewhere(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    result = evaluate_run(run, episodes=1, seed=5)
    monkeypatch.setattr("snowflake.evaluation.files.os.access", lambda *_: False)
    paths, note = write_result(result, run)
    assert {p.parent for p in paths} == {Path("runs/tiny-evaluation")}
    assert all(p.exists() for p in paths)
    assert note is not None
    assert "--output" in note


def test_a_flat_policy_is_bound_to_its_body(flat: Run) -> None:
    assert evaluate_run(flat, episodes=1).bodies[0].morphology == "centipede-4"
    with pytest.raises(UserError, match=r"bound to its body.*--mlp-transfer"):
        transfer_run(flat, (load("centipede-6"),), episodes=1)
    mapped = transfer_run(flat, (load("centipede-6"),), episodes=1, extras=Extras(mlp_transfer=True))
    assert [(body.morphology, body.zero_shot) for body in mapped.bodies] == [
        ("centipede-4", False),
        ("centipede-6", True),
    ]
    assert "--mlp-transfer" in mapped.notes[-1]


def test_evaluation_disturbs_no_generator_and_no_policy(run: Run) -> None:
    import random

    import torch

    from snowflake.evaluation.controllers import policy_controller
    from snowflake.evaluation.rollout import evaluate

    policy = run.load_policy()
    policy.set_training_mode(True)
    before = {k: v.clone() for k, v in policy.state_dict().items()}
    states = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy())
    for deterministic in (True, False):
        evaluate(policy_controller(policy, deterministic=deterministic), "centipede-4", episodes=2, seed=0)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    np.testing.assert_array_equal(states[2], np.random.get_state()[1])
    assert policy.training
    for name, value in policy.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "{run}", "--agents", "centipede-66x"], "did you mean"),
        (["transfer", "{run}", "--to", "centipede-2"], "at least 3"),
        (["transfer", "{run}"], "--to is missing"),
        (["transfer", "{run}", "--to", "centipede-4"], "beside the run's own"),
        (["transfer", "{run}", "--to", "ant"], "or train with --features general"),
        (["evaluate", "{run}-not-there"], "does not exist"),
        (["evaluate", "pretrained:nothing"], "no pretrained policy"),
        (["evaluate", "{run}", "--checkpoint", "7"], "has no checkpoint '7'"),
        (["evaluate", "{run}", "--checkpoint", "newest"], "best, last or a number"),
        (["evaluate", "{run}", "--episodes", "0"], "--episodes 0"),
        (["evaluate", "{run}", "--output", "{run}/config.yaml"], "is a file"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(run: Run, arguments: list[str], message: str, capsys: Any) -> None:
    assert main([a.replace("{run}", str(run.path)) for a in arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


def test_unknown_body_is_told_before_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from snowflake.cli import main; "
        "assert main(['transfer', 'nowhere', '--to', 'centipede-8x']) == 2; "
        "assert main(['evaluate', 'nowhere']) == 2; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert done.stderr.count("\n") == 2


def test_a_changed_file_is_not_taken_for_the_body_of_the_run(tmp_path: Any) -> None:
    """A file with the name of a trained body, and another robot in it, is refused; an equal one is the run's own."""
    mjcf = (
        '<mujoco><worldbody><body name="a"><geom size="{size}"/><joint name="j" axis="0 1 0"/></body></worldbody>'
        '<actuator><motor joint="j" ctrlrange="-1 1"/></actuator></mujoco>'
    )
    for folder, size in (("one", 0.1), ("same", 0.1), ("other", 0.2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pendulum.xml").write_text(mjcf.format(size=size))
    run = Run(tmp_path, TrainConfig(), load_bodies([str(tmp_path / "one" / "pendulum.xml")]))
    (same,), (other,) = (load_bodies([str(tmp_path / name / "pendulum.xml")]) for name in ("same", "other"))
    assert run.own_index(same) == 0
    with pytest.raises(UserError, match=r"is not the one that .* was trained on"):
        run.own_index(other)
    with pytest.raises(UserError, match="two bodies are called 'pendulum'"):
        load_bodies([str(tmp_path / name / "pendulum.xml") for name in ("same", "other")])
