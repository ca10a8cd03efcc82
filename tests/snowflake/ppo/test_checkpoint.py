"""Checkpoints: checksums, damage, write errors at every step, the first format, locks."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from agents.errors import UserError
from snowflake.files import new_folder
from snowflake.locks import held
from snowflake.manifest import damage, write_manifest
from snowflake.ppo.checkpoint import restore
from snowflake.ppo.train import build, resume, train
from snowflake.run import Run
from tests.snowflake.damage import told, variants
from tests.snowflake.ppo.helpers import tiny_config

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run with whole checkpoints at 0, 64 and 128 of 128 steps."""
    config = tiny_config("mlp", evaluation={"checkpoint_freq": 64}, policy={"hidden_size": 4})
    return train(config, tmp_path_factory.mktemp("trained") / "run", progress=False).path


@pytest.fixture
def run(trained, tmp_path) -> Run:
    shutil.copytree(trained, tmp_path / "run")
    return Run.open(tmp_path / "run")


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_manifest_tells_every_kind_of_damage(tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"twelve bytes")
    (tmp_path / "b").write_bytes(b"")
    assert damage(tmp_path) is None  # there is no manifest yet
    write_manifest(tmp_path)
    assert damage(tmp_path) is None
    rows = json.loads((tmp_path / "manifest.json").read_text())["files"]
    digest = "d4ce2c527afe674c7a086bd74e256019e3d5dcdb31eeb6eaadef5ada8c4383b9"  # printf 'twelve bytes' | sha256sum
    assert rows["a"] == {"bytes": 12, "sha256": digest}
    for change, words in ((truncate, "a has 6 bytes instead of 12"), (flip_a_bit, "a is corrupted")):
        change(tmp_path / "a")
        assert words in str(damage(tmp_path))
        assert damage(tmp_path, ("b",)) is None
        (tmp_path / "a").write_bytes(b"twelve bytes")
    (tmp_path / "b").unlink()
    assert damage(tmp_path) == "b is missing"
    (tmp_path / "manifest.json").write_text("{")
    assert damage(tmp_path) == "manifest.json cannot be read"


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("actor.safetensors", truncate),
        ("environments.safetensors", flip_a_bit),
        ("state.json", Path.unlink),
        ("manifest.json", Path.unlink),
        ("manifest.json", truncate),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(run, capsys, file, change) -> None:
    stored = load_file(run.checkpoint_path(128) / "actor.safetensors")
    whole = {name: value.clone() for name, value in stored.items()}  # the file's own bytes are about to change
    change(run.checkpoint_path(128) / file)
    if file == "actor.safetensors":
        with pytest.raises(UserError, match=r"step_000000000128 is damaged: actor.*whole ones: 0, 64"):
            run.load_policy("last")
    resumed = resume(run.path, progress=False)
    error = capsys.readouterr().err
    assert "checkpoint at step 128 is damaged: " in error
    assert "going on from step 64" in error
    again = load_file(resumed.checkpoint_path(128) / "actor.safetensors")
    assert all(torch.equal(whole[k], again[k]) for k in whole)
    assert damage(resumed.checkpoint_path(128)) is None
    assert (run.path / "checkpoints" / "damaged_step_000000000128").is_dir()  # what can be saved of it may be


def test_a_run_without_a_whole_checkpoint_is_told(run) -> None:
    for step in run.checkpoints():
        truncate(run.checkpoint_path(step) / "critic.safetensors")
    with pytest.raises(UserError, match=r"has no whole checkpoint \(step_000000000128: critic.safetensors has"):
        resume(run.path, total_timesteps=256, progress=False)


def test_only_the_newest_and_the_best_are_kept(tmp_path) -> None:
    evaluation = {"checkpoint_freq": 64, "keep_checkpoints": 2}
    kept = train(tiny_config("mlp", total_timesteps=320, evaluation=evaluation), tmp_path / "kept", progress=False)
    assert kept.checkpoints() == (256, 320)
    kept.set_index({"last": 320, "best": 256})
    kept.prune(1)
    assert kept.checkpoints() == (256, 320)
    with pytest.raises(UserError, match="keep 2 or more"):
        tiny_config(evaluation={"keep_checkpoints": 1})


def test_a_deletion_cut_short_leaves_no_half_checkpoint(run, monkeypatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        run.prune(1)
    assert run.checkpoints() == (64, 128)
    assert damage(run.checkpoint_path(64)) is None


class Boom:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch BOOM",)


@pytest.mark.parametrize("file", ["actor.safetensors", "optimizers.safetensors", "state.json", "manifest.json"])
def test_a_pickle_in_a_checkpoint_is_refused_and_never_run(run, tmp_path, monkeypatch, file) -> None:
    monkeypatch.chdir(tmp_path)
    for step in run.checkpoints():
        folder = run.checkpoint_path(step)
        (folder / file).write_bytes(pickle.dumps(Boom()))
        if file != "manifest.json":
            write_manifest(folder)  # an attacker knows how to make checksums
    with pytest.raises(UserError) as caught:
        resume(run.path, total_timesteps=256, progress=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "BOOM").exists()


def test_a_checkpoint_of_the_first_format_goes_on(tmp_path) -> None:
    """The run was made by version 0.1, which had no checksums, and stopped at step 32 of 64."""
    shutil.copytree(DATA / "format-1", tmp_path / "run")
    run = resume(tmp_path / "run", progress=False)
    expected = load_file(DATA / "format-1-actor-64.safetensors")
    found = load_file(run.checkpoint_path(64) / "actor.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
    assert not torch.equal(load_file(run.checkpoint_path(32) / "actor.safetensors")["log_std"], found["log_std"])
    assert json.loads((run.checkpoint_path(64) / "state.json").read_text())["format_version"] == 2
    assert [json.loads(line)["step"] for line in (run.path / "evaluations.jsonl").read_text().splitlines()] == [32, 64]


def test_a_checkpoint_of_a_later_format_is_refused(run) -> None:
    folder = run.checkpoint_path(128)
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | {"format_version": 3}))
    write_manifest(folder)
    with pytest.raises(UserError, match=r"has format 3 .*reads 1 to 2: use the version that wrote it"):
        resume(run.path, total_timesteps=256, progress=False)


def test_every_value_of_state_json_is_checked(run) -> None:
    """Whatever is wrong in it, restoring either does not mind, or says so in a line; no other exception."""
    folder = run.checkpoint_path(128)
    file = folder / "state.json"
    (folder / "manifest.json").unlink()
    state = json.loads(file.read_text()) | {"format_version": 1}
    algorithm = build(Run.open(run.path).config)
    refused = 0
    for changed in variants(state):
        file.write_text(json.dumps(changed))
        refused += told(lambda: restore(algorithm, folder), file) is not None
    assert refused > 150
    for key, value in (("python_random", [3, [2**32] * 625, None]), ("env", {"env/rng": []})):
        file.write_text(json.dumps(state | {key: value}))
        with pytest.raises(UserError, match=r"state\.json"):
            restore(algorithm, folder)
    file.write_text(json.dumps(state))
    restore(algorithm, folder)
    algorithm.env.close()


def test_arrays_of_another_shape_or_type_are_refused(run) -> None:
    from safetensors.torch import save_file

    folder = run.checkpoint_path(128)
    algorithm = build(Run.open(run.path).config)
    cases = {
        "environments": [
            (k, v[:1]) for k, v in load_file(folder / "environments.safetensors").items() if "terms" not in k
        ],
        "optimizers": [(k, torch.zeros(3, 5)) for k in load_file(folder / "optimizers.safetensors")],
        "generators": [(k, v[:7]) for k, v in load_file(folder / "generators.safetensors").items()],
    }
    for name, changes in cases.items():
        file = folder / f"{name}.safetensors"
        good = load_file(file)
        for key, value in changes:
            for content in ({**good, key: value}, {k: v for k, v in good.items() if k != key}):
                save_file(content, file)
                write_manifest(folder)
                with pytest.raises(UserError, match="step_000000000128 does not fit the run's config"):
                    restore(algorithm, folder)
        save_file(good, file)
    write_manifest(folder)
    restore(algorithm, folder)
    algorithm.env.close()


def test_two_processes_cannot_train_in_one_folder(run) -> None:
    holder = (
        "import sys, pathlib\nfrom snowflake.locks import held\n"
        "with held(pathlib.Path(sys.argv[1])): print(1, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(run.path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UserError, match="is being trained by another process"):
            resume(run.path, total_timesteps=256, progress=False)
        other.kill()  # what it held goes with it, though the file stays
    assert (run.path / ".lock").exists()
    with held(run.path / ".lock"), pytest.raises(UserError, match="by another process"), run.locked():
        pass
    with run.locked():
        pass


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path) -> None:
    def cut_short() -> None:
        with new_folder(tmp_path / "new") as folder:
            (folder / "file").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_short()
    assert list(tmp_path.iterdir()) == []
