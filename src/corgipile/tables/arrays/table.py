"""Table of stored arrays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from corgipile.arrow_memory import give_back
from corgipile.sizes import format_bytes
from corgipile.tables.arrays.columns import Categorical, Column, Fetch, Numbers
from corgipile.tables.arrays.stored import check_chunks, decoding_bytes, row_width
from corgipile.tables.checked import Checked
from corgipile.tables.concat import DIMS_KEY, FEATURES_KEY
from corgipile.tables.encoded import SpilledTable, Units, group_columns, units_of, unpack_column, write_plain
from corgipile.tables.formats.arrow.file import ArrowFile
from corgipile.tables.io.files import decoding, describe, digest
from corgipile.tables.io.pieces import Recent, check_names, merge_cuts, pick, runs_of, take_once
from corgipile.tables.io.spill import Section, Spill, SpillWriter, spill_folder
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table, check_columns, even_cuts

__all__ = ["ArraysTable", "Origin"]

SMALL_CHUNK = 256 << 10  # bytes of a chunk that may be decoded for a few rows
COPIES = 3  # of a value of varying length while it is read
READ_BYTES = 1 << 20  # bytes decoded at a time for a spill file


class Origin(NamedTuple):
    """The source of a table.

    Attributes:
        kind: Name of the kind of table.
        path: The file or folder.
        identity: Content digest for the fingerprint.
        place: Returns an id of the current state that is unique on this machine.
        reopen: Opens the table again, given the arguments.
        arguments: The arguments of ``reopen``.
    """

    kind: str
    path: str
    identity: str
    place: Callable[[], str]
    reopen: Callable[..., Table]
    arguments: tuple[Any, ...]


class ArraysTable(Checked):
    """Reads stored arrays of equal length as columns.

    Args:
        origin: Their source.
        columns: The columns by name, at least one.
        rows: Their length.
        features: The default feature column, or prefix of a sparse pair of columns; None for all numbers.
        dims: Width of sparse features.
        places: Identifies the meaning of feature positions, such as a digest of the feature names.
        spill: Folder for spill files; see `corgipile.tables.io.spill.spill_folder`.
    """

    columnar = True  # a column is read without the others

    def __init__(
        self,
        origin: Origin,
        columns: Mapping[str, Column],
        rows: int,
        *,
        features: str | None = None,
        dims: int | None = None,
        places: str | None = None,
        spill: Spill = None,
    ) -> None:
        self.places = places
        self.origin, self._columns, self._rows, self.spill = origin, dict(columns), rows, spill_folder(spill)
        values = {FEATURES_KEY: features, DIMS_KEY: None if dims is None else str(dims)}
        metadata = {key: value.encode() for key, value in values.items() if value is not None}
        fields = [(name, column.kind) for name, column in columns.items()]
        self.schema: pa.Schema = pa.schema(fields, metadata=metadata or None)
        check_chunks([one for column in columns.values() for one in column.stored], origin.path)
        check_names(self.schema, origin.path)
        self._unpacked: Recent[Table] = Recent(len(fields))

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[Any, ...]]:
        return self.origin.reopen, self.origin.arguments

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"{self.origin.kind}({self.origin.path!r})"

    @property
    def nbytes(self) -> int:
        """Return the decoded bytes of all rows."""
        return max(1, int(self._width(self._columns) * self._rows)) if self._rows else 0

    @property
    def fingerprint(self) -> str:
        """Return a digest of file, schema and rows."""
        return digest(self.origin.identity, describe(self.schema), str(len(self)))

    @property
    def place(self) -> str:
        """Return an id of the file's current state that is unique on this machine."""
        return self.origin.place()

    @property
    def advice(self) -> str | None:
        """Return advice about the cost of decoding chunks; None if there are none."""
        units = self.units(self.schema.names)
        return (
            None
            if units is None
            else (
                f"chunks of up to {units.rows} rows ({format_bytes(units.nbytes)}) are decompressed at every read; "
                "`corgipile convert` writes a file that is read in place, many times faster"
            )
        )

    def cuts(self, rows: int) -> IntArray:
        """Cut at the chunks of the widest column, merged to about ``rows`` rows; every ``rows`` rows without chunks."""
        edges = self._widest(self._columns).edges()
        return even_cuts(len(self), rows) if edges is None else merge_cuts(edges, rows)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return self._batch(np.array([start]), np.array([stop]), names)

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_once(rows, lambda wanted: self._batch(*runs_of(wanted, 0), names))

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of each row; None if a column is chunked or its sizes are unknown."""
        found = [self._columns[name] for name in check_columns(self.schema, columns)]
        if any(one.chunk for column in found for one in column.stored):
            return None
        sizes = np.zeros(len(rows), np.int64)
        for column in found:
            some = column.sizes(rows)
            if some is None:
                return None
            sizes += some
        return sizes

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return the positions of numeric columns stored in place; None for others."""
        found = {name: self._columns[name] for name in check_columns(self.schema, columns)}
        places: dict[str, ColumnLayout] = {}
        files: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        for name, column in found.items():
            one = column.in_place() if isinstance(column, Numbers) else None
            if one is None:
                return None
            files.setdefault(one.file.path, one.file)
            number = numbers.setdefault(one.file.path, len(numbers))
            which = np.full(len(one.offsets), number, np.int32)
            places[name] = ColumnLayout(
                one.dtype, tuple(one.shape[1:]), one.starts, which, one.offsets + getattr(one.file, "base", 0)
            )
        return Layout(tuple(files), places, tuple(file.which for file in files.values())) if found else None

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the size of the widest column's chunks; None if it is not chunked."""
        found = {name: self._columns[name] for name in columns}
        edges = self._widest(found).edges() if found and self._rows else None
        if edges is None or (units := units_of(np.diff(edges), np.diff(edges) * self._width(found))) is None:
            return None
        chunks = max(sum(map(decoding_bytes, column.stored)) for column in found.values())
        return units._replace(dictionary=max(chunks, COPIES * self.longest_row(columns)))

    def longest_row(self, columns: Sequence[str]) -> int:
        """Return the bytes of the longest sampled value of varying length."""
        return max((self._columns[name].longest for name in columns if name in self._columns), default=0)

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes of the categories of these columns."""
        found = (self._columns[name] for name in columns)
        return sum(column.categories.nbytes for column in found if isinstance(column, Categorical))

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write all rows, decoded step by step, as sections of a spill file."""
        for names in self._column_groups(columns):
            write_plain(out, pick(self.schema, names), self._parts(names), len(self))

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Return the table of the sections that `write_plain` wrote."""
        return SpilledTable(self, columns, [ArrowFile(next(sections)) for _ in self._column_groups(columns)])

    def _width(self, columns: Mapping[str, Column]) -> float:
        return max(1.0, sum(column.width for column in columns.values()))

    def _widest(self, columns: Mapping[str, Column]) -> Column:
        """Return the widest column, whose chunks bound blocks; a chunked one if those are a quarter of a row."""
        packed = [column for column in columns.values() if any(one.chunk for one in column.stored)]
        some = packed if 4 * sum(column.width for column in packed) >= self._width(columns) else columns.values()
        return max(some, key=lambda column: column.width)

    def _column_groups(self, columns: Sequence[str]) -> list[list[str]]:
        """Group the columns that are decoded together."""
        return group_columns({name: 2 * self._chunk_bytes(self._columns[name]) + READ_BYTES for name in columns})

    def _chunk_bytes(self, column: Column) -> int:
        return sum(one.chunk * row_width(one) for one in column.stored)

    def _parts(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, about 1 MB at a time."""
        found = {name: self._columns[name] for name in names}
        step = max(1, int(READ_BYTES / self._width(found)))
        edges = self._widest(found).edges()
        for start, stop in pairwise(
            (even_cuts(len(self), step) if edges is None else merge_cuts(edges, step)).tolist()
        ):
            yield self._decode(np.array([start]), np.array([stop]), names)
            give_back()

    def _spilled_columns(self, names: list[str]) -> list[str]:
        """Return the narrow columns whose chunks exceed those of the widest; they are read from a spill file."""
        if self.spill is None or len(names) < 2:
            return []
        most = max(SMALL_CHUNK, self._chunk_bytes(self._widest({name: self._columns[name] for name in names})))
        return [name for name in names if self._chunk_bytes(self._columns[name]) > most]

    def _batch(self, starts: IntArray, stops: IntArray, names: list[str]) -> pa.RecordBatch:
        if not (spilled := self._spilled_columns(list(dict.fromkeys(names)))):
            return self._decode(starts, stops, names)
        direct = [name for name in names if name not in set(spilled)]
        found = dict(zip(direct, self._decode(starts, stops, direct).columns, strict=True))
        rows = np.concatenate([np.arange(start, stop) for start, stop in zip(starts, stops, strict=True)])
        for name in spilled:
            plain = self._unpacked.get(name, lambda name=name: unpack_column(self, name))  # type: ignore[misc]
            taken = plain.read(int(starts[0]), int(stops[0]), [name]) if len(starts) == 1 else plain.take(rows, [name])
            found[name] = taken.column(0)
        return pa.RecordBatch.from_arrays([found[name] for name in names], schema=pick(self.schema, names))

    def _decode(self, starts: IntArray, stops: IntArray, names: Sequence[str]) -> pa.RecordBatch:
        fetch = Fetch(starts, stops)
        with decoding(self.origin.path):
            arrays = [self._columns[name].array(fetch) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))
