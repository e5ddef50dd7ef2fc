"""Tables over other tables: one class over a single table, and one over several."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from operator import attrgetter
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from corgipile.tables.checked import Checked
from corgipile.tables.io.files import digest
from corgipile.tables.io.pieces import pick
from corgipile.tables.location import Location
from corgipile.tables.table import IntArray, Layout, Table, adopt, check_columns
from corgipile.tables.units import Units, combine_units

__all__ = ["Combined", "Wrapper"]


class Wrapper(Checked):
    """Forwards all members of `Table` to another table; subclasses override only what they change.

    - Other columns: `schema`, `stored`, `keeps` and `_assemble`.
    - Other rows: ``len()``, `cuts`, `places` and `_locate`; see `corgipile.tables.selection`.

    Args:
        table: The table.
    """

    def __init__(self, table: Table) -> None:
        self.table = adopt(table)
        self.schema = self.table.schema

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the columns of the table that these columns are made from."""
        return list(columns)

    def keeps(self, column: str) -> bool:
        """Return whether a column is that of the table, unchanged."""
        return True

    def places(self, rows: IntArray) -> IntArray:
        """Return the row numbers in the table."""
        return rows

    def _assemble(self, batch: pa.RecordBatch | None, names: list[str], rows: range | IntArray) -> pa.RecordBatch:
        """Return columns of rows, given a batch of their `stored` columns; the batch is None if they have none."""
        return batch

    def _locate(self, place: Location | None) -> Location | None:
        """Return the location of this table's rows, given that of the table's rows."""
        return place

    def _in_place(self, columns: Sequence[str]) -> list[str] | None:
        """Return the columns if the table has all of them unchanged, else None."""
        names = check_columns(self.schema, columns)
        return names if all(map(self.keeps, names)) else None

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return repr(self.table)

    @property
    def tables(self) -> Sequence[Table]:
        """Return the wrapped table."""
        return (self.table,)

    def cuts(self, rows: int) -> IntArray:
        """Return the cuts of the table."""
        return self.table.cuts(rows)

    def run_cuts(self, columns: Sequence[str], run_bytes: int) -> IntArray:
        """Return the cuts of the table at runs of pages."""
        return self.table.run_cuts(self.stored(columns), run_bytes)

    def memory_runs(self, most: int) -> list[tuple[int, int]] | None:
        """Return runs of rows that reads do not copy."""
        return self.table.memory_runs(most)

    def parts_of(self, rows: IntArray) -> Iterator[tuple[Table, IntArray, IntArray]]:
        """Yield the table with the rows' numbers in it."""
        yield self.table, np.arange(len(rows)), self.places(rows)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        stored = self.stored(names)
        batch = self.table.read(start, stop, stored) if stored or not names else None
        return self._assemble(batch, names, range(start, stop))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        stored = self.stored(names)
        batch = self.table.take(self.places(rows), stored) if stored or not names else None
        return self._assemble(batch, names, rows)

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return the layout of columns, None if the table has none or they are changed."""
        names = self._in_place(columns)
        layout = None if names is None else self.table.layout(names)
        place = None if layout is None else self._locate(Location(layout))
        return None if place is None or place.bits is not None else place.layout

    def location(self, columns: Sequence[str]) -> Location | None:
        """Return the location of columns, None if the table has none or they are changed."""
        names = self._in_place(columns)
        return self._locate(self.table.location(names)) if names and len(self) else None

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of rows, None if they are unknown or columns are changed."""
        return self.table.row_sizes(self.places(rows), columns) if all(map(self.keeps, columns)) else None

    def longest_row(self, columns: Sequence[str]) -> int:
        """Return the bytes of the table's longest row as far as it is known."""
        stored = self.stored(columns)
        return self.table.longest_row(stored) if stored else 0

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a binary column as separate objects."""
        if not self.keeps(column):
            return super().take_bytes(rows, column)
        return self.table.take_bytes(self.places(rows), column)

    def list_width(self, name: str) -> int | None:
        """Return the length of a list column's rows, None if it varies."""
        return self.table.list_width(name) if self.keeps(name) else super().list_width(name)

    def by_column(self, column: str) -> bool:
        """Return whether a column is read without the others."""
        stored = self.table.schema.get_all_field_indices(column)
        return self.table.by_column(column) if stored else super().by_column(column)

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes of dictionaries that the table keeps for columns."""
        stored = self.stored(columns)
        return self.table.shared_bytes(stored) if stored else 0

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the units of the table, None if it is not encoded."""
        stored = self.stored(columns)
        return self.table.units(stored) if stored else None

    def is_unencoded(self, columns: Sequence[str]) -> bool:
        """Return whether columns are stored outside an encoded table."""
        return self.table.is_unencoded(self.stored(columns))

    def unpacked(self, columns: Sequence[str], unpack: Callable[[Table, Sequence[str]], Table]) -> Self | None:
        """Return a copy over the unpacked table, with these columns only."""
        copied = copy(self)
        copied.table = unpack(self.table, self.stored(columns))
        copied.schema = pick(self.schema, list(dict.fromkeys(columns)))
        return copied


# The table's own values; a property for each would only repeat the contract.
for _name in ("nbytes", "fingerprint", "at_hand", "taken_runs", "samples_widths", "advice", "place", "spill"):
    setattr(Wrapper, _name, property(attrgetter(f"table.{_name}")))


class Combined(Checked):
    """Forwards members of `Table` to several tables, whose rows `parts_of` finds.

    Args:
        tables: The tables.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = list(map(adopt, tables))

    @property
    def at_hand(self) -> bool:
        """Return whether the rows of all tables are local."""
        return all(table.at_hand for table in self.tables)

    @property
    def taken_runs(self) -> int:
        """Return the mean rows of a run below which runs are taken together."""
        return self.tables[0].taken_runs

    @property
    def samples_widths(self) -> bool:
        """Return whether `list_width` reads rows."""
        return any(table.samples_widths for table in self.tables)

    @property
    def advice(self) -> str | None:
        """Return the advice on reading cost of the first table that has one."""
        return next((table.advice for table in self.tables if table.advice), None)

    @property
    def place(self) -> str:
        """Return the identity of the encoded files in their present state on this machine."""
        places = [table.place for table in self.tables]
        return digest(*filter(None, places)) if any(places) else ""

    @property
    def spill(self) -> Path | None:
        """Return the folder for spill files, None if a table must not spill: an encoded one, or any if none is."""
        folders = [table.spill for table in self.tables if table.place]
        folders = folders or [table.spill for table in self.tables] or [super().spill]
        return None if None in folders else folders[0]

    def parts_of(self, rows: IntArray) -> Iterator[tuple[Table, IntArray, IntArray]]:
        """Yield each table of the rows, their positions in ``rows``, and their row numbers in the table."""
        raise NotImplementedError

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of rows, None if one of their tables does not know them."""
        sizes = np.empty(len(rows), np.int64)
        for table, at, local in self.parts_of(rows):
            part_sizes = table.row_sizes(local, columns)
            if part_sizes is None:
                return None
            sizes[at] = part_sizes
        return sizes

    def longest_row(self, columns: Sequence[str]) -> int:
        """Return the bytes of the longest row of all tables as far as it is known."""
        return max(table.longest_row(columns) for table in self.tables)

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a binary column as separate objects."""
        values = [b""] * len(rows)
        for table, at, local in self.parts_of(rows):
            for place, value in zip(at.tolist(), table.take_bytes(local, column), strict=True):
                values[place] = value
        return values

    def by_column(self, column: str) -> bool:
        """Return whether all tables read a column without the others."""
        return all(table.by_column(column) for table in self.tables)

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes of dictionaries that the tables keep for columns."""
        return sum(table.shared_bytes(columns) for table in self.tables)

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the decoding units; None if rows of these columns can be read one by one."""
        return combine_units(table.units(columns) for table in self.tables)

    def is_unencoded(self, columns: Sequence[str]) -> bool:
        """Return whether columns are stored outside all encoded tables."""
        return all(table.is_unencoded(columns) for table in self.tables)
