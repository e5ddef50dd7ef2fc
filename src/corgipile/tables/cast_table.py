"""Tables with columns cast to the common schema of several files."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from corgipile.errors import BadSchema, BadValue
from corgipile.tables.formats.parquet.pages import row_bits
from corgipile.tables.io.files import describe, digest
from corgipile.tables.io.pieces import pick
from corgipile.tables.promotion import DIGITS, common_type, holds_all, may_hold
from corgipile.tables.table import IntArray, Table
from corgipile.tables.units import Units
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
        self.schema = schema
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

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the units of the table, with the bytes of cast columns added."""
        units, stored = super().units(columns), self.table.schema
        types = [field.type for field in pick(self.schema, list(dict.fromkeys(columns))) if field.name in self.names]
        stored_types = [stored.field(self.names[name]).type for name in dict.fromkeys(columns) if name in self.names]
        added_bits = sum(row_bits(kind) for kind, old in zip(types, stored_types, strict=True) if kind != old)
        return units and units._replace(nbytes=units.nbytes + units.rows * added_bits // 8)

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the stored names of columns that are not constant."""
        return list(dict.fromkeys(self.names[name] for name in columns if name in self.names))

    def keeps(self, column: str) -> bool:
        """Return whether a column is stored under the same name and type."""
        stored, schema = self.table.schema, self.schema
        return self.names.get(column) == column and bool(stored.field(column).type == schema.field(column).type)

    def _assemble(self, batch: pa.RecordBatch | None, names: list[str], rows: range | IntArray) -> pa.RecordBatch:
        schema, arrays = pick(self.schema, names), []
        for field in schema:
            if batch is not None and field.name in self.names:
                arrays.append(self._cast(batch.column(self.names[field.name]), field))
            else:
                constant = self.values.get(field.name)
                arrays.append(pa.nulls(len(rows), field.type) if constant is None else pa.repeat(constant, len(rows)))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

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
