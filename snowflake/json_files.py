"""JSON files read with every key and type checked, so that a damaged one is told in a line that says where."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.errors import UserError
from snowflake.files import read_text

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    (dict, "an object"),
    (list, "a list"),
    (str, "a text"),
    ((int, float), "a number"),
)


@dataclass(frozen=True)
class Entry:
    """A value of a JSON file, with its place there.

    Every method raises `UserError` where the value is of another type than it asks for.

    Attributes:
        value: What was read.
        file: The file.
        advice: What the user can do about a damaged one.
        where: Place of the value in the file, as ``final.bodies[0]``; empty for all of it.
    """

    value: Any
    file: Path
    advice: str
    where: str = ""

    def error(self, what: str) -> UserError:
        """Return the error that says that the file is damaged, how, and what to do."""
        return UserError(f"{self.file} is damaged: {what}; {self.advice}")

    def wrong(self, wanted: str) -> UserError:
        """Return the error for a value of another type."""
        place = repr(self.where) if self.where else "the file"
        return self.error(f"{place} must be {wanted}, it is {_kind(self.value)}")

    def __getitem__(self, key: str) -> Entry:
        """Return the value of a key of an object."""
        found = self.get(key)
        if found is None:
            raise self.error(f"{self._below(key)!r} is missing")
        return found

    def get(self, key: str) -> Entry | None:
        """Return the value of a key of an object; None where the key is absent."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self._part(self.value[key], self._below(key)) if key in self.value else None

    @property
    def is_null(self) -> bool:
        """Whether the value is null."""
        return self.value is None

    def object(self) -> dict[str, Any]:
        """Return an object as it is."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self.value

    def entries(self) -> dict[str, Entry]:
        """Return the values of an object by key."""
        return {key: self._part(value, self._below(key)) for key, value in self.object().items()}

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return (self._part(value, f"{self.where}[{k}]") for k, value in enumerate(self.value))

    def text(self) -> str:
        """Return a text."""
        if not isinstance(self.value, str):
            raise self.wrong("a text")
        return self.value

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def count(self, at_most: int | None = None) -> int:
        """Return a whole number from 0 to ``at_most``."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.wrong("a whole number")
        if self.value < 0 or (at_most is not None and self.value > at_most):
            limits = "0 or more" if at_most is None else f"between 0 and {at_most}"
            raise self.error(f"{self.where!r} must be {limits}, it is {self.value}")
        return self.value

    def number(self) -> float:
        """Return a finite number, whole ones as int."""
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            raise self.wrong("a number")
        if not math.isfinite(self.value):
            raise self.error(f"{self.where!r} must be finite")
        return self.value

    def parts(self, length: int) -> tuple[Entry, ...]:
        """Return the entries of a list of that length."""
        found = tuple(self)
        if len(found) != length:
            raise self.error(f"{self.where!r} must have {length} entries, it has {len(found)}")
        return found

    def numbers(self) -> np.ndarray:
        """Return a list of finite numbers, float64 ``(N,)``."""
        values = self.value
        if not isinstance(values, list) or not all(
            isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values
        ):
            raise self.error(f"{self.where!r} must be a list of finite numbers")
        return np.array(values, np.float64)

    def _below(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def _part(self, value: Any, where: str) -> Entry:
        return Entry(value, self.file, self.advice, where)


def read_entry(file: Path, advice: str, *, unpack: bool = False) -> Entry:
    """Read a JSON file that holds an object.

    Args:
        file: The file.
        advice: What the user can do about a damaged one.
        unpack: The file may hold the JSON as a JSON text.

    Raises:
        UserError: It is missing or cannot be read, or it holds something else.
    """
    try:
        text = read_text(file)
    except FileNotFoundError:
        raise UserError(f"folder {file.parent} is incomplete: {file.name} is missing; {advice}") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}; {advice}") from error
    except ValueError as error:
        raise UserError(f"{file} is damaged: it is no text; {advice}") from error
    return parse_entry(text, file, advice, unpack=unpack)


def parse_entry(text: str, file: Path, advice: str, *, unpack: bool = False) -> Entry:
    """Read an object from a text; arguments and errors as for :func:`read_entry`."""
    try:
        value = json.loads(text)
        entry = Entry(json.loads(value) if unpack and isinstance(value, str) else value, file, advice)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged: it is no JSON ({error}); {advice}") from error
    entry.object()
    return entry


def _kind(value: Any) -> str:
    return (
        "null" if value is None else next((name for kind, name in _KINDS if isinstance(value, kind)), "no plain data")
    )
