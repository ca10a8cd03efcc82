"""TensorBoard output of a run folder, continued across resumes."""

from __future__ import annotations

from pathlib import Path

from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat
from torch.utils.tensorboard import SummaryWriter


class ResumableTensorBoard(TensorBoardOutputFormat):
    """SB3's TensorBoard writer that hides what an interrupted run wrote after its last checkpoint.

    Args:
        folder: event files.
        purge_step: earlier events from this step on are hidden; None for a new run.
    """

    def __init__(self, folder: Path, purge_step: int | None) -> None:
        self.writer = SummaryWriter(log_dir=str(folder), purge_step=purge_step)
        self._is_closed = False


def make_logger(run_path: Path, resume_step: int | None = None) -> Logger:
    """Logger into ``run_path/tensorboard``; with ``resume_step`` continuing after that many environment steps."""
    folder = run_path / "tensorboard"
    purge = None if resume_step is None else resume_step + 1
    return Logger(folder=str(folder), output_formats=[ResumableTensorBoard(folder, purge)])
