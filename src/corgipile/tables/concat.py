"""Many files as one table."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.tables.checked import Checked
from corgipile.tables.encoded import Encoded, Units, is_encoded, joined_spill, joined_units
from corgipile.tables.even_lists import list_width
from corgipile.tables.io.files import digest, sampled_among
from corgipile.tables.io.pieces import pick, places_of, read_pieces, take_pieces
from corgipile.tables.io.spill import Section, SpillWriter
from corgipile.tables.location import Location, location, varlen_location
from corgipile.tables.pages import run_cuts
from corgipile.tables.table import (
    ColumnLayout,
    IntArray,
    Layout,
    Single,
    Table,
    check_columns,
    row_sizes,
    shared_bytes,
)
from corgipile.tables.values import as_type
from corgipile.tables.views import select

AT_ONCE = 64  # layouts that are joined: one of a file takes as much as one of many
DIMS_KEY = b"corgipile.dims"
FEATURES_KEY = b"corgipile.features"  # the column, or the name of the pair of columns, that features are by default
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


class ConcatTable(Checked):
    """Joins tables of equal schema end to end; text, or bytes, may have offsets of any width.

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
            raise BadArgument("no tables given to join; at least one is needed")
        for table in tables[1:]:
            _check_equal(tables[0], table)
        self.tables = self._tables = list(tables)
        self._starts = np.cumsum([0, *map(len, tables)], dtype=np.int64)
        self.schema: pa.Schema = _joined_schema([table.schema for table in tables])

    def __reduce__(self) -> tuple[type["ConcatTable"], tuple[list[Table]]]:
        return ConcatTable, (self._tables,)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"ConcatTable({len(self._tables)} tables from {self._tables[0]!r})"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows."""
        return sum(table.nbytes for table in self._tables)

    @property
    def fingerprint(self) -> str:
        """Return the identity: those of all tables, in order."""
        with sampled_among(len(self._tables)):
            return digest(*(table.fingerprint for table in self._tables))

    def cuts(self, rows: int) -> IntArray:
        """Cut each table by itself: no block crosses from one file into the next."""
        parts = [table.cuts(rows) + start for table, start in zip(self._tables, self._starts[:-1], strict=True)]
        return np.unique(np.concatenate(parts))

    def run_cuts(self, columns: Sequence[str], run_bytes: int) -> IntArray:
        """Cut each table by itself at runs of pages."""
        parts = [run_cuts(table, columns, run_bytes) for table in self._tables]
        return np.unique(np.concatenate([part + start for part, start in zip(parts, self._starts, strict=False)]))

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return read_pieces(
            self._starts, start, stop, lambda i, a, b: typed(self._tables[i].read(a, b, names), self.schema)
        )

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_pieces(self._starts, rows, lambda i, local: typed(self._tables[i].take(local, names), self.schema))

    def list_width(self, name: str) -> int | None:
        """Return the length of a list column's rows, if the first, the middle and the last table tell the same."""
        tables = [table for table in self._tables if len(table)]
        found = {list_width(table, name) for table in {*tables[:1], *tables[len(tables) // 2 :][:1], *tables[-1:]}}
        return found.pop() if len(found) == 1 else None

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of rows; None where one of the tables they are in does not tell."""
        sizes = np.empty(len(rows), np.int64)
        for table, places, local in self.parts_of(rows):
            found = row_sizes(table, local, columns)
            if found is None:
                return None
            sizes[places] = found
        return sizes

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes that the tables hold for columns, whatever the rows."""
        return sum(shared_bytes(table, columns) for table in self._tables)

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a binary column, each into an object of its own."""
        made = [b""] * len(rows)
        for table, places, local in self.parts_of(rows):
            for place, one in zip(places.tolist(), cast("Single", table).take_bytes(local, column), strict=True):
                made[place] = one
        return made

    def parts_of(self, rows: IntArray) -> Iterator[tuple[Table, IntArray, IntArray]]:
        """Yield each table that holds some of the rows, their places among them, and their numbers in it."""
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for owner, places in places_of(owners):
            yield self._tables[owner], places, rows[places] - self._starts[owner]

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Join the layouts of all tables; None if one has none."""
        names = check_columns(self.schema, columns)
        found: list[Layout] = []
        for some in range(0, len(self._tables), AT_ONCE):
            parts = [table.layout(names) for table in self._tables[some : some + AT_ONCE]]
            there = [layout for layout in parts if layout is not None]
            if len(there) < len(parts):
                return None
            found.append(_joined(there, names, self._starts[some : some + len(parts) + 1] - self._starts[some]))
        return _joined(found, names, np.append(self._starts[:-1:AT_ONCE], self._starts[-1]))

    def location(self, columns: Sequence[str]) -> Location | None:
        """Say where the kernel finds columns, if it finds those of all tables, and all of their rows."""
        return self._placed(columns, location)

    def varlen_location(self, columns: Sequence[str]) -> Location | None:
        """Say the same of columns of which some are of varying length."""
        return self._placed(columns, varlen_location)

    def _placed(
        self, columns: Sequence[str], find: Callable[[Table, Sequence[str]], Location | None]
    ) -> Location | None:
        names = check_columns(self.schema, columns)
        if not len(self):
            return None
        parts = [find(table, names) for table in self._tables if len(table)]
        found = [part for part in parts if part is not None and part.bits is None]
        if len(found) < len(parts) or not all(_alike(found, name) for name in names):
            return None
        kept = tuple(one for part in found for one in part.kept)
        full = ConcatTable([table for table in self._tables if len(table)])
        return Location(_joined([part.layout for part in found], names, full._starts), kept=kept)

    @property
    def advice(self) -> str | None:
        """Return what reading one of the tables costs, see `corgipile.description`."""
        return next((table.advice for table in self._tables if hasattr(table, "advice")), None)

    @property
    def place(self) -> str:
        """Return what tells the encoded tables, as their files are now, from all others of this machine."""
        return digest(*(str(table.place) for table in self._tables if hasattr(table, "place")))

    @property
    def spill(self) -> Path | None:
        """Return the folder for spill files, None if one of the tables must have none."""
        return joined_spill(self._tables)

    def units(self, columns: Sequence[str]) -> Units | None:
        """Say what is decoded together; None where rows of these columns can be read one by one."""
        return joined_units(table.units(columns) for table in self._encoded(columns))

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write the rows of all tables that are encoded as sections of a spill file."""
        for table in self._encoded(columns):
            _write_plain(table, columns, out)

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Return the tables of the sections that `write_plain` wrote, and those that are plain already, as one."""
        names, found = list(dict.fromkeys(columns)), [_open_plain(table, columns, sections) for table in self._tables]
        return ConcatTable([one if one.schema.names == names else select(one, names) for one in found])

    def _encoded(self, columns: Sequence[str]) -> list[Encoded]:
        return [table for table in self._tables if is_encoded(table, columns)]


def _write_plain(table: Table, columns: Sequence[str], out: SpillWriter) -> Table:
    """Write the rows of a table that is encoded; of a view, those of the table beneath."""
    if hasattr(table, "unpacked"):
        table.unpacked(columns, lambda below, stored: _write_plain(below, stored, out))
    elif is_encoded(table, columns):
        table.write_plain(columns, out)
    return table


def _open_plain(table: Table, columns: Sequence[str], sections: Iterator[Section]) -> Table:
    """Return a table as it is once `_write_plain` has written it; itself where it is not encoded."""
    if not is_encoded(table, columns):
        return table
    if hasattr(table, "unpacked"):
        return cast("Table", table.unpacked(columns, lambda below, stored: _open_plain(below, stored, sections)))
    return table.open_plain(columns, sections)


def _joined(found: list[Layout], names: list[str], begins: IntArray) -> Layout:
    """Join layouts of which the rows begin there; the end of all is the last."""
    firsts = np.cumsum([0, *(len(layout.paths) for layout in found)])
    paths = tuple(path for layout in found for path in layout.paths)
    joined = {name: _column([layout.columns[name] for layout in found], begins, firsts) for name in names}
    known = all(len(layout.identities) == len(layout.paths) for layout in found)
    return Layout(paths, joined, tuple(one for layout in found for one in layout.identities) if known else ())


def _column(parts: list[ColumnLayout], begins: IntArray, firsts: IntArray) -> ColumnLayout:
    numbered = [part.numbered(int(first)) for part, first in zip(parts, firsts, strict=False)]
    return ColumnLayout.end_to_end(numbered, begins)


def _alike(parts: list[Location], name: str) -> bool:
    """Say whether a column is of one type in all parts, whose offsets may be of two widths where it is text."""
    return len({part.layout.columns[name].dtype for part in parts}) == 1


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of one of several tables with the fields that all of them together have.

    Example:
        >>> typed(pa.record_batch({"x": ["a"]}), pa.schema([("x", pa.large_string())])).schema.types
        [DataType(large_string)]
    """
    fields = pick(schema, batch.schema.names)
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
            raise BadSchema(f"{other!r} has no column {name!r}, which {first!r} has")
        mine, theirs = here.field(name).type, there.field(name).type
        if not same_kind(mine, theirs):
            raise BadSchema(
                f"{other!r}: column {name!r} is {mine}; in {first!r} it is {theirs}: " + _cure(name, mine, theirs)
            )
    for name in ours:
        if name not in wanted:
            raise BadSchema(f"{other!r} has a column {name!r}, which {first!r} lacks")
    for one, another in zip(ours, names, strict=True):
        if one != another:
            raise BadSchema(f"{other!r} has column {one!r} where {first!r} has {another!r}")


def _cure(name: str, mine: pa.DataType, theirs: pa.DataType) -> str:
    """Say what type a part is best written with: one that keeps values, and that convert knows by its name."""
    if all(pa.types.is_dictionary(kind) or same_kind(kind, pa.string()) for kind in (mine, theirs)):
        return f"write categories anew as text, by `corgipile convert PART NEW --types {name}=string`"
    cure = "write one of them anew with the type of the other"
    best = _named(mine, theirs)
    return cure + f", such as by `corgipile convert PART NEW --types {name}={best}`" * _has_name(best)


def _has_name(kind: pa.DataType) -> bool:
    try:
        return bool(pa.type_for_alias(str(kind)) == kind)
    except ValueError:
        return False


def _named(mine: pa.DataType, theirs: pa.DataType) -> pa.DataType:
    """Return which of two types keeps more: integers become floats, and truth numbers, not the other way."""
    ranks = [pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating]
    of = [next((at for at, rank in enumerate(ranks) if rank(kind)), -1) for kind in (mine, theirs)]
    return mine if min(of) >= 0 and of[0] > of[1] else theirs


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
    """Say whether columns of two types are joined as they are.

    Example:
        >>> same_kind(pa.string(), pa.large_string()), same_kind(pa.int32(), pa.int64())
        (True, False)
    """
    return bool(_wide(one) == _wide(other))


def _wide(kind: pa.DataType) -> pa.DataType:
    """Return the type that stands for text, or bytes, whatever the width of its offsets."""
    return _WIDE.get(kind, kind)
