"""Every way to damage a JSON file that a reader has to tell in one line."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agents.errors import UserError

WRONG: tuple[Any, ...] = (None, {}, [], "text", -1, 1.5, True)
"""One value of each kind; those of a key's own kind are still odd ones."""
NO_JSON = (b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"nonsense")
NO_OBJECT = (b"null", b"[]", b"3", b'"text"')


def variants(value: Any) -> Iterator[Any]:
    """Yield copies of plain data with one key left out, or one value replaced by another, at every depth.

    Of a list the first entry is changed.
    """
    if isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
            for other in variants(value[key]):
                yield {**value, key: other}
    elif isinstance(value, list) and value:
        for other in variants(value[0]):
            yield [other, *copy.deepcopy(value[1:])]
    yield from (wrong for wrong in WRONG if type(wrong) is not type(value) or wrong != value)


def told(read: Callable[[], object], file: Path) -> str | None:
    """Read a damaged file: the line that names it, or None where the reader does not mind."""
    try:
        read()
    except UserError as error:
        message = str(error)
        assert file.name in message, message
        assert "\n" not in message
        assert "indices must be" not in message
        return message
    return None
