"""Materialises encoded columns once, before they are examined and trained on."""

import contextlib
from collections.abc import Sequence

from corgipile.errors import WriteFailed
from corgipile.loader.budget import DEFAULT_MEMORY
from corgipile.loader.encoded import MAX_SOON, ReadStrategy, choose_strategy
from corgipile.orders import Order, Riffle
from corgipile.orders.riffle import CONTENT
from corgipile.sizes import Size, parse_bytes
from corgipile.tables.encoded import SMALL, unpack_shared
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import Table

__all__ = ["bring", "should_materialize", "unpacks_soon"]

LABEL_PART = 1 / 16  # of an epoch's requests or bytes, that reading labels alone may cost
REQUEST = 1 << 20  # bytes of a request


def bring(table: Table, columns: Sequence[str], memory: Size | None) -> None:
    """Unpack columns if epochs would, those of a remote table also if they fit the memory; ignore unknown names.

    A full disk leaves the columns packed: a reader that needs a spill file raises the error.
    """
    schema_names = set(table.schema.names)
    names = [name for name in dict.fromkeys(columns) if name in schema_names]
    if not names or table.units(names) is None or table.spill is None:
        return
    limit = DEFAULT_MEMORY if memory is None else parse_bytes(memory, whole=table.nbytes)
    with contextlib.suppress(WriteFailed):
        way = choose_strategy(table, Riffle(), names, limit)
        fits = is_remote(table) and way.units is not None and way.units.total <= limit
        if way.spilled or fits:
            unpack_shared(table, names, limit)


def unpacks_soon(way: ReadStrategy) -> bool:
    """Return whether large units of a local table are unpacked sooner than they are read one by one."""
    return way.units is not None and not way.ahead and way.units.nbytes > SMALL and way.units.total <= MAX_SOON


def should_materialize(table: Table, order: Order, columns: Sequence[str], way: ReadStrategy) -> bool:
    """Return whether to unpack a table before its labels or content are read, which then costs nothing.

    Large tables with small labels are left packed: an epoch may never come.
    """
    label = order.sketch_column
    if label == CONTENT:
        return way.spilled
    if label is None or label not in columns or not way.spilled or way.units is None or not is_remote(table):
        return False
    labels = table.units([label])
    total = way.units.total
    few = way.units.pieces <= LABEL_PART * total / REQUEST and labels is not None and labels.total <= LABEL_PART * total
    return total <= MAX_SOON or not few
