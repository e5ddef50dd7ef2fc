"""Views of some columns or rows of a table, without a copy."""

import builtins
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.sizes import whole
from corgipile.tables.expressions import row_masks
from corgipile.tables.io.files import digest
from corgipile.tables.io.pieces import pick
from corgipile.tables.row_mask import RowMask
from corgipile.tables.selection import MaskTable
from corgipile.tables.subset import Subset
from corgipile.tables.table import IntArray, Table, adopt, as_method, check_columns
from corgipile.tables.wrapper import Wrapper

__all__ = ["Columns", "filter", "mask_rows", "select", "slice"]

RUN_BYTES = 24  # bytes of a run in `Subset`
MASK_ROWS = 1 << 22  # rows of a mask at a time


class Columns(Wrapper):
    """Serves some columns of a table, in any order.

    Args:
        table: The table.
        names: The columns.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables import MemoryTable
        >>> Columns(MemoryTable(pa.table({"x": [1], "y": [2]})), ["y"]).read(0, 1).to_pydict()
        {'y': [2]}
    """

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        super().__init__(table)
        self.names = check_columns(table.schema, names)
        self.schema = pick(table.schema, self.names)

    def __reduce__(self) -> tuple[type["Columns"], tuple[Table, list[str]]]:
        return Columns, (self.table, self.names)

    def __repr__(self) -> str:
        return f"Columns({', '.join(self.names)} of {self.table!r})"

    @property
    def fingerprint(self) -> str:
        """Return the identity of the table and the column names."""
        return digest(self.table.fingerprint, *self.names)


@as_method
def select(table: Table, names: Sequence[str]) -> Table:
    """Select columns of a table, in the given order; the others are not read.

    Args:
        table: The table.
        names: The columns.

    Raises:
        MissingColumn: A column does not exist.
        BadArgument: The list is empty, or names a column twice.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> select(cp.open(pa.table({"x": [1, 2], "y": [3, 4]})), ["y"]).schema.names
        ['y']
    """
    if isinstance(names, str) or not len(names) or len({*names}) < len(names):
        raise BadArgument(f"names must be a list of different columns, at least one, got {names!r}")
    inner = table.table if isinstance(table, Columns) else table
    names = check_columns(table.schema, names)
    return inner if names == inner.schema.names else Columns(inner, names)


@as_method
def slice(table: Table, start: int = 0, stop: int | None = None) -> Table:  # noqa: A001 - the name users expect
    """Return the rows from ``start`` to ``stop``, as in a Python slice; negative numbers count from the end.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> slice(cp.open(pa.table({"x": [1, 2, 3, 4]})), 1, -1).read(0, 2).to_pydict()
        {'x': [2, 3]}
    """
    start = whole(start, "start", None)
    stop = None if stop is None else whole(stop, "stop", None)
    start, stop, _ = builtins.slice(start, stop).indices(len(table))
    if (start, stop) == (0, len(table)):
        return table
    if isinstance(table, MaskTable):
        bits = RowMask.joined(masks_of(_within(table.bits, start, stop), len(table.table)))
        return from_mask(table.table, bits)
    return Subset(table, [[start, stop]] if start < stop else [])


@as_method
def filter(table: Table, expression: Any) -> Table:  # noqa: A001 - the name users expect
    """Return the rows of a table for which an expression is true, not false or null.

    The columns of the expression are read once, by this call. The result is stored as runs of rows or one bit a row.

    Args:
        table: The table.
        expression: Such as ``pyarrow.compute.field("year") > 2020``.

    Raises:
        MissingColumn: The expression names a column that does not exist.
        BadArgument: The argument is not a boolean expression.

    Example:
        >>> import corgipile as cp, pyarrow as pa, pyarrow.compute as pc
        >>> table = cp.open(pa.table({"year": [2019, 2021, None, 2022], "x": [1, 2, 3, 4]}))
        >>> filter(table, pc.field("year") > 2020).read(0, 2, ["x"]).to_pydict()
        {'x': [2, 4]}
    """
    table = adopt(table)
    return mask_rows(table, RowMask.joined(row_masks(table, expression)))


def mask_rows(table: Table, bits: RowMask) -> Table:
    """Return the rows that a mask selects; masks of selections refer to the underlying table.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> table = cp.open(pa.table({"x": range(6)}))
        >>> even = mask_rows(table, RowMask.of([True, False] * 3))
        >>> mask_rows(even, RowMask.of([False, True, True])).read(0, 2).to_pydict()
        {'x': [2, 4]}
    """
    if len(bits) == len(table):
        return table
    if not isinstance(table, MaskTable | Subset):
        return from_mask(table, bits)
    places = (table.places(rows) for rows in bits.parts())
    return from_mask(table.table, RowMask.joined(masks_of(places, len(table.table))))


def from_mask(table: Table, bits: RowMask) -> Table:
    """Return the rows that a mask selects, as runs if these take less memory."""
    if bits.runs * RUN_BYTES > bits.nbytes:
        return MaskTable(table, bits)
    edges = [np.zeros((0, 2), np.int64)]
    for rows in bits.parts():
        at = np.flatnonzero(np.diff(rows) != 1)
        edges.append(np.stack([rows[np.append(0, at + 1)], rows[np.append(at, len(rows) - 1)] + 1], axis=1))
    runs = np.concatenate(edges)
    new = np.append(True, runs[1:, 0] != runs[:-1, 1])[: len(runs)]  # a part may end within a run
    last = np.append(new[1:], True)[: len(runs)]
    return Subset(table, np.stack([runs[new, 0], runs[last, 1]], axis=1))


def masks_of(parts: Iterable[IntArray], rows: int) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield masks of ``rows`` rows, in parts, that are true at the ascending row numbers in ``parts``.

    Example:
        >>> [mask.tolist() for mask in masks_of([np.array([0]), np.array([2])], 4)]
        [[True, False, True, False]]
    """
    remaining, pending = iter(parts), np.zeros(0, np.int64)
    for start in range(0, rows, MASK_ROWS):
        stop = min(start + MASK_ROWS, rows)
        while not len(pending) or pending[-1] < stop:
            part = next(remaining, None)
            if part is None:
                break
            pending = np.concatenate([pending, part])
        at = int(np.searchsorted(pending, stop))
        mask = np.zeros(stop - start, np.bool_)
        mask[pending[:at] - start] = True
        pending = pending[at:]
        yield mask


def _within(bits: RowMask, start: int, stop: int) -> Iterator[IntArray]:
    for first in range(start, stop, MASK_ROWS):
        yield bits.within(first, min(first + MASK_ROWS, stop))
