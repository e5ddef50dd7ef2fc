"""Tables whose rows are encoded in large units: what a unit takes, and how rows are laid out plain in a spill file."""

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.arrow_memory import frugal
from corgipile.errors import BadSchema, CorruptFile
from corgipile.nesting import MAX_IPC_DEPTH, check_types
from corgipile.sizes import format_bytes
from corgipile.tables.checked import Checked
from corgipile.tables.io.pieces import Recent, pick
from corgipile.tables.io.remote import is_remote
from corgipile.tables.io.shared_spill import shared
from corgipile.tables.io.spill import Section, SpillFile, SpillWriter, check_room
from corgipile.tables.location import Location, varlen_location
from corgipile.tables.materialized import brought, note
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Single, Table, check_columns, row_sizes
from corgipile.tables.values import as_type, viewless

__all__ = [
    "SMALL",
    "Encoded",
    "Part",
    "SpilledTable",
    "Units",
    "grouped",
    "is_encoded",
    "joined_spill",
    "joined_units",
    "nearest",
    "typed",
    "units_of",
    "unpack",
    "unpack_column",
    "unpack_shared",
    "write_plain",
]

SMALL = 2 << 20  # decoded bytes of a unit that is no burden to any budget
TOGETHER = 6 << 20  # bytes that columns may take while they are decoded at the same time
TOLD = 64 << 20  # bytes unpacked, from which on it is said aloud
log = logging.getLogger("corgipile")


class Units(NamedTuple):
    """What must be decoded together: row groups, or compressed record batches.

    Attributes:
        rows: Rows of the largest.
        nbytes: Bytes of the largest, decoded, in the columns asked for.
        total: Bytes of all rows, decoded.
        pieces: How many there are.
        each: Bytes of a row, on average.
        library: Bytes that a library takes in each process that decodes, whatever the units.
        dictionary: Minimum bytes of decoding: a dictionary of values, or a chunk and its copies.
    """

    rows: int
    nbytes: int
    total: int
    pieces: int
    each: float
    library: int = 0
    dictionary: int = 0


class Unpacking(Protocol):
    """Encoded rows: of a table, or of a part of it."""

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write all rows, decoded little by little, as sections of a spill file."""

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Return the table of the sections that `write_plain` wrote."""


class Part(NamedTuple):
    """A part of a table, as `Unpacking`."""

    write_plain: Callable[[Sequence[str], SpillWriter], None]
    open_plain: Callable[[Sequence[str], Iterator[Section]], Table]


class Encoded(Table, Unpacking, Protocol):
    """A table whose rows have no place of their own."""

    @property
    def place(self) -> str:
        """Return what tells the files, as they are now, from all others of this machine."""

    @property
    def spill(self) -> Path | None:
        """Return the folder for spill files, None if there shall be none."""

    def units(self, columns: Sequence[str]) -> Units | None:
        """Say what is decoded together; None where rows of these columns can be read one by one."""


def is_encoded(table: Table, columns: Sequence[str]) -> TypeGuard[Encoded]:
    """Say whether rows of these columns must be decoded in units."""
    units = getattr(table, "units", None)
    return units is not None and units(columns) is not None


def joined_units(parts: Iterable[Units | None]) -> Units | None:
    """Return the units of several tables together; None where none of them has any."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    total = sum(part.total for part in found)
    return Units(
        max(part.rows for part in found),
        max(part.nbytes for part in found),
        total,
        sum(part.pieces for part in found),
        total / max(1.0, sum(part.total / part.each for part in found if part.each)),
        max(part.library for part in found),
        max(part.dictionary for part in found),
    )


def joined_spill(tables: Iterable[Table]) -> Path | None:
    """Return the folder for spill files of several tables together, None if one of them must have none.

    Raises:
        AttributeError: None of them says.
    """
    folders: list[Path | None] = [table.spill for table in tables if hasattr(table, "spill")]
    if not folders:
        raise AttributeError("no table has a folder for spill files")
    return None if None in folders else folders[0]


def units_of(rows: IntArray, sizes: npt.NDArray[Any]) -> Units | None:
    """Return the units of which these are the rows and the bytes."""
    if not rows.any():
        return None
    total = int(sizes.sum())
    return Units(int(rows.max()), int(sizes.max()), total, len(rows), total / int(rows.sum()))


def unpack(table: Unpacking, columns: Sequence[str], folder: Path) -> Table:
    """Return the same rows, laid out plain in a spill file that goes with the table returned."""
    return table.open_plain(columns, _written(table, columns, folder).sections())


def unpack_shared(table: Table, columns: Sequence[str]) -> Table:
    """Do the same by a spill file shared with all processes that read these columns; it goes with the tables, too.

    Raises:
        WriteFailed: The disk is full, or cannot be written.
    """
    inside = getattr(table, "unpacked", None)
    if inside is not None:  # it wraps another, whose rows these are
        return cast("Table", inside(columns, unpack_shared))
    columns = list(dict.fromkeys(columns))
    if not is_encoded(table, columns) or (folder := table.spill) is None:
        return table
    if (found := brought(table, columns)) is not None:
        return found
    with _keeping:
        kept = _kept.setdefault(table, Recent(1))
    key = f"{table.place} {columns!r}"
    made = kept.get(key, lambda: _shared(table, columns, folder, key))
    if is_remote(table):
        note(table, columns, made)
    return made


def nearest(table: Table, columns: Sequence[str]) -> Table:
    """Return the same rows, of a table in a store from the spill file where somebody has unpacked these columns."""
    inside = getattr(table, "unpacked", None)
    if inside is not None:
        return cast("Table", inside(columns, nearest))
    return brought(table, columns) or table


_keeping = threading.Lock()
_kept: "weakref.WeakKeyDictionary[Table, Recent[Table]]" = weakref.WeakKeyDictionary()


def _shared(table: Encoded, columns: list[str], folder: Path, key: str) -> Table:
    return table.open_plain(columns, shared(folder, key, lambda: _said(table, columns, folder)).sections())


def unpack_column(table: Encoded, name: str) -> Table:
    """Return one column laid out plain in a spill file, shared as by `unpack_shared`, of a table that has a folder."""
    assert table.spill is not None  # noqa: S101 - asked before
    return _shared(table, [name], table.spill, f"{table.place} {[name]!r}")


def _said(table: Encoded, columns: Sequence[str], folder: Path) -> SpillFile:
    units = table.units(columns)
    total = units.total if units else 0
    check_room(folder, total)
    log.log(
        logging.WARNING if total >= TOLD else logging.INFO,
        "unpacking %r to %s, once (%s); `corgipile convert` makes a file that is read in place",
        table, folder, format_bytes(total),
    )  # fmt: skip
    return _written(table, columns, folder)


def _written(table: Unpacking, columns: Sequence[str], folder: Path) -> SpillFile:
    with frugal(), SpillWriter(folder) as out:
        table.write_plain(columns, out)
        return out.finish()


def grouped(costs: dict[str, int]) -> list[list[str]]:
    """Group columns that are decoded at the same time, by what each takes meanwhile.

    Example:
        >>> grouped({"a": 4 << 20, "b": 1 << 20, "c": 3 << 20})
        [['a', 'b'], ['c']]
    """
    groups: list[list[str]] = []
    room = 0
    for name, cost in costs.items():
        if not groups or cost > room:
            groups.append([])
            room = TOGETHER
        groups[-1].append(name)
        room -= cost
    return groups


def write_plain(out: SpillWriter, schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int) -> None:
    """Write record batches as a section, an Arrow IPC file.

    Raises:
        CorruptFile: They have not as many rows as they should.
    """
    check_types(schema, "a spill file", MAX_IPC_DEPTH)
    done, first = 0, dict[str, pa.Array]()
    plain = pa.schema([field.with_type(_plain_type(field.type)) for field in schema], metadata=schema.metadata)
    with out.section(), pa.ipc.new_file(out, plain) as file:
        for batch in batches:
            columns = [as_type(column, kind) for column, kind in zip(batch.columns, plain.types, strict=True)]
            columns = [_as_first(column, name, first) for name, column in zip(plain.names, columns, strict=True)]
            file.write_batch(pa.RecordBatch.from_arrays(columns, schema=plain))
            done += batch.num_rows
    if done != rows:
        raise CorruptFile(f"{done} rows were decoded; {rows} are stated")


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column has in a spill file: values where a dictionary has no order, and no views."""
    return viewless(kind.value_type if pa.types.is_dictionary(kind) and not kind.ordered else kind)


def _as_first(column: pa.Array, name: str, first: dict[str, pa.Array]) -> pa.Array:
    """Return ordered categories as numbers of the dictionary that came first, since a file has one.

    Raises:
        BadSchema: There is a category that this has not, so that its place among them is not known.
    """
    if not pa.types.is_dictionary(column.type):
        return column
    known = first.setdefault(name, column.dictionary)
    if column.dictionary.equals(known):
        return column
    places = pc.index_in(column.dictionary, value_set=known)
    if places.null_count > column.dictionary.null_count:
        raise BadSchema(f"column {name!r} has ordered categories that differ from part to part; make them plain text")
    indices = places.take(column.indices).cast(column.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, known, None, column.type.ordered)


class SpilledTable(Checked):
    """Rows that lie in sections of a spill file, some columns in each.

    Args:
        source: The table they are rows of.
        columns: The columns there are.
        parts: Tables of some of the columns each.
    """

    def __init__(self, source: Table, columns: Sequence[str], parts: Sequence[Table]) -> None:
        self.schema: pa.Schema = pick(source.schema, columns)
        self.fingerprint = source.fingerprint
        self._parts, self._rows = list(parts), len(parts[0])
        self._of = {name: part for part, table in enumerate(parts) for name in table.schema.names}
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
        return self._joined(names, lambda part, some: part.read(start, stop, some))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return self._joined(names, lambda part, some: part.take(rows, some))

    def _joined(self, names: list[str], read: Any) -> pa.RecordBatch:
        found: dict[str, pa.Array] = {}
        for part, some in self._by_part(names):
            found |= zip(some, read(part, some).columns, strict=True)
        schema = pick(self.schema, names)
        arrays = [typed(found[field.name], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _by_part(self, names: list[str]) -> list[tuple[Table, list[str]]]:
        found: dict[int, list[str]] = {}
        for name in dict.fromkeys(names):
            found.setdefault(self._of[name], []).append(name)
        return [(self._parts[number], some) for number, some in sorted(found.items())]

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of rows, of which only the offsets are read; None where they must be read for it."""
        found = [row_sizes(self._parts[self._of[name]], rows, [name]) for name in columns]
        known = [sizes for sizes in found if sizes is not None]
        return sum(known, np.zeros(len(rows), np.int64)) if len(known) == len(found) else None

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a binary column, each into an object of its own."""
        return cast("Single", self._parts[self._of[column]]).take_bytes(rows, column)

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Say where fixed-width columns lie."""
        names = check_columns(self.schema, columns)
        found = dict[str, ColumnLayout]()
        for part, some in self._by_part(names):
            one = part.layout(some)
            if one is None or any(self.schema.field(name).type != part.schema.field(name).type for name in some):
                return None
            path = one.paths
            found |= one.columns
        return Layout(path, {name: found[name] for name in names}) if names else None

    def varlen_location(self, columns: Sequence[str]) -> Location | None:
        """Say where columns lie, of which some are of varying length."""
        names = check_columns(self.schema, columns)
        found, paths = dict[str, ColumnLayout](), list[str]()
        for name in names:
            part = self._parts[self._of[name]]
            one = varlen_location(part, [name])
            if one is None or self.schema.field(name).type != part.schema.field(name).type:
                return None
            new = [path for path in one.layout.paths if path not in paths]
            found[name] = one.layout.columns[name].numbered(paths.index(one.layout.paths[0]) if not new else len(paths))
            paths += new
        return Location(Layout(tuple(paths), found)) if names else None


def typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Make dictionaries, or views, of values again."""
    if array.type == kind:
        return array
    return (array.dictionary_encode() if pa.types.is_dictionary(kind) else array).cast(kind)
