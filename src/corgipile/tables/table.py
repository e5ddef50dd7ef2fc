"""The contract of a table."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, MissingColumn
from corgipile.suggestions import column_meant, listed
from corgipile.tables.even_lists import sampled_width
from corgipile.tables.io.spill import Section, SpillWriter, spill_folder
from corgipile.tables.layout import (
    LIMIT,
    NUMBERS,
    ColumnLayout,
    IntArray,
    Layout,
    VarlenLayout,
    fixed_field,
    is_bytes,
    is_list,
    is_text,
    is_wide,
    item_bytes,
    type_code,
)
from corgipile.tables.location import Location
from corgipile.tables.pages import layout_cuts
from corgipile.tables.units import Units

__all__ = [
    "LIMIT",
    "NUMBERS",
    "ColumnLayout",
    "IntArray",
    "Layout",
    "Table",
    "VarlenLayout",
    "adopt",
    "as_method",
    "check_columns",
    "check_run",
    "even_cuts",
    "fixed_field",
    "is_bytes",
    "is_list",
    "is_text",
    "is_wide",
    "item_bytes",
    "type_code",
]

MAX_LOOKUPS = 64  # columns looked up one by one; above, a set of all names is built
TAKEN_RUNS = 256  # mean rows of a run below which runs are taken in one Python call, which costs hundreds of rows
Function = TypeVar("Function", bound=Callable[..., Any])


class Table:
    """Rows in storage, addressable by row number; read-only, thread-safe and picklable.

    A table must have `schema`, `nbytes`, `fingerprint`, ``len()``, `cuts`, `read`, `take` and `layout`. All other
    members have defaults, which are right for rows that are read by `read` and `take` alone.

    Attributes:
        columnar: Whether each column is read without the others.

    Example:
        >>> import corgipile as cp, pyarrow.compute as pc
        >>> table = cp.open(pa.table({"x": [1, 2, 3], "label": [0, 1, 1]}))
        >>> table.filter(pc.field("label") == 1).slice(1).select(["x"]).read(0, 1).to_pydict()
        {'x': [3]}
    """

    columnar = False

    if TYPE_CHECKING:  # `as_method` adds these views, which copy nothing

        def select(self, names: Sequence[str]) -> "Table":
            """Return the table with some of its columns."""

        def slice(self, start: int = 0, stop: int | None = None) -> "Table":
            """Return the rows from ``start`` to ``stop``."""

        def filter(self, expression: Any) -> "Table":
            """Return the rows for which an expression is true."""

    def __len__(self) -> int:
        raise NotImplementedError

    # Subclasses set or override the following as attributes or properties, which `cached_property` permits.

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of a row."""
        raise NotImplementedError

    @cached_property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows."""
        raise NotImplementedError

    @cached_property
    def fingerprint(self) -> str:
        """Return the identity that saved states are compared with."""
        raise NotImplementedError

    def cuts(self, rows: int) -> IntArray:
        """Return block boundaries, int64[blocks + 1], about every ``rows`` rows, on the format's natural units."""
        return even_cuts(len(self), rows)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one contiguous run of rows into memory; no budget applies.

        Raises:
            BudgetTooSmall: The rows take more memory than is free.
        """
        raise NotImplementedError

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows in the requested order."""
        raise NotImplementedError

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return the layout of columns, None if rows have no fixed place (compressed, text, nulls)."""
        check_columns(self.schema, columns)
        return None

    def location(self, columns: Sequence[str]) -> Location | None:
        """Return the location of columns for the kernel, by `VarlenLayout` for columns of varying length.

        None if rows must be read through the table.
        """
        layout = self.layout(columns) if columns and len(self) else None
        return None if layout is None else Location(layout)

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of each row; None if rows of these columns cannot be located one by one."""

    def longest_row(self, columns: Sequence[str]) -> int:
        """Return the bytes of the longest row of columns as far as it is known without decoding, else 0."""
        return 0

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Return rows of a binary column without nulls as separate objects, in the requested order."""
        return list(self.take(rows, [column]).column(0).to_pylist())

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes that the table keeps for columns in addition to rows, such as dictionaries."""
        return 0

    def by_column(self, column: str) -> bool:
        """Return whether a column is read without the others."""
        return self.columnar or self.layout([column]) is not None

    def list_width(self, name: str) -> int | None:
        """Return the length of a list column's rows if those at the beginning, the middle and the end agree."""
        return sampled_width(self, name)

    @cached_property
    def samples_widths(self) -> bool:
        """Return whether `list_width` reads rows."""
        return True

    def run_cuts(self, columns: Sequence[str], run_bytes: int) -> IntArray:
        """Cut into the rows of each run of pages; a row belongs to the run of its first byte.

        One request reads each run, from the first byte of its first row to the end of its last; only the page of the
        last row's end is read twice. The widest column decides. Tables without a layout (compressed, or in memory) are
        cut at their natural units.

        Args:
            columns: The columns that are read.
            run_bytes: Bytes of a run of pages.

        Returns:
            int64[runs + 1], row numbers from 0 to the number of rows.

        Example:
            >>> from corgipile.tables import NumpyTable
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:  # 128 bytes of header, then rows of 100 bytes
            ...     np.save(f"{folder}/x.npy", np.zeros((300, 25), np.float32))
            ...     NumpyTable(f"{folder}/x.npy").run_cuts(["features"], 8192).tolist()
            [0, 81, 163, 245, 300]
        """
        layout = self.layout(columns) if columns and len(self) else None
        if layout is None:
            return self.cuts(max(1, run_bytes * len(self) // max(self.nbytes, 1)))
        return layout_cuts(layout, run_bytes)

    def memory_runs(self, most: int) -> list[tuple[int, int]] | None:
        """Return runs of at most ``most`` rows that reads do not copy; None if rows are not in memory."""

    @cached_property
    def at_hand(self) -> bool:
        """Return whether rows are local, whatever their source."""
        return False

    @cached_property
    def taken_runs(self) -> int:
        """Return the mean rows of a run below which runs are taken together."""
        return TAKEN_RUNS

    @cached_property
    def advice(self) -> str | None:
        """Return the cost of reading and how to reduce it; None if it is low."""
        return None

    @cached_property
    def tables(self) -> Sequence["Table"]:
        """Return the tables that this one is made of."""
        return ()

    def parts_of(self, rows: IntArray) -> Iterator[tuple["Table", IntArray, IntArray]]:
        """Yield each table beneath that has some of the rows, their positions in ``rows``, and their numbers in it."""
        return iter(())

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the units that are decoded whole; None if rows of these columns can be read one by one."""

    def is_unencoded(self, columns: Sequence[str]) -> bool:
        """Return whether columns are stored outside an encoded table, so that its units do not matter."""
        return False

    @cached_property
    def place(self) -> str:
        """Return the identity of encoded files in their present state on this machine; empty for other tables."""
        return ""

    @cached_property
    def spill(self) -> Path | None:
        """Return the folder for spill files, None if spilling is off."""
        return spill_folder(None)

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Decode all rows in small batches into sections of a spill file; only for tables with `units`."""
        raise NotImplementedError

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> "Table":
        """Open the sections that `write_plain` wrote as a table."""
        raise NotImplementedError

    def unpacked(self, columns: Sequence[str], unpack: "Callable[[Table, Sequence[str]], Table]") -> Self | None:
        """Return the same table with these columns, over what ``unpack`` makes of its `tables`; None if it has none."""


class _Adopted(Table):
    """Adds the optional members of the contract to a table of another package that does not derive from `Table`.

    Args:
        rows: The table, with the required members and any of the others.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return repr(self._rows)

    def __getattribute__(self, name: str) -> Any:
        own = super().__getattribute__
        if name.startswith("_"):
            return own(name)
        try:
            return getattr(own("_rows"), name)
        except AttributeError:
            return own(name)


def as_method(view: Function) -> Function:
    """Add a function of a table to `Table` as a method of the same name."""
    setattr(Table, view.__name__, view)
    return view


def adopt(table: Any) -> Table:
    """Return a table with all members of the contract: itself, or an object with the required members in a wrapper.

    Example:
        >>> class Squares:
        ...     schema, nbytes, fingerprint = pa.schema({"x": pa.int64()}), 40, "squares"
        ...     def __len__(self):
        ...         return 5
        ...     def cuts(self, rows):
        ...         return even_cuts(5, rows)
        ...     def read(self, start, stop, columns=None):
        ...         return self.take(np.arange(start, stop))
        ...     def take(self, rows, columns=None):
        ...         return pa.RecordBatch.from_arrays([pa.array(rows**2)], ["x"])
        ...     def layout(self, columns):
        ...         return None
        >>> adopt(Squares()).read(1, 4).to_pydict(), adopt(Squares()).units(["x"])
        ({'x': [1, 4, 9]}, None)
    """
    return table if isinstance(table, Table) else _Adopted(table)


def even_cuts(rows: int, step: int) -> IntArray:
    """Cut ``rows`` rows every ``step`` rows.

    Example:
        >>> even_cuts(10, 4).tolist()
        [0, 4, 8, 10]
    """
    if step < 1:
        raise BadArgument(f"block rows must be at least 1, got {step}")
    return np.append(np.arange(0, max(rows, 0), step, dtype=np.int64), np.int64(max(rows, 0)))


def _has(schema: pa.Schema, name: str) -> bool:
    return bool(schema.get_all_field_indices(name.encode(errors="surrogatepass")))


def check_columns(schema: pa.Schema, columns: Sequence[str] | None) -> list[str]:
    """Return the requested column names, all of them for None.

    Raises:
        MissingColumn: The schema has no column of that name.
    """
    if columns is None:
        return list(schema.names)
    known = None if len(columns) <= MAX_LOOKUPS else set(schema.names)
    for name in columns:
        if not (_has(schema, name) if known is None else name in known):
            suggestion = column_meant(name, schema.names)
            raise MissingColumn(f"no column {name!r}; the table has {listed(schema.names)}{suggestion}")
    return list(columns)


def check_run(start: int, stop: int, rows: int) -> None:
    """Raise BadArgument unless ``0 <= start <= stop <= rows``."""
    if not 0 <= start <= stop <= rows:
        raise BadArgument(f"rows {start} to {stop} asked for; the table has rows 0 to {rows}")
