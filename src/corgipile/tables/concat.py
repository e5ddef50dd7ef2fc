"""Concatenation of tables."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.tables.io.files import digest, sampled_among
from corgipile.tables.io.pieces import Recent, pick, places_of, read_pieces, take_pieces
from corgipile.tables.io.spill import Section, SpillWriter
from corgipile.tables.layout import Pieces
from corgipile.tables.location import Location
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table, check_columns
from corgipile.tables.units import Units
from corgipile.tables.values import as_type
from corgipile.tables.views import select
from corgipile.tables.wrapper import Combined

MAX_LAYOUTS = 64  # layouts joined at a time, since each uncombined layout takes as much memory as a joined one
DIMS_KEY = b"corgipile.dims"
FEATURES_KEY = b"corgipile.features"  # default feature column, or the name of its pair of columns
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


class ConcatTable(Combined):
    """Concatenates tables of equal schema; text and bytes may have offsets of either width.

    Args:
        tables: At least one table.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.tables.memory import MemoryTable
        >>> parts = [MemoryTable(pa.table({"label": [0, 1]})), MemoryTable(pa.table({"label": [2]}))]
        >>> ConcatTable(parts).read(1, 3).to_pydict()
        {'label': [1, 2]}
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        if not tables:
            raise BadArgument("tables to join must be at least one, got none")
        for table in tables[1:]:
            _check_equal(tables[0], table)
        super().__init__(tables)
        self._starts = np.cumsum([0, *map(len, tables)], dtype=np.int64)
        self.schema: pa.Schema = _joined_schema([*{id(table.schema): table.schema for table in tables}.values()])
        self._units: Recent[Units | None] = Recent(2)  # by columns

    def __reduce__(self) -> tuple[type["ConcatTable"], tuple[Sequence[Table]]]:
        return ConcatTable, (self.tables,)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"ConcatTable({len(self.tables)} tables from {self.tables[0]!r})"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows."""
        return sum(table.nbytes for table in self.tables)

    @property
    def fingerprint(self) -> str:
        """Return the identity of all tables, in order."""
        with sampled_among(len(self.tables)):
            return digest(*(table.fingerprint for table in self.tables))

    def cuts(self, rows: int) -> IntArray:
        """Cut each table separately, so that no block crosses files."""
        parts = [table.cuts(rows) + start for table, start in zip(self.tables, self._starts[:-1], strict=True)]
        return np.unique(np.concatenate(parts))

    def run_cuts(self, columns: Sequence[str], run_bytes: int) -> IntArray:
        """Cut each table separately at runs of pages."""
        parts = [table.run_cuts(columns, run_bytes) for table in self.tables]
        return np.unique(np.concatenate([part + start for part, start in zip(parts, self._starts, strict=False)]))

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return read_pieces(
            self._starts, start, stop, lambda i, a, b: recast(self.tables[i].read(a, b, names), self.schema)
        )

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_pieces(self._starts, rows, lambda i, local: recast(self.tables[i].take(local, names), self.schema))

    def list_width(self, name: str) -> int | None:
        """Return the length of a list column's rows, if the first, the middle and the last table agree."""
        tables = [table for table in self.tables if len(table)]
        widths = {table.list_width(name) for table in {*tables[:1], *tables[len(tables) // 2 :][:1], *tables[-1:]}}
        return widths.pop() if len(widths) == 1 else None

    def parts_of(self, rows: IntArray) -> Iterator[tuple[Table, IntArray, IntArray]]:
        """Yield each table of the rows, their positions in ``rows``, and their row numbers in the table."""
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for owner, places in places_of(owners):
            yield self.tables[owner], places, rows[places] - self._starts[owner]

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Join the layouts of all tables; None if one table has none."""
        names = check_columns(self.schema, columns)
        layouts: list[Layout] = []
        for first in range(0, len(self.tables), MAX_LAYOUTS):
            parts = [table.layout(names) for table in self.tables[first : first + MAX_LAYOUTS]]
            known = [layout for layout in parts if layout is not None]
            if len(known) < len(parts):
                return None
            layouts.append(_join(known, names, self._starts[first : first + len(parts) + 1] - self._starts[first]))
        return _join(layouts, names, np.append(self._starts[:-1:MAX_LAYOUTS], self._starts[-1]))

    def location(self, columns: Sequence[str]) -> Location | None:
        """Return the location of columns; None if a table has none, or has a row mask."""
        if (found := super().location(columns)) is not None:
            return found
        tables = [table for table in self.tables if len(table)]
        parts = [table.location(columns) for table in tables]
        unmasked = [part for part in parts if part is not None and part.bits is None]
        if not tables or len(unmasked) < len(parts) or not all(_same_dtype(unmasked, name) for name in columns):
            return None
        owners = tuple(owner for part in unmasked for owner in part.kept)
        begins = np.cumsum([0, *map(len, tables)], dtype=np.int64)
        return Location(_join([part.layout for part in unmasked], list(columns), begins), kept=owners)

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the decoding units; None if rows of these columns can be read one by one."""
        return self._units.get(tuple(columns), lambda: super(ConcatTable, self).units(columns))

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write the rows of all encoded tables as sections of a spill file."""
        for table in self.tables:
            _write_plain(table, columns, out)

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Join the tables of sections that `write_plain` wrote with those that are not encoded."""
        names, parts = list(dict.fromkeys(columns)), [_open_plain(table, columns, sections) for table in self.tables]
        return ConcatTable([one if one.schema.names == names else select(one, names) for one in parts])


def _write_plain(table: Table, columns: Sequence[str], out: SpillWriter) -> Table:
    """Write the rows of an encoded table; for a view, those of the underlying table."""
    if table.units(columns) is not None and table.unpacked(columns, partial(_write_plain, out=out)) is None:
        table.write_plain(columns, out)
    return table


def _open_plain(table: Table, columns: Sequence[str], sections: Iterator[Section]) -> Table:
    """Open a table that `_write_plain` has written; return it unchanged if it is not encoded."""
    if table.units(columns) is None:
        return table
    opened = table.unpacked(columns, partial(_open_plain, sections=sections))
    return table.open_plain(columns, sections) if opened is None else opened


def _join(layouts: list[Layout], names: list[str], begins: IntArray) -> Layout:
    """Join layouts whose first rows are ``begins``; the last entry is the number of rows."""
    firsts = np.cumsum([0, *(len(layout.paths) for layout in layouts)])
    paths = tuple(path for layout in layouts for path in layout.paths)
    pieces, joined = Pieces(), dict[str, ColumnLayout]()
    for name in names:
        parts = [layout.columns[name] for layout in layouts]
        joined[name] = ColumnLayout.end_to_end(parts, begins, firsts, pieces)
    known = all(len(layout.identities) == len(layout.paths) for layout in layouts)
    return Layout(paths, joined, tuple(file for layout in layouts for file in layout.identities) if known else ())


def _same_dtype(parts: list[Location], name: str) -> bool:
    """Return whether a column has one dtype in all parts; text parts may differ in offset width."""
    return len({part.layout.columns[name].dtype for part in parts}) == 1


def recast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch of one part to the schema of the joined table.

    Example:
        >>> recast(pa.record_batch({"x": ["a"]}), pa.schema([("x", pa.large_string())])).schema.types
        [DataType(large_string)]
    """
    fields = pick(schema, batch.schema.names)
    if batch.schema.equals(fields, check_metadata=True):
        return batch
    columns = [as_type(column, kind) for column, kind in zip(batch.columns, fields.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def _check_equal(first: Table, other: Table) -> None:
    here, there = other.schema, first.schema
    if here.equals(there):
        return
    ours, names = here.names, there.names
    known, wanted = set(ours), set(names)
    for name in names:
        if name not in known:
            raise BadSchema(f"{other!r} has no column {name!r}, but {first!r} has")
        mine, theirs = here.field(name).type, there.field(name).type
        if not same_kind(mine, theirs):
            raise BadSchema(
                f"{other!r}: column {name!r} is {mine}; in {first!r} it is {theirs}: " + _hint(name, mine, theirs)
            )
    for name in ours:
        if name not in wanted:
            raise BadSchema(f"{other!r} has a column {name!r}, which {first!r} lacks")
    for one, another in zip(ours, names, strict=True):
        if one != another:
            raise BadSchema(f"{other!r} has column {one!r} where {first!r} has {another!r}")


def _hint(name: str, mine: pa.DataType, theirs: pa.DataType) -> str:
    """Return a hint on the type to convert a part to, which keeps values and has a name for convert."""
    if all(pa.types.is_dictionary(kind) or same_kind(kind, pa.string()) for kind in (mine, theirs)):
        return f"rewrite categories as text by `corgipile convert PART NEW --types {name}=string`"
    hint = "rewrite one of them with the type of the other"
    wider = _wider_type(mine, theirs)
    return hint + f", such as by `corgipile convert PART NEW --types {name}={wider}`" * _has_name(wider)


def _has_name(kind: pa.DataType) -> bool:
    try:
        return bool(pa.type_for_alias(str(kind)) == kind)
    except ValueError:
        return False


def _wider_type(mine: pa.DataType, theirs: pa.DataType) -> pa.DataType:
    """Return the wider of two types: integers become floats and booleans numbers, never the reverse."""
    ranks = [pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating]
    ranks_of_both = [next((at for at, rank in enumerate(ranks) if rank(kind)), -1) for kind in (mine, theirs)]
    return mine if min(ranks_of_both) >= 0 and ranks_of_both[0] > ranks_of_both[1] else theirs


def _joined_schema(schemas: list[pa.Schema]) -> pa.Schema:
    metadata = dict(schemas[0].metadata or {})
    if DIMS_KEY in metadata:
        metadata[DIMS_KEY] = str(max(int((schema.metadata or {}).get(DIMS_KEY, 0)) for schema in schemas)).encode()
    return pa.schema(
        [_joined_field([schema.field(name) for schema in schemas]) for name in schemas[0].names], metadata or None
    )


def _joined_field(fields: list[pa.Field]) -> pa.Field:
    kinds = {field.type for field in fields}
    kind = kinds.pop() if len(kinds) == 1 else _wide(fields[0].type)
    return fields[0].with_type(kind).with_nullable(any(field.nullable for field in fields))


def same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether columns of two types join without a cast of values.

    Example:
        >>> same_kind(pa.string(), pa.large_string()), same_kind(pa.int32(), pa.int64())
        (True, False)
    """
    return bool(_wide(one) == _wide(other))


def _wide(kind: pa.DataType) -> pa.DataType:
    """Return a type with 64-bit offsets for text and bytes of either width."""
    return _WIDE.get(kind, kind)
