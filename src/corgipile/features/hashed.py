"""Tables with hashed features: sparse rows in two extra columns."""

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, WriteFailed
from corgipile.features.choose import require
from corgipile.features.encoders import Encoder
from corgipile.sizes import format_bytes
from corgipile.tables.concat import DIMS_KEY
from corgipile.tables.encoded import Part, SpilledTable, unpack, unpack_shared, use_spilled, write_plain
from corgipile.tables.formats.arrow.file import ArrowFile
from corgipile.tables.io.files import digest
from corgipile.tables.io.pieces import pick
from corgipile.tables.io.spill import Section, SpillWriter, check_room
from corgipile.tables.materialized import find_spilled
from corgipile.tables.spans import flat
from corgipile.tables.table import IntArray, Table, even_cuts
from corgipile.tables.units import Units
from corgipile.tables.wrapper import Wrapper

log = logging.getLogger("corgipile")
if TYPE_CHECKING:
    from corgipile.features.hashing import Hashing

__all__ = ["PAIR", "HashedColumns", "spill_hashed"]

PAIR = ("\x1fhashed_k", "\x1fhashed_v")  # the prefix avoids clashes with stored columns
SAMPLED_ROWS = 64  # rows sampled at each of three places
HASHED_BYTES = 512 << 10  # bytes hashed at a time by a thread
HASHERS = min(4, os.cpu_count() or 1)
MAX_SPILLED = 8 << 30  # bytes of hashed rows that a spill file holds at most; else it holds the columns they come from


class HashedColumns(Wrapper):
    """A table that hashes columns as they are read, in addition to its own; encoded numbers follow the hashed ones.

    Example:
        >>> from corgipile.features.hashing import Hashing, Source
        >>> from corgipile.tables import open
        >>> how = Hashing(18, 1, (Source("review", "words"),), (("review",),))
        >>> HashedColumns(open(pa.table({"review": ["A"]})), how, ()).read(0, 1, PAIR).columns[0].to_pylist()
        [[92594]]
    """

    def __init__(self, table: Table, hashing: "Hashing", encoders: Sequence[Encoder]) -> None:
        super().__init__(table)
        self._hashing, self._encoders = hashing, tuple(encoders)
        self.sources = list(dict.fromkeys([*hashing.columns, *(encoder.column for encoder in encoders)]))
        require(table.schema, self.sources, repr(table))
        for name in PAIR:
            if name in table.schema.names:
                raise BadArgument(f"the column name {name!r} is reserved for hashed features; rename the column")
        for source in hashing.sources:
            source.check(table.schema.field(source.column).type)
        self._widths = [_width(encoder, table.schema.field(encoder.column).type) for encoder in encoders]
        width = (1 << hashing.bits) + sum(self._widths)
        kinds = pa.list_(pa.int32()), pa.list_(pa.float32())
        fields = [*table.schema, *(pa.field(name, kind) for name, kind in zip(PAIR, kinds, strict=True))]
        self.schema = pa.schema(fields, {**(table.schema.metadata or {}), DIMS_KEY: str(width)})

    def __reduce__(self) -> tuple[Any, ...]:
        return HashedColumns, (self.table, self._hashing, self._encoders)

    @property
    def fingerprint(self) -> str:
        """Return the identity of the table and its hashing."""
        state = repr(([encoder.state() for encoder in self._encoders], self._hashing.state()))
        return digest(self.table.fingerprint, state)

    @property
    def place(self) -> str:
        """Return the identity of the encoded files and the hashing; empty for other tables."""
        return self.table.place and digest(self.table.place, self.fingerprint)

    @cached_property
    def spills(self) -> bool:
        """Return whether a spill file may hold the hashed rows: hashing takes longer than learning from them."""
        folder, nbytes = self.spill, int(self._row_bytes * len(self))
        if folder is None or not 0 < nbytes <= MAX_SPILLED:
            return False
        with suppress(WriteFailed):
            check_room(folder, 2 * nbytes)
            return True
        return False

    def unpacked(self, columns: Sequence[str], unpack: Callable[[Table, Sequence[str]], Table]) -> Self | None:
        """Return a copy over the unpacked columns; None if a spill file has or will have the hashed rows."""
        if not set(PAIR).isdisjoint(columns):
            columns = list(dict.fromkeys(columns))
            if find_spilled(self, columns) is not None or (unpack is not use_spilled and self.spills):
                return None
        return super().unpacked(columns, unpack)

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write hashed rows as one section of a spill file; a failure leaves them to be hashed in each epoch.

        Raises:
            WriteFailed: The disk is too full, or the rows take more than `MAX_SPILLED`, which samples had not shown.
        """
        try:
            write_plain(out, pick(self.schema, columns), self._hashed(list(columns)), len(self))
        except WriteFailed:
            vars(self)["spills"] = False
            raise

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Open the section that `write_plain` wrote as a table."""
        return SpilledTable(self, columns, [ArrowFile(next(sections))])

    def _hashed(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows in stored order, hashed by several threads."""
        stored = self.stored(names)
        table, step = unpack_shared(self.table, stored), max(1, int(HASHED_BYTES / max(1.0, self._row_bytes)))
        coming, written = deque[Future[pa.RecordBatch]](), 0
        with ThreadPoolExecutor(HASHERS, "corgipile-hasher") as pool:
            for start, stop in pairwise(even_cuts(len(self), step).tolist()):
                batch = table.read(start, stop, stored)
                coming.append(pool.submit(self._assemble, batch, names, range(start, stop)))
                while len(coming) > (HASHERS if stop < len(self) else 0):
                    batch = coming.popleft().result()
                    if (written := written + batch.nbytes) > MAX_SPILLED:
                        raise WriteFailed(errno.EFBIG, f"hashed rows take more than {format_bytes(MAX_SPILLED)}")
                    yield batch

    def missing(self, row: int) -> tuple[str, str] | tuple[()]:
        """Return a column that is null in a row and its `Source.kind`; empty if there is none."""
        data = self.table.take(np.array([row]), self.sources)
        kinds = {source.column: source.kind for source in self._hashing.sources}
        for name, column in zip(data.schema.names, data.columns, strict=True):
            if column.null_count:
                return name, kinds.get(name, "number")
        return ()

    def column_of(self, feature: int) -> tuple[str, int | None] | None:
        """Return the column of a number after the hashed features, and its place in a list column."""
        feature -= 1 << self._hashing.bits
        for encoder, width in zip(self._encoders, self._widths, strict=True):
            if 0 <= feature < width:
                return encoder.column, None if width == 1 else feature
            feature -= width
        return None

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the units of the table, with the row size of hashed samples."""
        units = super().units(columns)
        return units if units is None or set(PAIR).isdisjoint(columns) else units._replace(each=self._row_bytes)

    @cached_property
    def _row_bytes(self) -> float:
        """Mean bytes of a hashed row in samples."""
        size = min(SAMPLED_ROWS, len(self))
        starts = sorted({0, (len(self) - size) // 2, len(self) - size})
        sizes = [int(self.read(at, at + size, PAIR).nbytes) for at in starts]
        return sum(sizes) / max(1, size * len(starts))

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that are hashed, and those that are read as they are."""
        hashed = [] if set(PAIR).isdisjoint(columns) else self.sources
        return list(dict.fromkeys([*hashed, *(name for name in columns if name not in PAIR)]))

    def keeps(self, column: str) -> bool:
        """Return whether a column is read as it is."""
        return column not in PAIR

    def _assemble(self, batch: pa.RecordBatch | None, names: list[str], rows: range | IntArray) -> pa.RecordBatch:
        data: dict[str, pa.Array] = {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))
        if not set(PAIR).isdisjoint(names):
            dense = self._numbers(data, lambda at: f"row {rows[at]}") if self._encoders else None
            data |= zip(PAIR, self._hashing.rows([data[name] for name in self._hashing.columns], dense), strict=True)
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        return pa.RecordBatch.from_arrays([data[name] for name in names], schema=schema)

    def _numbers(self, data: dict[str, pa.Array], row: Callable[[int], str]) -> npt.NDArray[np.float32]:
        """Return the numbers after the hashed features, [rows, numbers]; NaN where missing."""
        parts = []
        for encoder, width in zip(self._encoders, self._widths, strict=True):
            column = encoder.encode(data[encoder.column], row)
            if pa.types.is_fixed_size_list(column.type):
                column = _item_values(column, width)
            numbers = column.cast(pa.float32(), safe=False)
            parts.append(flat(numbers.fill_null(float("nan"))).reshape(-1, width))
        return np.ascontiguousarray(np.concatenate(parts, axis=1))


def spill_hashed(table: Table, columns: Sequence[str]) -> Table:
    """Return a table that reads its hashed rows from a spill file; the table itself if none may hold them."""
    if not isinstance(table, HashedColumns):
        return table.unpacked(columns, spill_hashed) or table
    folder, columns = table.spill, list(dict.fromkeys(columns))
    if folder is None or set(PAIR).isdisjoint(columns) or not table.spills:
        return table
    if table.units(columns) is not None:
        return unpack_shared(table, columns)
    log.info("writing hashed rows of %r to %s, once", table, folder)
    return unpack(Part(table.write_plain, table.open_plain), columns, folder)


def _item_values(column: pa.Array, width: int) -> pa.Array:
    """Return the numbers of lists; a null list gives NaN."""
    numbers = column.values.slice(column.offset * width, len(column) * width)
    if not column.null_count:
        return numbers
    is_missing = np.repeat(flat(column.is_null()), width)
    return pa.array(np.where(is_missing, np.nan, numbers.cast(pa.float64()).fill_null(float("nan")).to_numpy()))


def _width(encoder: Encoder, kind: pa.DataType) -> int:
    """Return the number of values per row that an encoder returns."""
    encoded_type = encoder.type_of(kind)
    if pa.types.is_fixed_size_list(encoded_type) and not pa.types.is_nested(encoded_type.value_type):
        return int(encoded_type.list_size)
    if pa.types.is_nested(encoded_type):
        raise BadSchema(f"feature column {encoder.column!r} is {kind}; with hashing lists must have a fixed length")
    return 1
