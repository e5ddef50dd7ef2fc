"""Tables whose columns are read through encoders."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.arrow_memory import frugal
from corgipile.features.choose import item_of, require
from corgipile.features.encoders import Encoder
from corgipile.tables import MemoryTable
from corgipile.tables.encoded import SpilledTable, write_plain
from corgipile.tables.fingerprints import place_of
from corgipile.tables.formats.arrow.file import ArrowFile
from corgipile.tables.io.files import digest
from corgipile.tables.io.pieces import pick
from corgipile.tables.io.shared_spill import shared
from corgipile.tables.io.spill import SpillFile, SpillWriter, check_room
from corgipile.tables.location import Location
from corgipile.tables.row_mask import RowMask
from corgipile.tables.scan import scan
from corgipile.tables.selection import MaskTable
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table, check_columns, even_cuts
from corgipile.tables.wrapper import Wrapper

__all__ = ["EncodedColumns", "encode_once"]

STEP = 1 << 17  # rows encoded at a time
MIN_SPILL_ROW = 16  # bytes: encoded rows up to this, or up to the size of the stored row, are spilled
MAX_GAPS = 32  # a mask that picks fewer than one row in this many gets a compact copy


class EncodedColumns(Wrapper):
    """A table that reads some columns through encoders; columns that stay plain numbers are read in place.

    ``changed`` are the encoders that change something, ``kept`` their columns if encoded once, and ``codes`` the
    encoded columns known for all rows.

    Example:
        >>> from corgipile.features.encoders import Number
        >>> from corgipile.tables import open
        >>> EncodedColumns(open(pa.table({"x": [1.5, None]})), [Number("x", 0.0)]).take([1, 0]).to_pydict()
        {'x': [0.0, 1.5]}
    """

    def __init__(self, table: Table, encoders: Sequence[Encoder]) -> None:
        super().__init__(table)
        require(table.schema, [encoder.column for encoder in encoders], repr(table))
        self.changed: dict[str, Encoder] = {}
        self.kept: Table | None = None
        self.codes: dict[str, npt.NDArray[Any]] = {}
        fields = list(table.schema)
        for encoder in encoders:
            at = table.schema.get_field_index(encoder.column)
            kind = table.schema.field(at).type
            if encoder.type_of(kind) != kind or encoder.always:
                self.changed[encoder.column] = encoder
                fields[at] = pa.field(encoder.column, encoder.type_of(kind))
        self.schema = pa.schema(fields, table.schema.metadata)

    def __reduce__(self) -> tuple[Any, ...]:
        restore = EncodedColumns if self.kept is None else _encode_again
        return restore, (self.table, list(self.changed.values()))

    @property
    def fingerprint(self) -> str:
        """Return the identity of the table and its encoding."""
        state = json.dumps([encoder.state() for encoder in self.changed.values()], default=str)
        return digest(self.table.fingerprint, state)

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that are read from the table."""
        return list(columns) if self.kept is None else list(filter(self.keeps, columns))

    def keeps(self, column: str) -> bool:
        """Return whether a column is not encoded."""
        return column not in self.changed

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return where columns lie; None if a read must encode one."""
        changed, stored = self._divide(columns)
        if self.kept is None or not changed:
            return super().layout(columns)
        found = [self.kept.layout(changed), *([self.table.layout(stored)] if stored else [])]
        return None if None in found else _merge([layout for layout in found if layout is not None], columns)

    def location(self, columns: Sequence[str]) -> Location | None:
        """Return where columns lie for the kernel; those encoded once lie like all rows under a mask."""
        changed, stored = self._divide(columns)
        if self.kept is None or not changed:
            return super().location(columns)
        found = [self.kept.location(changed), *([self.table.location(stored)] if stored else [])]
        known = [one for one in found if one is not None]
        if len(known) < len(found) or any(one.bits is not known[0].bits for one in known):
            return None
        kept = tuple(some for one in known for some in one.kept)
        return Location(_merge([one.layout for one in known], columns), known[0].bits, kept)

    def _divide(self, columns: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the encoded columns and the others."""
        names = check_columns(self.schema, columns)
        return [name for name in names if name in self.changed], list(filter(self.keeps, names))

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes that the table and the encoders hold for columns, independent of rows."""
        encoder_bytes = sum(encoder.nbytes for name, encoder in self.changed.items() if name in columns)
        return encoder_bytes + super().shared_bytes(columns)

    def is_unencoded(self, columns: Sequence[str]) -> bool:
        """Return whether all columns are stored outside the table, so that its units do not matter."""
        return self.kept is not None and not self.stored(columns)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return self._join(names, lambda table, some: table.read(start, stop, some), range(start, stop))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return self._join(names, lambda table, some: table.take(rows, some), rows)

    def _join(self, names: list[str], read: Any, rows: range | IntArray) -> pa.RecordBatch:
        stored = self.stored(names)
        found: dict[str, pa.Array] = {}
        if self.kept is not None and (some := [name for name in names if name in self.changed]):
            found |= zip(some, read(self.kept, some).columns, strict=True)
        if stored or not found:
            found |= zip(stored, read(self.table, stored).columns, strict=True)
        return self._encode(found, names, lambda at: f"row {rows[at]}", stored)

    def _encode(
        self, found: dict[str, pa.Array], names: list[str], row: Callable[[int], str], raw: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return a batch of columns; those in ``raw`` (None: all) are still stored values."""
        for name in names if raw is None else raw:
            if name in self.changed:
                found[name] = self.changed[name].encode(found[name], row)
        return pa.RecordBatch.from_arrays([found[name] for name in names], schema=pick(self.schema, names))

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows, encoded, in batches."""
        raw = [name for name in columns if name not in self.codes]
        for start, rows, stored in self._parts(raw):
            found = dict(zip(raw, stored, strict=True))
            for name in set(columns).difference(raw):
                found[name] = pa.array(self.codes[name][start : start + rows]).cast(self.schema.field(name).type)
            yield self._encode(found, list(columns), lambda at, first=start: f"row {first + at}", raw)  # type: ignore[misc]

    def _parts(self, columns: list[str]) -> Iterator[tuple[int, int, list[pa.Array]]]:
        """Yield the first row, the number of rows and the columns of each part; without columns nothing is read."""
        if columns:
            yield from ((start, batch.num_rows, batch.columns) for start, batch in scan(self.table, columns))
            return
        for start, stop in pairwise(even_cuts(len(self.table), STEP).tolist()):
            yield start, stop - start, []


def _merge(layouts: Sequence[Layout], columns: Sequence[str]) -> Layout:
    """Merge layouts of different columns of the same rows."""
    paths: list[str] = []
    found: dict[str, ColumnLayout] = {}
    for layout in layouts:
        found |= {name: encoder.numbered(len(paths)) for name, encoder in layout.columns.items()}
        paths += layout.paths
    known = all(layout.identities for layout in layouts)
    identities = tuple(encoder for layout in layouts for encoder in layout.identities) if known else ()
    return Layout(tuple(paths), {name: found[name] for name in columns}, identities)


def encode_once(table: EncodedColumns) -> Table:
    """Return the table with its encoded columns stored once, in memory or in a spill file.

    Reading is then as fast as if they had been stored as numbers. If they are too large, or spill files are off, each
    read encodes its rows.

    Example:
        >>> from corgipile.features.encoders import Classes
        >>> from corgipile.tables import open
        >>> rows = EncodedColumns(open(pa.table({"y": ["a", "b"]})), [Classes("y", ("a", "b"))])
        >>> encode_once(rows).read(0, 2).to_pydict()
        {'y': [0, 1]}
    """
    names = list(table.changed)
    width = sum(_width_of(table.schema.field(name).type) for name in names)
    if not len(table) or not 0 < width <= max(MIN_SPILL_ROW, table.nbytes / len(table)):
        return table
    if isinstance(table.table, MemoryTable):
        return table.table.replaced(pa.Table.from_batches(table.batches(names), pick(table.schema, names)))
    folder = table.spill
    if folder is None:
        return table
    source: Table = EncodedColumns(table.table, list(table.changed.values()))
    bits = _bits_of(table.table)
    key = f"{place_of(table)} {names!r}{'' if bits is None else ' in place'}"
    spill = shared(folder, key, lambda: _write(table, names, folder, int(width), bits))
    kept = SpilledTable(source, names, [ArrowFile(next(spill.sections()))])
    table.kept = kept if bits is None else MaskTable(kept, bits)
    return table


def _bits_of(table: Table) -> RowMask | None:
    """Return the row mask of a table, unless it picks too few rows; None without one."""
    return table.bits if isinstance(table, MaskTable) and len(table) * MAX_GAPS >= len(table.table) else None


def _encode_again(table: Table, encoders: Sequence[Encoder]) -> Table:
    return encode_once(EncodedColumns(table, encoders))


def _width_of(kind: pa.DataType) -> float:
    if pa.types.is_fixed_size_list(kind):
        return float(kind.list_size) * _width_of(kind.value_type)
    return math.inf if item_of(kind) is not None else float(kind.bit_width) / 8


def _write(table: EncodedColumns, names: Sequence[str], folder: Path, width: int, bits: RowMask | None) -> SpillFile:
    batches, rows = table.batches(names), len(table if bits is None else table.table.table)  # type: ignore[attr-defined]
    check_room(folder, width * rows)
    with frugal(), SpillWriter(folder) as out:
        write_plain(out, pick(table.schema, names), batches if bits is None else _spread_out(batches, bits, rows), rows)
        return out.finish()


def _spread_out(batches: Iterable[pa.RecordBatch], bits: RowMask, rows: int) -> Iterator[pa.RecordBatch]:
    """Move the rows that a mask picks to their places in the table; gaps repeat the next row."""
    start = done = 0
    for batch in batches:
        picked = bits.within(done, done + batch.num_rows)
        done += batch.num_rows
        stop = rows if done == len(bits) else int(picked[-1]) + 1
        for at in range(start, stop, STEP):
            follow = np.searchsorted(picked, np.arange(at, min(at + STEP, stop)))
            yield batch.take(pa.array(np.minimum(follow, len(picked) - 1)))
        start = stop
