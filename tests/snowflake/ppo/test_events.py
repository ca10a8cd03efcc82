"""What stays in event files when a run goes on, as TensorBoard and as any other reader sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from snowflake.files import write_atomic
from snowflake.ppo import events
from snowflake.ppo.events import MERGED, cut_events


def write(folder: Path, steps: range, tag: str = "train/x", purge: int | None = None) -> None:
    with SummaryWriter(str(folder), purge_step=purge) as writer:
        for step in steps:
            writer.add_scalar(tag, float(step), step)


def read(folder: Path, tag: str = "train/x") -> list[tuple[int, float]]:
    """All points in the files' order, those too that TensorBoard would hide."""
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}, purge_orphaned_data=False).Reload()
    return [(e.step, e.value) for e in found.Scalars(tag)]


def test_later_steps_go_and_earlier_ones_stay(tmp_path) -> None:
    folder = tmp_path / "tensorboard"
    write(folder, range(10))
    assert cut_events(folder, 6, evaluated=True) == {"train/x"}
    write(folder, range(7, 9), purge=7)
    assert read(folder) == [(s, float(s)) for s in range(9)]
    assert cut_events(folder, 8, evaluated=True) == {"train/x"}  # with nothing to cut
    assert [file.name for file in folder.iterdir()] == [MERGED]
    assert read(folder) == [(s, float(s)) for s in range(9)]


def test_a_file_that_a_kill_cut_short_is_mended(tmp_path) -> None:
    folder = tmp_path / "tensorboard"
    write(folder, range(10))
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    cut_events(folder, 20, evaluated=True)
    write(folder, range(9, 12), purge=9)
    assert read(folder) == [(s, float(s)) for s in range(12)]


def test_what_the_first_version_hid_is_taken_out(tmp_path) -> None:
    """It wrote a second file with a mark that hides what the first one holds from there on."""
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    write(tmp_path / "a", range(10))
    write(tmp_path / "b", range(6, 8), purge=6)
    for number, place in enumerate(("a", "b")):
        (file,) = (tmp_path / place).iterdir()
        file.rename(folder / f"events.out.tfevents.000000000{number + 1}.x")
    cut_events(folder, 7, evaluated=True)
    assert read(folder) == [(s, float(s)) for s in range(8)]


def test_an_evaluation_after_the_checkpoint_of_its_step_goes(tmp_path) -> None:
    for evaluated, expected in ((True, [0, 1, 2]), (False, [0, 1])):
        folder = tmp_path / str(evaluated) / "tensorboard"
        write(folder, range(3), "eval/mean_reward")
        write(folder, range(3))
        cut_events(folder, 2, evaluated=evaluated)
        assert [s for s, _ in read(folder, "eval/mean_reward")] == expected
        assert [s for s, _ in read(folder)] == [0, 1, 2]


def test_a_kill_while_cutting_loses_and_doubles_nothing(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "tensorboard"
    write(folder, range(5))
    write(folder, range(5, 8))

    def killed_before(*_: object) -> None:
        raise KeyboardInterrupt

    def killed_after(path: Path, content: bytes, beside: Path) -> None:
        write_atomic(path, content, beside)
        raise KeyboardInterrupt

    for killed in (killed_before, killed_after):
        monkeypatch.setattr(events, "write_atomic", killed)
        with pytest.raises(KeyboardInterrupt):
            cut_events(folder, 6, evaluated=True)
    monkeypatch.undo()
    cut_events(folder, 6, evaluated=True)
    assert read(folder) == [(s, float(s)) for s in range(7)]
