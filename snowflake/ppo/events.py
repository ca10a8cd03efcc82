"""Event files of an interrupted run: what its last checkpoint knows nothing of is taken out."""

from __future__ import annotations

import struct
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[attr-defined]  # made by protobuf
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from snowflake.evaluation.curves import EVENT_FILES
from snowflake.files import sync, write_atomic

MERGED = "events.out.tfevents.0000000000.merged"
"""What lies before the latest start of a run; sorts before any file that a writer names by its time."""


def cut_events(folder: Path, step: int, *, evaluated: bool) -> set[str]:
    """Put what event files hold up to a step into one file, and delete the rest.

    The checkpoint at that step was written after everything that is kept, so that going on from it leaves no gap and no
    step twice, for any reader. A kill at any moment leaves a folder that the next call brings into order.

    Args:
        folder: Event files.
        step: Step of the checkpoint that training goes on from.
        evaluated: Whether the evaluation at that step came before the checkpoint; else it will be done again.

    Returns:
        The tags that are there.
    """
    files = sorted(file for file in folder.glob(EVENT_FILES) if file.is_file())
    kept: dict[bytes, Event] = {}  # a merge that was cut short leaves records in two files
    for file in files:
        for record in RawEventFileLoader(str(file)).Load():
            event = Event.FromString(record)
            if event.HasField("session_log"):
                if event.session_log.status == SessionLog.START:  # how version 1 hid what it had to write again
                    kept = {key: e for key, e in kept.items() if e.step < event.step or e.HasField("file_version")}
            elif event.HasField("file_version"):
                if not kept:
                    kept[record] = event
            elif event.step < step or (event.step == step and (evaluated or not _is_evaluation(event))):
                kept[record] = event
    if files:
        # The temporary file lies beside the folder: in it, TensorBoard would read it.
        write_atomic(folder / MERGED, b"".join(map(_framed, kept)), folder.parent)
        for file in files:
            if file.name != MERGED:
                file.unlink()
    return {value.tag for event in kept.values() for value in event.summary.value}


def sync_events(folder: Path) -> None:
    """Bring the event files onto the disk."""
    for file in folder.glob(EVENT_FILES):
        sync(file)
    if folder.is_dir():  # absent where nothing was logged
        sync(folder)


def _is_evaluation(event: Event) -> bool:
    return any(value.tag.startswith("eval/") for value in event.summary.value)


def _framed(record: bytes) -> bytes:
    """A record as event files hold it: length, its checksum, the bytes, their checksum."""
    length = struct.pack("<Q", len(record))
    return b"".join(
        (length, struct.pack("<I", masked_crc32c(length)), record, struct.pack("<I", masked_crc32c(record)))
    )
