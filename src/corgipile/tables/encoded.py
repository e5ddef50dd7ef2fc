"""Tables whose rows are encoded in large units: sizes of units, and unpacking to a spill file."""

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.arrow_memory import frugal
from corgipile.errors import BadSchema, CorruptFile, WriteFailed
from corgipile.nesting import MAX_IPC_DEPTH, check_types
from corgipile.sizes import format_bytes
from corgipile.tables.checked import Checked
from corgipile.tables.io.arriving import in_flight_of
from corgipile.tables.io.pieces import Recent, pick
from corgipile.tables.io.remote import this_scan
from corgipile.tables.io.shared_spill import shared
from corgipile.tables.io.spill import Section, SpillFile, SpillWriter, check_room
from corgipile.tables.location import Location
from corgipile.tables.materialized import find_spilled, record_spilled
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table, check_columns
from corgipile.tables.units import Units, combine_units, units_of
from corgipile.tables.values import as_type, viewless
from corgipile.tables.wrapper import Wrapper

__all__ = [
    "SMALL",
    "Part",
    "SpilledTable",
    "Units",
    "Unpacked",
    "combine_units",
    "group_columns",
    "restore_type",
    "units_of",
    "unpack",
    "unpack_column",
    "unpack_shared",
    "use_spilled",
    "write_plain",
]

SMALL = 2 << 20  # decoded bytes of a unit that fits any budget
GROUP_BYTES = 6 << 20  # bytes of the columns that are decoded together
WRITE_BYTES = 1 << 18  # bytes of one write to a spill file: buffers of many columns are short
WARN_BYTES = 64 << 20  # unpacked bytes that log a warning
log = logging.getLogger("corgipile")


class Part(NamedTuple):
    """The methods of a table that decode a part of it."""

    write_plain: Callable[[Sequence[str], SpillWriter], None]
    open_plain: Callable[[Sequence[str], Iterator[Section]], Table]


def unpack(table: Table | Part, columns: Sequence[str], folder: Path) -> Table:
    """Unpack rows to a spill file that is deleted with the returned table."""
    return table.open_plain(columns, _write_spill(table, columns, folder, this_scan().in_flight).sections())


def unpack_shared(table: Table, columns: Sequence[str], memory: int | None = None) -> Table:
    """Unpack rows to a spill file shared by all processes that read these columns; it is deleted with the last table.

    ``memory`` limits the bytes that are in flight from a store.

    Raises:
        WriteFailed: The disk is full, or cannot be written.
    """
    if (
        unpacked := table.unpacked(columns, partial(unpack_shared, memory=memory))
    ) is not None:  # a wrapper unpacks its inner table
        return unpacked
    columns = list(dict.fromkeys(columns))
    if table.units(columns) is None or (folder := table.spill) is None:
        return table
    if (spilled := find_spilled(table, columns)) is not None:
        return spilled
    with _unpacked_lock:
        recent = _unpacked.setdefault(table, Recent(1))
    key = f"{table.place} {columns!r}"
    try:
        plain = recent.get(key, lambda: _open_shared(table, columns, folder, key, memory))
    except WriteFailed:  # computed rows take more room than the columns they come from
        if (unpacked := table.unpacked(columns, partial(unpack_shared, memory=memory))) is None:
            raise
        return unpacked
    record_spilled(table, columns, plain)
    return plain


def use_spilled(table: Table, columns: Sequence[str]) -> Table:
    """Return the unpacked rows of a table if these columns are already spilled, else the table."""
    if table.units(columns) is None:
        return table
    unpacked = table.unpacked(columns, use_spilled)
    return next(found for found in (unpacked, find_spilled(table, columns), table) if found is not None)


_unpacked_lock = threading.Lock()
_unpacked: "weakref.WeakKeyDictionary[Table, Recent[Table]]" = weakref.WeakKeyDictionary()


def _open_shared(table: Table, columns: list[str], folder: Path, key: str, memory: int | None = None) -> Table:
    make = partial(_log_and_write, table, columns, folder, in_flight_of(memory))
    return table.open_plain(columns, shared(folder, key, make).sections())


def unpack_column(table: Table, name: str) -> Table:
    """Unpack one column of a table that has a spill folder, shared as by `unpack_shared`."""
    assert table.spill is not None  # noqa: S101 - checked by the caller
    return _open_shared(table, [name], table.spill, f"{table.place} {[name]!r}")


def _log_and_write(table: Table, columns: Sequence[str], folder: Path, in_flight: int) -> SpillFile:
    units = table.units(columns)
    total = units.total if units else 0
    check_room(folder, total)
    log.log(
        logging.WARNING if total >= WARN_BYTES else logging.INFO,
        "unpacking %r to %s, once (%s); `corgipile convert` makes a file that is read in place",
        table, folder, format_bytes(total),
    )  # fmt: skip
    return _write_spill(table, columns, folder, in_flight)


def _write_spill(table: Table | Part, columns: Sequence[str], folder: Path, in_flight: int) -> SpillFile:
    with frugal(), SpillWriter(folder, in_flight=in_flight) as out:
        table.write_plain(columns, out)
        return out.finish()


def group_columns(costs: dict[str, int]) -> list[list[str]]:
    """Group columns that are decoded together, by the bytes that each takes.

    Example:
        >>> group_columns({"a": 4 << 20, "b": 1 << 20, "c": 3 << 20})
        [['a', 'b'], ['c']]
    """
    groups: list[list[str]] = []
    room = 0
    for name, cost in costs.items():
        if not groups or cost > room:
            groups.append([])
            room = GROUP_BYTES
        groups[-1].append(name)
        room -= cost
    return groups


def write_plain(out: SpillWriter, schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int) -> None:
    """Write record batches as a section, an Arrow IPC file.

    Raises:
        CorruptFile: The number of rows differs from ``rows``.
    """
    check_types(schema, "a spill file", MAX_IPC_DEPTH)
    done, first = 0, dict[str, pa.Array]()
    plain = pa.schema([field.with_type(_plain_type(field.type)) for field in schema], metadata=schema.metadata)
    names, kinds, stream = plain.names, plain.types, pa.BufferedOutputStream(pa.PythonFile(out, "w"), WRITE_BYTES)
    with out.section():
        try:
            with pa.ipc.new_file(stream, plain) as file:
                for batch in batches:
                    columns = [*map(as_type, batch.columns, kinds)]
                    columns = [_recode(column, name, first) for name, column in zip(names, columns, strict=True)]
                    file.write_batch(pa.RecordBatch.from_arrays(columns, schema=plain))
                    done += batch.num_rows
        finally:
            stream.detach()  # its end would close the spill file
    if done != rows:
        raise CorruptFile(f"{done} rows were decoded, but the file states {rows}")


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in a spill file: no views, and no dictionaries unless they are ordered."""
    return viewless(kind.value_type if pa.types.is_dictionary(kind) and not kind.ordered else kind)


def _recode(column: pa.Array, name: str, first: dict[str, pa.Array]) -> pa.Array:
    """Recode ordered categories by the first dictionary, since a file has one.

    Raises:
        BadSchema: A category is missing in the first dictionary, so its rank is unknown.
    """
    if not pa.types.is_dictionary(column.type):
        return column
    known = first.setdefault(name, column.dictionary)
    if column.dictionary.equals(known):
        return column
    places = pc.index_in(column.dictionary, value_set=known)
    if places.null_count > column.dictionary.null_count:
        raise BadSchema(f"column {name!r} must have the same ordered categories in all parts; convert them to text")
    indices = places.take(column.indices).cast(column.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, known, None, column.type.ordered)


class SpilledTable(Checked):
    """Serves rows from sections of a spill file, each with some of the columns.

    Args:
        source: The encoded table.
        columns: The unpacked columns.
        parts: One table for each section.
    """

    def __init__(self, source: Table, columns: Sequence[str], parts: Sequence[Table]) -> None:
        self.schema: pa.Schema = pick(source.schema, columns)
        self.fingerprint = source.fingerprint
        self._parts, self._rows = list(parts), len(parts[0])
        self._part_of = {name: part for part, table in enumerate(parts) for name in table.schema.names}
        self._name = f"{source!r}, unpacked"

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return self._name

    @property
    def nbytes(self) -> int:
        """Return the bytes of all rows."""
        return sum(part.nbytes for part in self._parts)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return self._assemble(names, lambda part, some: part.read(start, stop, some))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return self._assemble(names, lambda part, some: part.take(rows, some))

    def _assemble(self, names: list[str], read: Any) -> pa.RecordBatch:
        arrays_of: dict[str, pa.Array] = {}
        for part, some in self._by_part(names):
            arrays_of |= zip(some, read(part, some).columns, strict=True)
        schema = pick(self.schema, names)
        arrays = [restore_type(arrays_of[field.name], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _by_part(self, names: list[str]) -> list[tuple[Table, list[str]]]:
        names_of: dict[int, list[str]] = {}
        for name in dict.fromkeys(names):
            names_of.setdefault(self._part_of[name], []).append(name)
        return [(self._parts[number], some) for number, some in sorted(names_of.items())]

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of rows from their offsets; None if the rows themselves must be read."""
        sizes_of = [self._parts[self._part_of[name]].row_sizes(rows, [name]) for name in columns]
        known = [sizes for sizes in sizes_of if sizes is not None]
        return sum(known, np.zeros(len(rows), np.int64)) if len(known) == len(sizes_of) else None

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a binary column as separate objects."""
        return self._parts[self._part_of[column]].take_bytes(rows, column)

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return the layout of fixed-width columns."""
        names = check_columns(self.schema, columns)
        layouts = dict[str, ColumnLayout]()
        for part, some in self._by_part(names):
            one = part.layout(some)
            if one is None or any(self.schema.field(name).type != part.schema.field(name).type for name in some):
                return None
            path = one.paths
            layouts |= one.columns
        return Layout(path, {name: layouts[name] for name in names}) if names else None

    def location(self, columns: Sequence[str]) -> Location | None:
        """Return the location of columns, which lie in several sections."""
        names = check_columns(self.schema, columns)
        layouts, paths = dict[str, ColumnLayout](), dict[str, int]()
        for part, some in self._by_part(names):
            one = part.location(some)
            if one is None or any(self.schema.field(name).type != part.schema.field(name).type for name in some):
                return None
            first = paths.setdefault(one.layout.paths[0], len(paths))
            paths |= {path: first + i for i, path in enumerate(one.layout.paths)}
            layouts |= {name: column.numbered(first) for name, column in one.layout.columns.items()}
        return Location(Layout(tuple(paths), {name: layouts[name] for name in names})) if names else None


class Unpacked(Wrapper):
    """An encoded table, unpacked and cut evenly; blocks of the encoded table, which states may have, are cut as there.

    Args:
        encoded: The encoded table.
        columns: The columns to unpack.
        memory: Budget that limits the bytes in flight from a store.
    """

    def __init__(self, encoded: Table, columns: Sequence[str], memory: int | None = None) -> None:
        super().__init__(unpack_shared(encoded, columns, memory))
        self._encoded, self._columns = encoded, columns

    def __reduce__(self) -> tuple[type["Unpacked"], tuple[Table, Sequence[str]]]:
        return Unpacked, (self._encoded, self._columns)

    def cuts(self, rows: int) -> IntArray:
        """Return the cuts of the encoded table."""
        return self._encoded.cuts(rows)

    def run_cuts(self, columns: Sequence[str], run_bytes: int) -> IntArray:
        """Return the cuts of the encoded table at runs of pages."""
        return self._encoded.run_cuts(columns, run_bytes)

    def is_unencoded(self, columns: Sequence[str]) -> bool:
        """Return True."""
        return True


def restore_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert values back to a dictionary or a view type."""
    if array.type == kind:
        return array
    return (array.dictionary_encode() if pa.types.is_dictionary(kind) else array).cast(kind)
