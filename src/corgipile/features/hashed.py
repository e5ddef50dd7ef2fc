"""A table whose features are hashed: sparse rows in two columns of their own."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.features.choose import require
from corgipile.features.encoders import Encoder
from corgipile.tables.arrow.spans import flat
from corgipile.tables.concat import DIMS_KEY
from corgipile.tables.io.files import digest
from corgipile.tables.table import IntArray, Layout, Table, check_columns, row_sizes
from corgipile.tables.wrapper import Wrapper

if TYPE_CHECKING:
    from corgipile.features.hashing import Hashing

__all__ = ["PAIR", "HashedColumns"]

PAIR = ("\x1fhashed_k", "\x1fhashed_v")  # the prefix avoids clashes with stored columns
SAMPLED = 64  # rows, at each of three places
Taken = Callable[[Sequence[str]], pa.RecordBatch]


class HashedColumns(Wrapper):
    """Hashes columns of a table as they are read, beside the columns that it has.

    Args:
        table: The rows.
        hashing: How columns are hashed.
        encoders: Of columns whose numbers stand behind the hashed features.

    Raises:
        MissingColumn: The table has not all of these columns.
        BadSchema: One is of another type.
        BadArgument: The table has a column of a name that hashed features have.

    Example:
        >>> from corgipile.features.hashing import Hashing, Source
        >>> from corgipile.tables import open
        >>> how = Hashing(18, 1, (Source("review", "words"),), (("review",),))
        >>> HashedColumns(open(pa.table({"review": ["A"]})), how, ()).read(0, 1, PAIR).columns[0].to_pylist()
        [[92594]]
    """

    def __init__(self, table: Table, hashing: "Hashing", encoders: Sequence[Encoder]) -> None:
        super().__init__(table)
        self._how, self._beside = hashing, tuple(encoders)
        self.sources = list(dict.fromkeys([*hashing.columns, *(one.column for one in encoders)]))
        require(table.schema, self.sources, repr(table))
        for name in PAIR:
            if name in table.schema.names:
                raise BadArgument(f"column {name!r} has the name that hashed features have; rename it")
        for one in hashing.sources:
            one.check(table.schema.field(one.column).type)
        self._widths = [_width(one, table.schema.field(one.column).type) for one in encoders]
        width = (1 << hashing.bits) + sum(self._widths)
        kinds = pa.list_(pa.int32()), pa.list_(pa.float32())
        fields = [*table.schema, *(pa.field(name, kind) for name, kind in zip(PAIR, kinds, strict=True))]
        self.schema = pa.schema(fields, {**(table.schema.metadata or {}), DIMS_KEY: str(width)})
        self._each: float | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return HashedColumns, (self.table, self._how, self._beside)

    @property
    def fingerprint(self) -> str:
        """Return an identity of the table and of how it is hashed."""
        how = repr(([one.state() for one in self._beside], self._how.state()))
        return digest(self.table.fingerprint, how)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one run of rows."""
        return self._read(lambda some: self.table.read(start, stop, some), columns, lambda at: f"row {start + at}")

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows, in the order asked for."""
        return self._read(lambda some: self.table.take(rows, some), columns, lambda at: f"row {rows[at]}")

    def missing(self, row: int) -> tuple[str, str] | tuple[()]:
        """Return a column that is null in a row and what becomes of it, as `Source.kind` says; nothing if none is."""
        found = self.table.take(np.array([row]), self.sources)
        kinds = {one.column: one.kind for one in self._how.sources}
        for name, column in zip(found.schema.names, found.columns, strict=True):
            if column.null_count:
                return name, kinds.get(name, "number")
        return ()

    def column_of(self, feature: int) -> tuple[str, int | None] | None:
        """Return the column, and the place in it where it has several, of a number behind the hashed features."""
        feature -= 1 << self._how.bits
        for one, width in zip(self._beside, self._widths, strict=True):
            if 0 <= feature < width:
                return one.column, None if width == 1 else feature
            feature -= width
        return None

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return where the columns lie; None where one of them is hashed."""
        names = check_columns(self.schema, columns)
        return self.table.layout(names) if set(PAIR).isdisjoint(names) else None

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of rows, if the table tells and none of the columns is hashed."""
        return row_sizes(self.table, rows, columns) if set(PAIR).isdisjoint(columns) else None

    def units(self, columns: Sequence[str]) -> Any:
        """Return the units of the table, where it is encoded; a row is as large as a few are that were hashed."""
        units = super().units(columns)
        if units is None or set(PAIR).isdisjoint(columns):
            return units
        if self._each is None:
            size = min(SAMPLED, len(self))
            starts = sorted({0, (len(self) - size) // 2, len(self) - size})
            self._each = sum(self.read(at, at + size, PAIR).nbytes for at in starts) / max(1, size * len(starts))
        return units._replace(each=self._each)

    def _stored(self, columns: Sequence[str]) -> list[str]:
        hashed = [] if set(PAIR).isdisjoint(columns) else self.sources
        return list(dict.fromkeys([*hashed, *(name for name in columns if name not in PAIR)]))

    def _read(self, read: Taken, columns: Sequence[str] | None, row: Callable[[int], str]) -> pa.RecordBatch:
        names = check_columns(self.schema, columns)
        stored = read(self._stored(names))
        found: dict[str, pa.Array] = dict(zip(stored.schema.names, stored.columns, strict=True))
        if not set(PAIR).isdisjoint(names):
            beside = self._numbers(found, row) if self._beside else None
            found |= zip(PAIR, self._how.rows([found[name] for name in self._how.columns], beside), strict=True)
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        return pa.RecordBatch.from_arrays([found[name] for name in names], schema=schema)

    def _numbers(self, found: dict[str, pa.Array], row: Callable[[int], str]) -> npt.NDArray[np.float32]:
        """Return the numbers behind the hashed features, [rows, numbers]; NaN where one is missing."""
        parts = []
        for one, width in zip(self._beside, self._widths, strict=True):
            column = one.encode(found[one.column], row)
            if pa.types.is_fixed_size_list(column.type):
                column = _filled(column, width)
            numbers = column.cast(pa.float32(), safe=False)
            parts.append(flat(numbers.fill_null(float("nan"))).reshape(-1, width))
        return np.ascontiguousarray(np.concatenate(parts, axis=1))


def _filled(column: pa.Array, width: int) -> pa.Array:
    """Return the numbers of lists; of a list that is missing they are."""
    numbers = column.values.slice(column.offset * width, len(column) * width)
    if not column.null_count:
        return numbers
    holes = np.repeat(flat(column.is_null()), width)
    return pa.array(np.where(holes, np.nan, numbers.cast(pa.float64()).fill_null(float("nan")).to_numpy()))


def _width(one: Encoder, kind: pa.DataType) -> int:
    """Return how many numbers of a row an encoder makes."""
    made = one.type_of(kind)
    if pa.types.is_fixed_size_list(made) and not pa.types.is_nested(made.value_type):
        return int(made.list_size)
    if pa.types.is_nested(made):
        raise BadSchema(f"feature column {one.column!r} is {kind}; beside hashed ones lists of one length are needed")
    return 1
