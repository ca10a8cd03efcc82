"""Running cells: nothing twice, nothing lost after a kill, one folder per study."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.errors import UserError
from snowflake.cli import main
from snowflake.config.study import read_study
from snowflake.files import dump_json
from snowflake.locks import Busy
from snowflake.run import Run
from snowflake.sweep import launch
from snowflake.sweep.cells import cells_of
from snowflake.sweep.folder import SweepFolder
from snowflake.sweep.worker import run_cell
from tests.snowflake.sweep import studies

GRAPH, FLAT = "graph__centipede-4__seed0", "flat__centipede-4__seed0"


def prepared(folder: Path, text: str = studies.TINY) -> SweepFolder:
    sweep = SweepFolder(folder / "out")
    sweep.prepare(cells_of(studies.read(folder, text), "tiny.yaml"), text)
    return sweep


def wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_a_killed_cell_ends_with_the_row_of_an_undisturbed_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    calm, killed = prepared(tmp_path / "a"), prepared(tmp_path / "b")
    run_cell(calm, GRAPH)

    process = launch.start(launch.worker_command(killed, GRAPH, None), killed.log(GRAPH))
    run = killed.run(GRAPH)
    wait_for(lambda: (run / "checkpoints" / "index.json").exists() and Run.open(run).index().get("last", 0) >= 128)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not killed.done(GRAPH)
    assert killed.state(GRAPH).startswith("step ")
    run_cell(killed, GRAPH)

    row = killed.read_result(GRAPH)
    assert killed.result(GRAPH).read_bytes() == calm.result(GRAPH).read_bytes()
    assert sum(entry["steps"] for entry in json.loads(killed.timing(GRAPH).read_text())) <= 512
    # What a report reads is there, and is not empty.
    steps = row["curves"]["rollout/ep_rew_mean"]["steps"]
    assert steps == sorted(set(steps))
    assert steps[-1] == 512
    assert row["curves"]["eval/centipede-4/mean_reward"]["steps"] == [256, 512]
    assert not [tag for tag in row["curves"] if tag.startswith("time/")]
    assert [b["morphology"] for b in row["final"]["bodies"]] == ["centipede-4"]
    assert [b["morphology"] for b in row["transfer"]["bodies"]] == ["centipede-6"]
    assert len(row["final"]["bodies"][0]["policies"]["stochastic"]["returns"]) == 2
    assert row["parameters"]["trainable"] < row["parameters"]["total"]
    assert row["nodes"] == {"centipede-4": 11}


def test_a_cell_that_is_done_is_not_run_again(tmp_path: Path) -> None:
    sweep = prepared(tmp_path)
    sweep.result(FLAT).write_text(dump_json({"mark": 1}))
    run_cell(sweep, FLAT)
    assert json.loads(sweep.result(FLAT).read_text()) == {"mark": 1}
    assert not sweep.run(FLAT).exists()


def test_a_cell_is_one_process_at_a_time(tmp_path: Path) -> None:
    sweep = prepared(tmp_path)
    with sweep.locked(FLAT):
        with pytest.raises(Busy), sweep.locked(FLAT, seconds=0.0):
            pass
        with sweep.locked(GRAPH, seconds=0.0):
            pass
    with sweep.locked(FLAT, seconds=0.0):
        pass


def test_a_cell_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    sweep = prepared(tmp_path, studies.TINY.replace("512", "100_000_000"))
    process = launch.start(launch.worker_command(sweep, FLAT, None), sweep.log(FLAT))
    wait_for(lambda: sweep.state(FLAT).startswith("step"))
    process.stdin.close()
    assert process.wait(10) == -signal.SIGKILL


def test_half_written_files_of_a_killed_process_go(tmp_path: Path) -> None:
    sweep = prepared(tmp_path)
    (sweep.path / "runs" / f".tmp-{FLAT}-abc").mkdir()
    (sweep.path / "results" / f".tmp-{FLAT}-abc.json").write_text("{")
    (sweep.path / "results" / f".tmp-{GRAPH}-abc.json").write_text("{")
    with sweep.locked(FLAT):
        pass
    assert [p.name for p in sweep.path.rglob(".tmp-*")] == [f".tmp-{GRAPH}-abc.json"]


def test_the_time_limit_ends_cells_saved(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    study = studies.write(tmp_path, studies.TINY.replace("512", "100_000_000").replace("[0, 1]", "[0]"))
    out = tmp_path / "out"
    argv = ["sweep", str(study), "--output", str(out), "--only", FLAT]
    for minutes in ("0.1", "0.4", "1.6"):  # on a busy machine the first step is late
        assert main([*argv, "--time-limit", minutes]) == 130
        if (out / "runs" / FLAT / "checkpoints").exists() and Run.open(out / "runs" / FLAT).index()["last"]:
            break
    step = Run.open(out / "runs" / FLAT).index()["last"]
    assert step > 0
    assert "stopped at step" in capsys.readouterr().err
    assert Run.open(out / "runs" / FLAT).config.total_timesteps > step


def test_a_changed_study_does_not_mix_with_the_old_one(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    sweep = prepared(tmp_path)
    study = studies.write(tmp_path, studies.TINY.replace("n_epochs: 1", "n_epochs: 2"))
    assert main(["sweep", str(study), "--output", str(sweep.path)]) == 2
    error = capsys.readouterr().err
    assert "started with other settings" in error
    assert len(error.strip().splitlines()) == 1


def test_a_robot_that_was_changed_since_is_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    robot = tmp_path / "robot.xml"
    text = "<mujoco><worldbody><body pos='0 0 1'><joint name='j' axis='0 1 0'/><geom size='SIZE'/></body></worldbody>"
    text += "<actuator><motor joint='j'/></actuator></mujoco>"
    robot.write_text(text.replace("SIZE", "0.1"))
    tiny = studies.TINY.replace("[centipede-4]", f"['{robot}']").replace("[centipede-6]", "[]")
    study = studies.write(tmp_path, tiny)
    sweep = SweepFolder(tmp_path / "out")
    sweep.prepare(cells_of(read_study(study), "tiny.yaml"), "")
    robot.write_text(text.replace("SIZE", "0.2"))
    with pytest.raises(UserError, match="is not the one that cell"):
        run_cell(sweep, next(sweep.path.glob("cells/graph__*robot__seed0.yaml")).stem)
    assert main(["sweep", str(study), "--output", str(sweep.path)]) == 2
    assert "started with other settings" in capsys.readouterr().err


def test_a_damaged_row_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    sweep = prepared(tmp_path)
    for text in ("{", "{}", '{"final": null}'):
        sweep.result(FLAT).write_text(text)
        argv = ["sweep", str(studies.write(tmp_path)), "--output", str(sweep.path), "--list"]
        assert main(argv) == 2
        assert "is damaged: delete it" in capsys.readouterr().err


def test_a_failing_cell_is_named_and_the_others_run(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    study, out = studies.write(tmp_path, studies.TINY.replace("[0, 1]", "[0]")), tmp_path / "out"
    damaged = out / "runs" / FLAT / "config.yaml"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("agents: 3\n")
    assert main(["sweep", str(study), "--output", str(out), "--jobs", "2"]) == 1
    assert f"failed: {FLAT}: snowflake: error: " in capsys.readouterr().out
    assert [path.stem for path in (out / "results").iterdir()] == [GRAPH]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["methodz"], "is neither a file nor a shipped study: did you mean 'methods'"),
        (["methods", "--only", "mlp__centipede-6__seed7"], "no such cell: did you mean"),
        (["methods", "--jobs", "2", "--ray-address", "auto"], "leave it out"),
        (["methods", "--time-limit", "0"], "give minutes"),
        (["methods", "--only"], "--only names no cell"),
    ],
)
def test_wrong_flags(argv: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["sweep", *argv]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_sweep_killed_in_the_middle(tmp_path: Path) -> None:
    study = studies.write(tmp_path, studies.TINY.replace("512", "4096"))
    command = [sys.executable, "-m", "snowflake.cli", "sweep", str(study), "--jobs", "2", "--output"]
    subprocess.run([*command, str(tmp_path / "calm")], check=True, capture_output=True)
    killed = SweepFolder(tmp_path / "killed")
    for seconds in (4.0, 7.0, 10.0):  # before, while and after the first cells train
        process = subprocess.Popen([*command, str(killed.path)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run([*command, str(killed.path)], check=True, capture_output=True)
    rows = sorted((tmp_path / "calm" / "results").iterdir())
    assert len(rows) == 4
    for row in rows:
        assert killed.result(row.stem).read_bytes() == row.read_bytes()


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'snowflake-rl[cluster]')")
    study = studies.write(tmp_path)
    assert main(["sweep", str(study), "--output", str(tmp_path / "local")]) == 0
    assert main(["sweep", str(study), "--output", str(tmp_path / "ray"), "--ray-address", "local"]) == 0
    rows = sorted((tmp_path / "local" / "results").iterdir())
    assert len(rows) == 4
    for row in rows:
        assert (tmp_path / "ray" / "results" / row.name).read_bytes() == row.read_bytes()
