"""How rows that are encoded in large units are read within a budget: by whole units, or plain from a spill file."""

import warnings
from typing import NamedTuple

from corgipile.orders import Order
from corgipile.sizes import format_bytes
from corgipile.tables.encoded import SMALL, Encoded, Units, is_encoded
from corgipile.tables.io.remote import is_remote
from corgipile.tables.io.shared_spill import expect_room
from corgipile.tables.table import Table

__all__ = ["AS_CUT", "ReadStrategy", "ahead_of", "choose_strategy", "warn_few", "wide_units"]

ENOUGH = 64  # units in memory, which mix well
CROWDED = 2  # times what a library takes, that leave too little beside it
DECODING = 8  # units in memory while they are decoded: four at a time, as they come and as they are joined
SCANNING, MOST_SCANNING = 4, 1 / 4  # the same where one is decoded after another; the share of a small budget
# On their way from a store: share of the budget, bytes at most, and what they take with answers that come in.
AHEAD, MOST_AHEAD, ARRIVING = 1 / 6, 64 << 20, 2.4


class ReadStrategy(NamedTuple):
    """How a table is read.

    Attributes:
        even: Whether blocks may have any rows, whatever the units.
        spilled: Whether all rows are unpacked to a spill file first; else, if ``even``, a unit at a time.
        beside: Bytes that decoding takes beside the buffer.
        scanning: Bytes that it takes as well unless the budget is small.
        units: The units, if there are any.
        ahead: Bytes of rows that are on their way from a store, 0 where they come from this machine.
    """

    even: bool = False
    spilled: bool = False
    beside: float = 0.0
    scanning: float = 0.0
    units: Units | None = None
    ahead: int = 0

    def left(self, share: float) -> float:
        """Return the bytes of a budget that decoding leaves."""
        room = max(0.0, share - self.beside)
        return room - min(self.scanning, MOST_SCANNING * room)


AS_CUT = ReadStrategy()


def choose_strategy(
    table: Table, order: Order, columns: list[str], share: float | None, *, units_fit: bool = True
) -> ReadStrategy:
    """Choose how to read a table, see `_find_way`, and how much of it is on its way if it lies in a store."""
    way = _find_way(table, order, columns, share, units_fit=units_fit)
    if way.spilled or not is_remote(table):
        return way
    ahead = ahead_of(share)
    return way._replace(ahead=ahead, beside=way.beside + ARRIVING * ahead)


def ahead_of(share: float | None) -> int:
    """Return the bytes of rows that may be on their way from a store, within a budget.

    Example:
        >>> ahead_of(60e6), ahead_of(None)
        (10000000, 33554432)
    """
    return MOST_AHEAD // 2 if share is None else int(min(max(share, 0) * AHEAD, MOST_AHEAD))


def _find_way(table: Table, order: Order, columns: list[str], share: float | None, *, units_fit: bool) -> ReadStrategy:
    """Choose how to read a table: it depends on the table, the order and the budget, not on the state of a disk.

    Args:
        table: The table.
        order: The order.
        columns: The columns that are read.
        share: Bytes of the budget, of this worker; None if there is none.
        units_fit: Whether whole units may fit; else it is known that they do not.

    Raises:
        WriteFailed: A spill file is needed, and there is no room for it.
    """
    if not is_encoded(table, columns):
        return ReadStrategy(even=True) if _is_loose(table, columns) else AS_CUT
    units = table.units(columns)
    assert units is not None  # noqa: S101 - is_encoded says so
    beside = min(DECODING * units.nbytes, 2 * units.total)
    singly = order.cuts_into == "row"
    needed = units.total if singly else min(ENOUGH * units.nbytes, units.total)
    if (units_fit and (share is None or share >= beside + needed)) or table.spill is None:
        return ReadStrategy(beside=beside, units=units)
    crowded = share is not None and share < CROWDED * units.library  # one process unpacks for all
    spilled = not order.sequential or (units.pieces <= 2 and units.nbytes > SMALL) or crowded
    if spilled or units.nbytes > SMALL:
        _expect(table, units, columns, spilled=spilled)
    if spilled:
        return ReadStrategy(even=True, spilled=True, units=units)
    return ReadStrategy(
        even=True, beside=units.library, scanning=min(SCANNING * units.nbytes, units.total), units=units
    )


def _is_loose(table: Table, columns: list[str]) -> bool:
    """Say whether rows of these columns were laid out plain, whatever units the table has for others."""
    own, inner = getattr(table, "loose", None), getattr(table, "table", None)  # of a wrapper, or a part of a table
    return bool(own(columns)) if own is not None else inner is not None and _is_loose(inner, columns)


def _expect(table: Encoded, units: Units, columns: list[str], *, spilled: bool) -> None:
    assert table.spill is not None  # noqa: S101 - asked before
    expect_room(table.spill, f"{table.place} {columns!r}", units.total if spilled else 2 * units.nbytes)


def wide_units(table: Table, way: ReadStrategy) -> str:
    """Say what else helps where whole units do not fit, for an error."""
    if way.units is None or way.even:
        return ""
    size = format_bytes(way.units.nbytes)
    return (
        f". {table!r} is encoded in units of {way.units.rows} rows ({size}), which are decoded whole where spill files "
        "are off: open(..., spill=FOLDER) allows one, and `corgipile convert` makes a file that needs none"
    )


def warn_few(table: Table, way: ReadStrategy, blocks: float) -> None:
    """Warn where the buffer holds too few units to mix their rows."""
    units = way.units
    if units is None or units.nbytes <= SMALL or blocks >= min(ENOUGH, units.pieces):
        return
    warnings.warn(
        f"{table!r} is encoded in units of {units.rows} rows, of which the memory holds {max(1, int(blocks))}: batches "
        "mix few of them. Give more memory, or allow a spill file: open(..., spill=FOLDER); `corgipile convert` makes "
        "a file whose rows can be read in small blocks",
        stacklevel=4,
    )
