"""TensorBoard output of a run folder, continued across resumes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from snowflake.evaluation.curves import EVALUATION_RETURN, TRAINING_RETURN

HPARAMS_TAG = "_hparams_/session_start_info"


class ResumableTensorBoard(TensorBoardOutputFormat):
    """SB3's TensorBoard writer that tells a running TensorBoard what an interrupted run wrote in vain.

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


def log_hyperparameters(logger: Logger, settings: Mapping[str, object]) -> None:
    """Write settings for TensorBoard's tabs TEXT and HPARAMS, the latter beside the returns; no scalar is added.

    Args:
        logger: from :func:`make_logger`.
        settings: by key; what is no number, switch or text is written as text.
    """
    (output,) = (f for f in logger.output_formats if isinstance(f, TensorBoardOutputFormat))
    table = "\n".join(["|key|value|", "|-|-|", *(f"|{key}|{value}|" for key, value in settings.items())])
    output.writer.add_text("hyperparameters", table, 0)
    plain = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in settings.items()}
    for summary in hparams(plain, dict.fromkeys((TRAINING_RETURN, EVALUATION_RETURN), 0.0)):
        assert output.writer.file_writer is not None
        output.writer.file_writer.add_summary(summary, 0)
    output.writer.flush()
