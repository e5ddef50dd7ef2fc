"""Locations of columns, in files or in memory, that the kernel reads directly."""

from typing import Any, NamedTuple

import pyarrow as pa

from corgipile.tables.layout import Layout, fixed_field
from corgipile.tables.row_mask import RowMask

__all__ = ["IN_MEMORY", "Location", "address_of"]

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
