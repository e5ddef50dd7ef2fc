"""Tables in memory."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.tables.checked import Checked
from corgipile.tables.io.files import describe, digest
from corgipile.tables.io.pieces import check_names, pick_rows, read_pieces, take_pieces
from corgipile.tables.location import IN_MEMORY, Location, address_of
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table, check_columns, fixed_field

MAX_SAMPLED_ROWS = 64
MAX_LIST_ITEMS = 1 << 16  # numbers of a list that a fingerprint keeps as Python objects
LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)


class MemoryTable(Checked):
    """Serves the rows of a ``pyarrow.Table``.

    Args:
        rows: The rows; they are not copied.

    Example:
        >>> import pyarrow as pa
        >>> table = MemoryTable(pa.table({"label": [0, 1, 1]}))
        >>> table.take([2, 0]).to_pydict()
        {'label': [1, 0]}
    """

    columnar = True  # each column is read without the others
    at_hand = True  # reads need no I/O

    def __init__(self, rows: pa.Table) -> None:
        check_names(rows.schema, "the table in memory")
        self.schema: pa.Schema = rows.schema
        self._rows = rows
        self._batches = [batch for batch in rows.to_batches() if batch.num_rows]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)], dtype=np.int64)

    def __reduce__(self) -> tuple[type["MemoryTable"], tuple[pa.Table]]:
        return MemoryTable, (self._rows,)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"MemoryTable({len(self)} rows of {describe(self.schema)})"

    def replaced(self, columns: pa.Table) -> "MemoryTable":
        """Return the table with columns of the same names replaced; nothing is copied."""
        schema, new = self._rows.schema, columns.combine_chunks()
        fields, arrays = list(schema), self._rows.columns
        for field, column in zip(new.schema, new.columns, strict=True):
            at = schema.get_field_index(field.name)
            fields[at], arrays[at] = field, column
        return MemoryTable(pa.Table.from_arrays(arrays, schema=pa.schema(fields, schema.metadata)))

    @property
    def rows(self) -> pa.Table:
        """Return the rows as a ``pyarrow.Table``."""
        return self._rows

    def memory_runs(self, most: int) -> list[tuple[int, int]]:
        """Cut the rows into runs of at most ``most`` rows, each within one record batch, so that reads do not copy."""
        within = zip(self._starts[:-1].tolist(), self._starts[1:].tolist(), strict=True)
        return [(at, min(at + most, stop)) for start, stop in within for at in range(start, stop, most)]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all rows."""
        return int(self._rows.nbytes)

    @property
    def fingerprint(self) -> str:
        """Return the identity of the schema, the number of rows and sampled rows."""
        return sampled_fingerprint(self)

    def _check_memory(self, rows: int, names: list[str]) -> None:
        """Pass: the rows are in memory."""

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        """Return a run of rows, without a copy if it lies in one chunk."""
        return read_pieces(self._starts, start, stop, lambda i, a, b: self._batches[i].slice(a, b - a).select(names))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_pieces(self._starts, rows, lambda i, local: pick_rows(self._batches[i].select(names), local))

    def location(self, columns: Sequence[str]) -> Location | None:
        """Return the location of columns in memory; None if rows have no fixed width, or there are nulls.

        Subclasses that override reads have no location.
        """
        if type(self).read is not MemoryTable.read or type(self).take is not MemoryTable.take:
            return None
        addresses_of = {name: self._addresses(name) for name in check_columns(self.schema, columns)}
        if not len(self) or any(addresses is None for addresses in addresses_of.values()):
            return None
        memory = np.full(len(self._batches), IN_MEMORY, np.int32)
        located = {
            name: ColumnLayout(*fixed, self._starts, memory, np.array(addresses, np.int64))
            for name, addresses in addresses_of.items()
            if (fixed := fixed_field(self.schema.field(name).type)) is not None
        }
        return Location(Layout((), located), kept=tuple(self._batches))

    def _addresses(self, name: str) -> list[int] | None:
        if fixed_field(self.schema.field(name).type) is None:
            return None
        addresses = [address_of(batch.column(name)) for batch in self._batches]
        return None if None in addresses else [address for address in addresses if address is not None]


def sampled_fingerprint(table: Table) -> str:
    """Return a fingerprint from the schema, the number of rows and sampled rows."""
    picks = np.unique(np.linspace(0, max(len(table) - 1, 0), MAX_SAMPLED_ROWS).astype(np.int64))
    sample = [_content(table.read(row, row + 1)) for row in picks[picks < len(table)].tolist()]
    return digest(describe(table.schema), str(len(table)), str(sample))


def _content(row: pa.RecordBatch) -> dict[str, Any]:
    """Return the values of a row; long lists are replaced by digests."""
    return {
        name: _digest(column) if _items(column) > MAX_LIST_ITEMS else column.to_pylist()[0]
        for name, column in zip(row.schema.names, row.columns, strict=True)
    }


def _items(value: pa.Array) -> int:
    """Return the numbers in a nested list, 0 for other values."""
    while isinstance(value.type, LISTS):
        value = value.flatten()
    return len(value) if pa.types.is_primitive(value.type) else 0


def _digest(value: pa.Array) -> str:
    hashed = blake2b(digest_size=16)
    while isinstance(value.type, LISTS):
        hashed.update(str(pc.list_value_length(value).to_pylist()).encode())
        value = value.flatten()
    hashed.update(value.is_valid().to_numpy(zero_copy_only=False))
    hashed.update(value.drop_null().to_numpy(zero_copy_only=False).view(np.uint8))
    return hashed.hexdigest()
