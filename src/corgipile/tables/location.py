"""Locations of columns, in files or in memory, that the kernel reads directly."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import pyarrow as pa

from corgipile.tables.row_mask import RowMask
from corgipile.tables.table import Layout, Table, fixed_field

__all__ = ["IN_MEMORY", "Location", "address_of", "location", "varlen_location"]

IN_MEMORY = -1  # file number of pieces whose offsets are addresses


class Location(NamedTuple):
    """The layout of columns, and the mask of the table's rows in it.

    Attributes:
        layout: The layout of all rows; pieces of file `IN_MEMORY` lie in memory.
        bits: The table's rows in the layout, None for all.
        kept: The owners of the memory.
    """

    layout: Layout
    bits: RowMask | None = None
    kept: tuple[Any, ...] = ()


def location(table: Table, columns: Sequence[str]) -> Location | None:
    """Return the location of columns; None if rows must be read through the table.

    The method ``location(columns)`` is an optional part of a table's contract.

    Example:
        >>> from corgipile.tables import open
        >>> found = location(open(pa.table({"x": [1, 2, 3]})), ["x"])
        >>> found.layout.columns["x"].starts.tolist(), found.layout.columns["x"].files.tolist()
        ([0, 3], [-1])
    """
    if not columns or not len(table):
        return None
    layout = table.layout(columns)
    if layout is not None:
        return Location(layout)
    own = getattr(table, "location", None)
    return None if own is None else cast("Location | None", own(columns))


def varlen_location(table: Table, columns: Sequence[str]) -> Location | None:
    """Return the location of columns, some of varying length; None if rows must be read through the table.

    The method ``varlen_location(columns)`` is an optional part of a table's contract.

    Example:
        >>> import tempfile
        >>> from corgipile.tables import open
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = pa.table({"x": [b"12", b"123"]})
        ...     with pa.ipc.new_file(f"{folder}/a.arrow", rows.schema) as writer:
        ...         writer.write_table(rows)
        ...     varlen_location(open(f"{folder}/a.arrow"), ["x"]).layout.columns["x"].counts.tolist()
        [5]
    """
    own = getattr(table, "varlen_location", None)
    return None if own is None or not columns or not len(table) else cast("Location | None", own(columns))


def address_of(column: pa.Array) -> int | None:
    """Return the address of the first row of a fixed-width column; None if rows are not contiguous.

    Example:
        >>> column = pa.array([1, 2, 3])
        >>> address_of(column[1:]) - address_of(column), address_of(pa.array([1, None]))
        (8, None)
    """
    fixed, first = fixed_field(column.type), column.offset
    while pa.types.is_fixed_size_list(column.type) and not column.null_count:
        size, column = column.type.list_size, column.values
        first = first * size + column.offset
    if fixed is None or column.null_count or column.buffers()[1] is None:
        return None
    address = int(column.buffers()[1].address)
    return address + int(first) * int(fixed[0].itemsize)
