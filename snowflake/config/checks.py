"""Range checks that the config sections share; each failure is one line naming the key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from agents.errors import UserError, nearest

EXPONENT_FORM = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d{1,4}")
"""Numbers with a power of ten, as ``3e-4``, which YAML 1.1 takes for text where the dot is missing."""


def whole_number(text: str) -> int:
    """Return the whole number that a text spells, exactly: ``"1000"``, ``"1e6"``, ``"2.5e3"``.

    Raises:
        ValueError: It spells none, as ``"1.5"`` and ``"1e-1"``; the message is Python's of ``int``.
    """
    if EXPONENT_FORM.fullmatch(text):
        number = Decimal(text)
        if number.is_zero() or (number.adjusted() < 19 and number == number.to_integral_value()):
            return int(number)
    return int(text)


def check_range(section: str, key: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    """Require ``low <= value <= high`` (``low < value`` with ``open_low``); NaN never passes.

    Raises:
        UserError: The value is out of range. ``section`` is empty for a top-level key.
    """
    if not ((value > low if open_low else value >= low) and value <= high):
        bracket = "(" if open_low else "["
        raise UserError(f"{key_path(section, key)} = {value!r} is out of range: must lie in {bracket}{low}, {high}]")


def check_choice(section: str, key: str, value: Any, choices: Iterable[str]) -> None:
    """Require ``value`` to be one of ``choices``.

    Raises:
        UserError: It is none of them; the message names the nearest.
    """
    options = tuple(choices)
    if value not in options:
        raise UserError(f"{key_path(section, key)} = {value!r} is not a choice: {nearest(str(value), options)}")


def check_device(device: str) -> None:
    """Require the name of a device, without asking torch whether there is one.

    Raises:
        UserError: It is none.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", device):
        raise UserError(f"device = {device!r} is not a device: use auto, cpu, cuda or cuda:N")


def key_path(section: str, key: str) -> str:
    """Return ``"section.key"``, or ``"key"`` for a top-level key (empty ``section``)."""
    return f"{section}.{key}" if section else key
