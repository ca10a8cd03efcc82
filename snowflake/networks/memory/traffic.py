"""How much of a cache attention moves: formulas, and a counter of what was gathered.

Memory is moved in sectors of 32 bytes, so that a gather of single numbers moves more than it asks for. Elements are
therefore no measure of time; sectors come closer.
"""

from __future__ import annotations

import math

from torch import Tensor

SECTOR = 32
"""Bytes that are moved together."""


def sectors_of(elements: int, itemsize: int) -> int:
    """Return the sectors of a contiguous, aligned row of ``elements`` numbers."""
    return math.ceil(elements * itemsize / SECTOR)


def dense_traffic(size: int, count: int, itemsize: int) -> tuple[int, int]:
    """Return elements and sectors that dense attention of one query over a cache moves, per head of keys.

    It reads ``count`` keys and values and writes one of each: 2 S d + 2 d elements.

    Args:
        size: features of a head, d.
        count: positions in the cache, S.
        itemsize: bytes of a number.
    """
    return 2 * count * size + 2 * size, 2 * (count + 1) * sectors_of(size, itemsize)


def sparq_traffic(
    size: int, count: int, itemsize: int, r: int, k: int, *, reallocate: bool = True, both_layouts: bool = True
) -> tuple[int, float]:
    """Return elements and sectors that SparQ attention of one query moves, per head of keys.

    S r + 2 k d + 4 d elements (write key and value, read and write the mean value; 2 d without reallocation). With
    keys by component the r components are r contiguous rows; with keys by step alone each of the S keys is touched in
    all sectors that hold one of the r components, of which the expected number for a random choice is taken. Not
    counted here: the second copy of a new key, d single numbers; see `Traffic.scattered`.

    Args:
        size: features of a head, d.
        count: positions in the cache, S.
        itemsize: bytes of a number.
        r: components of the query.
        k: chosen positions.
        reallocate: the mean value is kept and used.
        both_layouts: keys are stored by component too.
    """
    row = sectors_of(size, itemsize)
    elements = count * r + 2 * k * size + (4 if reallocate else 2) * size
    if both_layouts:
        columns: float = r * sectors_of(count, itemsize)
    else:
        columns = count * _touched(size, itemsize, r)
    return elements, columns + (2 * k + (4 if reallocate else 2)) * row


def _touched(size: int, itemsize: int, r: int) -> float:
    """Return the expected number of sectors of a row that hold one of r random components of it."""
    total, width = 0.0, max(1, SECTOR // itemsize)
    for first in range(0, size, width):
        here = min(width, size - first)
        total += 1.0 - math.comb(size - here, r) / math.comb(size, r)
    return total


def settings_for_ratio(size: int, count: int, ratio: float) -> tuple[int, int]:
    """Return r and k with which SparQ moves about ``1 / ratio`` of the elements: r = d / ratio, k = S / (2 ratio)."""
    return max(1, round(size / ratio)), max(1, round(count / (2 * ratio)))


class Traffic:
    """Counts elements and sectors over all calls, heads and environments.

    Attributes:
        elements: numbers moved.
        sectors: of 32 bytes.
        scattered: single numbers written to the keys by component, each in a sector of its own; in neither of the two.
        queries: queries of one head of keys that were answered.
    """

    def __init__(self) -> None:
        self.elements = self.sectors = self.scattered = self.queries = 0

    def dense(self, keys: Tensor) -> None:
        """Count dense attention of one query per head over keys (..., S, d)."""
        heads = keys[..., 0, 0].numel()
        elements, sectors = dense_traffic(keys.shape[-1], keys.shape[-2], keys.element_size())
        self._add(heads, heads * elements, heads * sectors)

    def sparq(self, keys: Tensor, components: Tensor, chosen: Tensor, reallocate: bool, both_layouts: bool) -> None:
        """Count one SparQ step from what it gathered.

        Args:
            keys: the cache, (..., S, d).
            components: indices (..., r) of the components.
            chosen: indices (..., k) of the positions.
            reallocate: the mean value is kept and used.
            both_layouts: the components are rows of a second copy.
        """
        count, size, itemsize = keys.shape[-2], keys.shape[-1], keys.element_size()
        heads, row = components[..., 0].numel(), sectors_of(size, itemsize)
        whole = 2 * chosen.numel() + (4 if reallocate else 2) * heads  # rows of d numbers
        if both_layouts:
            columns = components.numel() * sectors_of(count, itemsize)
            self.scattered += heads * size
        else:
            places = (components * itemsize // SECTOR).sort(dim=-1).values
            columns = count * int((places[..., 1:] != places[..., :-1]).sum() + heads)
        self._add(heads, components.numel() * count + whole * size, columns + whole * row)

    def _add(self, queries: int, elements: int, sectors: int) -> None:
        self.queries += queries
        self.elements += elements
        self.sectors += sectors
