"""Sizes of the units that encoded tables decode whole."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy.typing as npt

from corgipile.tables.layout import IntArray

__all__ = ["Units", "combine_units", "units_of"]


class Units(NamedTuple):
    """The units that are decoded whole: row groups, or compressed record batches.

    Attributes:
        rows: Rows of the largest unit.
        nbytes: Decoded bytes of the largest unit, in the requested columns.
        total: Decoded bytes of all rows.
        pieces: Number of units.
        each: Mean decoded bytes of a row.
        library: Bytes that the library takes in each decoding process, besides the units.
        dictionary: Minimum bytes of decoding: a dictionary of values, or a chunk and its copies.
    """

    rows: int
    nbytes: int
    total: int
    pieces: int
    each: float
    library: int = 0
    dictionary: int = 0


def combine_units(parts: Iterable[Units | None]) -> Units | None:
    """Combine the units of several tables; None if no table has units."""
    units = [part for part in parts if part is not None]
    if not units:
        return None
    total = sum(part.total for part in units)
    return Units(
        max(part.rows for part in units),
        max(part.nbytes for part in units),
        total,
        sum(part.pieces for part in units),
        total / max(1.0, sum(part.total / part.each for part in units if part.each)),
        max(part.library for part in units),
        max(part.dictionary for part in units),
    )


def units_of(rows: IntArray, sizes: npt.NDArray[Any]) -> Units | None:
    """Return the units with these rows and decoded bytes."""
    if not rows.any():
        return None
    total = int(sizes.sum())
    return Units(int(rows.max()), int(sizes.max()), total, len(rows), total / int(rows.sum()))
