"""Tables with columns cast to the common schema of several files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from corgipile.errors import BadSchema, BadValue
from corgipile.tables.io.files import describe, digest
from corgipile.tables.io.pieces import check_rows, pick
from corgipile.tables.io.spill import Section, SpillWriter
from corgipile.tables.parquet_pages import row_bits
from corgipile.tables.promotion import DIGITS, common_type, holds_all, may_hold
from corgipile.tables.table import IntArray, Layout, Table, check_columns, check_run
from corgipile.tables.wrapper import Wrapper

__all__ = ["CastTable"]


class CastTable(Wrapper):
    """Renames and casts the columns of a table, and adds constant columns.

    Args:
        table: The table.
        schema: The resulting columns.
        names: The stored name of each column.
        values: The values of constant columns; columns without a stored name or a value are null.

    Raises:
        BadSchema: A stored type cannot be cast safely to the resulting type.

    Example:
        >>> from corgipile.tables import MemoryTable
        >>> table = MemoryTable(pa.table({"a": pa.array([1, 2], pa.int32())}))
        >>> schema = pa.schema([("x", pa.int64()), ("y", pa.string())])
        >>> CastTable(table, schema, {"x": "a"}, {}).read(1, 2).to_pylist()
        [{'x': 2, 'y': None}]
    """

    def __init__(
        self, table: Table, schema: pa.Schema, names: Mapping[str, str], values: Mapping[str, pa.Scalar]
    ) -> None:
        super().__init__(table)
        self.schema: pa.Schema = schema
        stored_names = set(table.schema.names)
        self.names = {name: stored for name, stored in names.items() if stored in stored_names and name not in values}
        self.values = dict(values)
        for name, stored in self.names.items():
            _check(table, stored, schema.field(name).type)

    def __reduce__(self) -> tuple[type["CastTable"], tuple[object, ...]]:
        return CastTable, (self.table, self.schema, self.names, self.values)

    @property
    def fingerprint(self) -> str:
        """Return the identity of the table, the columns and the values."""
        constants = [f"{name!r}:{value.as_py()!r}" for name, value in self.values.items()]
        return digest(self.table.fingerprint, describe(self.schema), repr(self.names), *constants)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one run of rows."""
        check_run(start, stop, len(self))
        return self._assemble(columns, stop - start, lambda stored: self.table.read(start, stop, stored))

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows in the requested order."""
        rows = check_rows(rows, len(self))
        return self._assemble(columns, len(rows), lambda stored: self.table.take(rows, stored))

    def units(self, columns: Sequence[str]) -> Any:
        """Return the units of the table, with the bytes of cast columns added."""
        units, stored = super().units(columns), self.table.schema
        types = [field.type for field in pick(self.schema, list(dict.fromkeys(columns))) if field.name in self.names]
        stored_types = [stored.field(self.names[name]).type for name in dict.fromkeys(columns) if name in self.names]
        added_bits = sum(row_bits(kind) for kind, old in zip(types, stored_types, strict=True) if kind != old)
        return units and units._replace(nbytes=units.nbytes + units.rows * added_bits // 8)

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return the layout of columns that are stored as they are; None if one is renamed, cast or constant."""
        names, stored = check_columns(self.schema, columns), self.table.schema
        same = all(self.names.get(name) == name for name in names)
        kinds = same and all(stored.field(name).type == self.schema.field(name).type for name in names)
        return self.table.layout(names) if kinds else None

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write the rows of the table as sections of a spill file."""
        self.table.write_plain(self._stored(columns), out)  # type: ignore[attr-defined]

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Open the sections that `write_plain` wrote as a table with the same casts."""
        stored = self._stored(columns)
        plain = self.table.open_plain(stored, sections)  # type: ignore[attr-defined]
        return CastTable(plain, pick(self.schema, list(dict.fromkeys(columns))), self.names, self.values)

    def unpacked(self, columns: Sequence[str], unpack: Callable[[Table, Sequence[str]], Table]) -> Self:
        """Return a copy over the unpacked table, with these columns only."""
        same = super().unpacked(columns, unpack)
        same.schema = pick(self.schema, list(dict.fromkeys(columns)))
        return same

    def _stored(self, columns: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(self.names[name] for name in columns if name in self.names))

    def _assemble(
        self, columns: Sequence[str] | None, rows: int, read: Callable[[list[str]], pa.RecordBatch]
    ) -> pa.RecordBatch:
        names = check_columns(self.schema, columns)
        stored = self._stored(names)
        batch, arrays = read(stored) if stored else None, []
        for field in pick(self.schema, names):
            if batch is not None and field.name in self.names:
                arrays.append(self._cast(batch.column(self.names[field.name]), field))
            else:
                constant = self.values.get(field.name)
                arrays.append(pa.nulls(rows, field.type) if constant is None else pa.repeat(constant, rows))
        return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """Cast a column; a null column becomes any type, even where Arrow has no such cast."""
        if column.type == field.type:
            return column
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), field.type)
        try:
            return column.cast(field.type)
        except pa.ArrowInvalid:
            if not may_hold(field.type, column.type):
                raise
        large = next(value for value in column.drop_null().to_pylist() if abs(value) > 1 << DIGITS[64])
        raise BadValue(
            f"{self.table!r}: column {field.name!r} has {large}, which {field.type}, its type in other parts, cannot "
            f"hold; round it by `corgipile convert PART NEW --types {field.name}={field.type}`, or leave the column out"
        )


def _check(table: Table, stored: str, wanted: pa.DataType) -> None:
    """Raise BadSchema unless the cast preserves every value."""
    kind, types = table.schema.field(stored).type, pa.types
    times = types.is_timestamp(kind) and types.is_timestamp(wanted) and (kind.tz is None) == (wanted.tz is None)
    if types.is_null(kind):
        return
    whole = types.is_integer(kind) and types.is_integer(wanted) and kind.bit_width <= wanted.bit_width
    floats = types.is_floating(kind) and types.is_floating(wanted) and kind.bit_width <= wanted.bit_width
    text = _text(kind) is not None and _text(kind) == _text(wanted)
    decimals = types.is_decimal(kind) and types.is_decimal(wanted) and kind.scale == wanted.scale
    nested = kind.num_fields > 0 and kind.id == wanted.id and _same_structure(kind, wanted)
    numbers = whole or floats or holds_all(wanted, kind) or may_hold(wanted, kind)
    common = common_type(kind, wanted) == wanted
    if not (kind == wanted or times or numbers or text or decimals or nested or common):
        raise BadSchema(f"{table!r}: column {stored!r} is {kind}, which cannot be cast to {wanted}")


def _text(kind: pa.DataType) -> str | None:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    bytes_ = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return "bytes" if bytes_ or types.is_fixed_size_binary(kind) else None


def _same_structure(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two types differ only in item names and time units."""
    return str(one).count("<") == str(other).count("<") and one.num_fields == other.num_fields
