"""Columns of tables in stores of which something is found out before the first epoch: they come once, for both."""

import contextlib
from collections.abc import Sequence

from corgipile.errors import WriteFailed
from corgipile.loader.budget import DEFAULT_MEMORY
from corgipile.loader.encoded import ReadStrategy, choose_strategy
from corgipile.orders import Order, Riffle
from corgipile.orders.riffle import CONTENT
from corgipile.sizes import Size, parse_bytes
from corgipile.tables.encoded import Units, is_encoded, unpack_shared
from corgipile.tables.io.arriving import within
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import Table

__all__ = ["bring", "worth_bringing"]

LITTLE = 1 / 16  # of the requests, or the bytes, of an epoch that may be sent before it for the labels alone
REQUEST, SOON = 1 << 20, 8 << 30  # bytes of a request, and of a table that is fetched in a minute or so


def bring(table: Table, columns: Sequence[str], memory: Size | None) -> None:
    """Unpack columns of a table in a store, if epochs would, or if they are no more than the memory may hold.

    Where a spill file has no room nothing is unpacked: who needs one says so.

    Args:
        table: The table.
        columns: What is read more than once; those that it does not have are passed over.
        memory: The budget of what reads them.
    """
    known = set(table.schema.names)
    names = [name for name in dict.fromkeys(columns) if name in known]
    if not names or not is_remote(table) or not is_encoded(table, names) or table.spill is None:
        return
    limit = DEFAULT_MEMORY if memory is None else parse_bytes(memory, whole=table.nbytes)
    with contextlib.suppress(WriteFailed), within(limit):
        way = choose_strategy(table, Riffle(), names, limit)
        if way.spilled or (way.units is not None and way.units.total <= limit):
            unpack_shared(table, names)


def worth_bringing(table: Table, order: Order, columns: Sequence[str], way: ReadStrategy) -> bool:
    """Say whether a table is to be unpacked before its labels are looked at, or its content, which then cost nothing.

    It is not where that takes long, and labels are little by themselves: an epoch may never come.
    """
    label = order.sketch_column
    if label == CONTENT:
        return way.spilled
    if label is None or label not in columns or not way.spilled or way.units is None or not is_remote(table):
        return False
    found: Units | None = table.units([label])  # type: ignore[attr-defined]
    total = way.units.total
    few = way.units.pieces <= LITTLE * total / REQUEST and found is not None and found.total <= LITTLE * total
    return total <= SOON or not few
