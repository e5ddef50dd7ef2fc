"""Strategies for reading rows encoded in large units within a budget: by whole units, or from a spill file."""

import warnings
from typing import NamedTuple

from corgipile.orders import Order
from corgipile.sizes import format_bytes
from corgipile.tables.encoded import SMALL, Units
from corgipile.tables.io.remote import is_remote
from corgipile.tables.io.shared_spill import expect_room
from corgipile.tables.table import Table

__all__ = ["AS_CUT", "MAX_SOON", "ReadStrategy", "ahead_of", "choose_strategy", "warn_few", "wide_units"]

MIXING_UNITS = 64  # units in memory that mix well
MIN_LIBRARY_RATIO = 2  # smallest ratio of a budget to the decoding library's memory
DECODED_UNITS = 8  # units in memory during decoding: four at a time, encoded and joined
SCAN_UNITS, MAX_SCANNING = 4, 1 / 4  # units in memory during a sequential scan; their share of a small budget
# Rows in flight from a store: share of the budget, largest number of bytes, memory per byte with incoming responses.
AHEAD_SHARE, MAX_AHEAD, ARRIVING = 1 / 6, 64 << 20, 2.4
MAX_SOON = 8 << 30  # largest table that is fetched or unpacked in about a minute


class ReadStrategy(NamedTuple):
    """How a table is read.

    Attributes:
        even: Whether blocks may have any size, whatever the units.
        spilled: Whether all rows are unpacked to a spill file first; else, if ``even``, one unit at a time.
        decoding_bytes: Bytes that decoding takes in addition to the buffer.
        scanning_bytes: Further bytes for a sequential scan, fewer if the budget is small.
        units: The encoded units, if any.
        ahead: Bytes of rows in flight from a store; 0 for local tables.
    """

    even: bool = False
    spilled: bool = False
    decoding_bytes: float = 0.0
    scanning_bytes: float = 0.0
    units: Units | None = None
    ahead: int = 0

    def rows_budget(self, share: float) -> float:
        """Return the bytes of a budget that decoding leaves for rows."""
        room = max(0.0, share - self.decoding_bytes)
        return room - min(self.scanning_bytes, MAX_SCANNING * room)


AS_CUT = ReadStrategy()


def choose_strategy(
    table: Table, order: Order, columns: list[str], share: float | None, *, units_fit: bool = True
) -> ReadStrategy:
    """Choose how to read a table, see `_strategy`, and for a remote one how much of it is in flight."""
    strategy = _strategy(table, order, columns, share, units_fit=units_fit)
    if strategy.spilled or not is_remote(table):
        return strategy
    ahead = ahead_of(share)
    return strategy._replace(ahead=ahead, decoding_bytes=strategy.decoding_bytes + ARRIVING * ahead)


def ahead_of(share: float | None) -> int:
    """Return the bytes of rows that may be in flight from a store within a budget.

    Example:
        >>> ahead_of(60e6), ahead_of(None)
        (10000000, 33554432)
    """
    return MAX_AHEAD // 2 if share is None else int(min(max(share, 0) * AHEAD_SHARE, MAX_AHEAD))


def _strategy(table: Table, order: Order, columns: list[str], share: float | None, *, units_fit: bool) -> ReadStrategy:
    """Choose how to read a table; the choice depends on table, order and budget, not on the state of a disk.

    ``share``: this worker's budget in bytes; ``units_fit`` False: an attempt has shown that whole units do not fit.

    Raises:
        WriteFailed: A spill file is needed and the disk has too little space.
    """
    units = table.units(columns)
    if units is None:
        return ReadStrategy(even=True) if table.is_unencoded(columns) else AS_CUT
    decoding_bytes = min(DECODED_UNITS * units.nbytes, 2 * units.total)
    singly = order.cuts_into == "row"
    needed = units.total if singly else min(MIXING_UNITS * units.nbytes, units.total)
    if (units_fit and (share is None or share >= decoding_bytes + needed)) or table.spill is None:
        return ReadStrategy(decoding_bytes=decoding_bytes, units=units)
    crowded = share is not None and share < MIN_LIBRARY_RATIO * units.library  # one process unpacks for all
    spilled = not order.sequential or (units.pieces <= 2 and units.nbytes > SMALL) or crowded
    if spilled or units.nbytes > SMALL:
        _expect(table, units, columns, spilled=spilled)
    if spilled:
        return ReadStrategy(even=True, spilled=True, units=units)
    return ReadStrategy(
        even=True, decoding_bytes=units.library, scanning_bytes=min(SCAN_UNITS * units.nbytes, units.total), units=units
    )


def _expect(table: Table, units: Units, columns: list[str], *, spilled: bool) -> None:
    assert table.spill is not None  # noqa: S101 - the caller checks it
    expect_room(table.spill, f"{table.place} {columns!r}", units.total if spilled else 2 * units.nbytes)


def wide_units(table: Table, strategy: ReadStrategy) -> str:
    """Return an error's hint for encoded units that do not fit, or ""."""
    if strategy.units is None or strategy.even:
        return ""
    size = format_bytes(strategy.units.nbytes)
    return (
        f". {table!r} is encoded in units of {strategy.units.rows} rows ({size}), which must be decoded whole without "
        "spill files: allow one by open(..., spill=FOLDER), or rewrite the file with `corgipile convert`"
    )


def warn_few(table: Table, strategy: ReadStrategy, blocks: float) -> None:
    """Warn if the buffer holds too few units to mix their rows."""
    units = strategy.units
    if units is None or units.nbytes <= SMALL or blocks >= min(MIXING_UNITS, units.pieces):
        return
    warnings.warn(
        f"{table!r} is encoded in units of {units.rows} rows, and the memory holds {max(1, int(blocks))}: batches mix "
        "few of them. Give more memory, allow a spill file by open(..., spill=FOLDER), or rewrite the file with "
        "`corgipile convert`",
        stacklevel=4,
    )
