"""A table whose columns are read as numbers."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.arrow_memory import frugal
from corgipile.features.choose import item_of, require
from corgipile.features.encoders import Encoder
from corgipile.tables import MemoryTable
from corgipile.tables.arrow.file import ArrowFile
from corgipile.tables.encoded import SpilledTable, write_plain
from corgipile.tables.fingerprints import place_of
from corgipile.tables.io.files import digest
from corgipile.tables.io.pieces import pick
from corgipile.tables.io.shared_spill import shared
from corgipile.tables.io.spill import SpillFile, SpillWriter, check_room, spill_folder
from corgipile.tables.location import Location, location, varlen_location
from corgipile.tables.row_mask import RowMask
from corgipile.tables.scan import scan
from corgipile.tables.selection import MaskTable
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Single, Table, check_columns, even_cuts, row_sizes
from corgipile.tables.wrapper import Wrapper

__all__ = ["EncodedColumns", "encoded_once"]

STEP = 1 << 17  # rows of which codes are written at a time
KEPT = 16  # a row of encoded columns is kept on disk where it is this many bytes, or no larger than the row they are of
SPARSE = 32  # of so many rows of a table a part has one at least, where its encoded columns lie as all rows would


class EncodedColumns(Wrapper):
    """Reads some columns of a table by their encoders; those that are plain numbers stay where they lie.

    Args:
        table: The rows.
        encoders: One for each column that is to be numbers; lists of numbers stay lists.

    Attributes:
        changed: The encoders that have something to do, by column.
        kept: Those columns, encoded; None where each read encodes them.
        codes: What the encoder of a column makes of all rows, where somebody has it.

    Example:
        >>> from corgipile.features.encoders import Number
        >>> from corgipile.tables import open
        >>> EncodedColumns(open(pa.table({"x": [1.5, None]})), [Number("x", 0.0)]).take([1, 0]).to_pydict()
        {'x': [0.0, 1.5]}
    """

    def __init__(self, table: Table, encoders: Sequence[Encoder]) -> None:
        super().__init__(table)
        require(table.schema, [one.column for one in encoders], repr(table))
        self.changed: dict[str, Encoder] = {}
        self.kept: Table | None = None
        self.codes: dict[str, npt.NDArray[Any]] = {}
        fields = list(table.schema)
        for one in encoders:
            at = table.schema.get_field_index(one.column)
            kind = table.schema.field(at).type
            if one.type_of(kind) != kind or one.always:
                self.changed[one.column] = one
                fields[at] = pa.field(one.column, one.type_of(kind))
        self.schema = pa.schema(fields, table.schema.metadata)

    def __reduce__(self) -> tuple[Any, ...]:
        again = EncodedColumns if self.kept is None else _encoded_again
        return again, (self.table, list(self.changed.values()))

    @property
    def fingerprint(self) -> str:
        """Return an identity of the table and of how it is encoded."""
        how = json.dumps([one.state() for one in self.changed.values()], default=str)
        return digest(self.table.fingerprint, how)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one run of rows."""
        return self._joined(lambda table, some: table.read(start, stop, some), columns, lambda at: f"row {start + at}")

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows, in the order asked for."""
        return self._joined(lambda table, some: table.take(rows, some), columns, lambda at: f"row {rows[at]}")

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return where the columns lie; None where one of them is encoded at each read."""
        changed = [name for name in check_columns(self.schema, columns) if name in self.changed]
        if not changed:
            return self.table.layout(columns)
        if self.kept is None:
            return None
        found = [self.kept.layout(changed)]
        if stored := self._stored(columns):
            found.append(self.table.layout(stored))
        return _merged([one for one in found if one is not None], columns) if None not in found else None

    def location(self, columns: Sequence[str]) -> Location | None:
        """Say where the kernel finds columns of rows that bits pick: those that are encoded lie as all rows do."""
        return self._placed(columns, location)

    def varlen_location(self, columns: Sequence[str]) -> Location | None:
        """Say the same of columns of which some, not encoded, are of varying length."""
        return self._placed(columns, varlen_location)

    def _placed(
        self, columns: Sequence[str], find: Callable[[Table, Sequence[str]], Location | None]
    ) -> Location | None:
        changed = [name for name in check_columns(self.schema, columns) if name in self.changed]
        if not changed:
            return find(self.table, columns)
        stored = self._stored(columns)
        found = [location(self.kept, changed) if self.kept is not None else None]
        found += [find(self.table, stored)] if stored else []
        known = [one for one in found if one is not None]
        if len(known) < len(found) or any(one.bits is not known[0].bits for one in known):
            return None
        kept = tuple(some for one in known for some in one.kept)
        return Location(_merged([one.layout for one in known], columns), known[0].bits, kept)

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of rows, if the table tells and none of the columns is encoded."""
        return None if not self.changed.keys().isdisjoint(columns) else row_sizes(self.table, rows, columns)

    def shared_bytes(self, columns: Sequence[str]) -> int:
        """Return the bytes that the table holds for columns, and their encoders, whatever the rows."""
        beside = sum(one.nbytes for name, one in self.changed.items() if name in columns)
        return beside + super().shared_bytes(columns)

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a binary column, each into an object of its own."""
        return cast("Single", self.table).take_bytes(rows, column)

    def loose(self, columns: Sequence[str]) -> bool:
        """Say whether all of these columns are kept apart from the table, so that its units are no matter."""
        return self.kept is not None and not self._stored(columns)

    def _stored(self, columns: Sequence[str]) -> list[str]:
        return [name for name in columns if self.kept is None or name not in self.changed]

    def _joined(self, read: Any, columns: Sequence[str] | None, row: Callable[[int], str]) -> pa.RecordBatch:
        names = check_columns(self.schema, columns)
        stored = self._stored(names)
        found: dict[str, pa.Array] = {}
        if self.kept is not None and (some := [name for name in names if name in self.changed]):
            found |= zip(some, read(self.kept, some).columns, strict=True)
        if stored or not found:
            found |= zip(stored, read(self.table, stored).columns, strict=True)
        return self._encoded(found, names, row, stored)

    def _encoded(
        self, found: dict[str, pa.Array], names: list[str], row: Callable[[int], str], raw: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Make a batch of columns, of which some (None: all) are as they are stored."""
        for name in names if raw is None else raw:
            if name in self.changed:
                found[name] = self.changed[name].encode(found[name], row)
        return pa.RecordBatch.from_arrays([found[name] for name in names], schema=pick(self.schema, names))

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they lie, encoded, a part at a time."""
        raw = [name for name in columns if name not in self.codes]
        for start, rows, stored in self._parts(raw):
            found = dict(zip(raw, stored, strict=True))
            for name in set(columns).difference(raw):
                found[name] = pa.array(self.codes[name][start : start + rows]).cast(self.schema.field(name).type)
            yield self._encoded(found, list(columns), lambda at, first=start: f"row {first + at}", raw)  # type: ignore[misc]

    def _parts(self, columns: list[str]) -> Iterator[tuple[int, int, list[pa.Array]]]:
        """Yield the first row, the rows and the columns of one part after another; no columns take no reading."""
        if columns:
            yield from ((start, batch.num_rows, batch.columns) for start, batch in scan(self.table, columns))
            return
        for start, stop in pairwise(even_cuts(len(self.table), STEP).tolist()):
            yield start, stop - start, []


def _merged(layouts: Sequence[Layout], columns: Sequence[str]) -> Layout:
    """Join layouts of different columns of the same rows."""
    paths: list[str] = []
    found: dict[str, ColumnLayout] = {}
    for layout in layouts:
        found |= {name: one.numbered(len(paths)) for name, one in layout.columns.items()}
        paths += layout.paths
    known = all(layout.identities for layout in layouts)
    identities = tuple(one for layout in layouts for one in layout.identities) if known else ()
    return Layout(tuple(paths), {name: found[name] for name in columns}, identities)


def encoded_once(table: EncodedColumns) -> Table:
    """Return the same rows with their encoded columns laid out once: in memory, or plain in a spill file.

    Reading them is then as fast as if they had been stored as numbers. Where they take too much, or spill files are
    off, each read encodes its rows.

    Raises:
        BadLabel: A row has a label of no class.
        BadValue: A row has no category.
        WriteFailed: The disk is full, or cannot be written.

    Example:
        >>> from corgipile.features.encoders import Classes
        >>> from corgipile.tables import open
        >>> rows = EncodedColumns(open(pa.table({"y": ["a", "b"]})), [Classes("y", ("a", "b"))])
        >>> encoded_once(rows).read(0, 2).to_pydict()
        {'y': [0, 1]}
    """
    names = list(table.changed)
    width = sum(_bytes_of(table.schema.field(name).type) for name in names)
    if not len(table) or not 0 < width <= max(KEPT, table.nbytes / len(table)):
        return table
    if isinstance(table.table, MemoryTable):
        return table.table.replaced(pa.Table.from_batches(table.batches(names), pick(table.schema, names)))
    folder = table.table.spill if hasattr(table.table, "spill") else spill_folder(None)
    if folder is None:
        return table
    source: Table = EncodedColumns(table.table, list(table.changed.values()))
    bits = _bits_of(table.table)
    key = f"{place_of(table)} {names!r}{'' if bits is None else ' in place'}"
    spill = shared(folder, key, lambda: _written(table, names, folder, int(width), bits))
    kept = ArrowFile(next(spill.sections()))
    table.kept = (
        SpilledTable(source, names, [kept]) if bits is None else MaskTable(SpilledTable(source, names, [kept]), bits)
    )
    return table


def _bits_of(table: Table) -> RowMask | None:
    """Return what picks rows of a table, of which they are not too few; None elsewhere."""
    return table.bits if isinstance(table, MaskTable) and len(table) * SPARSE >= len(table.table) else None


def _encoded_again(table: Table, encoders: Sequence[Encoder]) -> Table:
    return encoded_once(EncodedColumns(table, encoders))


def _bytes_of(kind: pa.DataType) -> float:
    if pa.types.is_fixed_size_list(kind):
        return float(kind.list_size) * _bytes_of(kind.value_type)
    return math.inf if item_of(kind) is not None else float(kind.bit_width) / 8


def _written(table: EncodedColumns, names: Sequence[str], folder: Path, width: int, bits: RowMask | None) -> SpillFile:
    batches, rows = table.batches(names), len(table if bits is None else table.table.table)  # type: ignore[attr-defined]
    check_room(folder, width * rows)
    with frugal(), SpillWriter(folder) as out:
        write_plain(out, pick(table.schema, names), batches if bits is None else _apart(batches, bits, rows), rows)
        return out.finish()


def _apart(batches: Iterable[pa.RecordBatch], bits: RowMask, rows: int) -> Iterator[pa.RecordBatch]:
    """Put the rows that bits pick of a table where they are in it; between them is whatever row comes next."""
    start = done = 0
    for batch in batches:
        picked = bits.within(done, done + batch.num_rows)
        done += batch.num_rows
        stop = rows if done == len(bits) else int(picked[-1]) + 1
        for at in range(start, stop, STEP):
            follow = np.searchsorted(picked, np.arange(at, min(at + STEP, stop)))
            yield batch.take(pa.array(np.minimum(follow, len(picked) - 1)))
        start = stop
