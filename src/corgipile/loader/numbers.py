"""Numeric features of rows, from all columns that hold numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.errors import BadSchema
from corgipile.features.choose import is_number, item_of
from corgipile.features.sparse import is_pair
from corgipile.tables.spans import flat

__all__ = ["Numbers", "is_class", "texts_of"]

PROJECTED, COPIES = 32, 4  # numbers that sparse rows are projected to; copies of each value
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Numbers:
    """The columns that hold numbers.

    Attributes:
        dense: Columns of numbers or of number lists of one length.
        pair: Index and value columns of sparse rows, or empty.

    Example:
        >>> schema = pa.schema({"x": pa.int8(), "name": pa.string(), "v": pa.list_(pa.float32(), 2)})
        >>> numbers = Numbers.of(schema, schema.names, None)
        >>> lists = pa.array([[2, 3], [4, 5]], schema.field("v").type)
        >>> numbers.matrix(pa.record_batch({"x": [1, None], "v": lists})).tolist()
        [[1.0, 2.0, 3.0], [nan, 4.0, 5.0]]
    """

    dense: tuple[str, ...]
    pair: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: pa.Schema, columns: Sequence[str], label: str | None) -> "Numbers":
        """Select the numeric columns; other types are ignored."""
        names = [name for name in columns if name != label]
        twos = [names] if len(names) == 2 else [[name, f"{name[:-2]}_v"] for name in names if name.endswith("_k")]
        pair = next((two for two in twos if set(two) <= set(names) and is_pair(schema, two)), [])
        return cls(
            tuple(name for name in names if name not in pair and _is_numbers(schema.field(name).type)), tuple(pair)
        )

    @property
    def columns(self) -> list[str]:
        """Return the names of all numeric columns."""
        return [*self.dense, *self.pair]

    def matrix(self, batch: pa.RecordBatch) -> Floats:
        """Return the rows' numbers, (rows, numbers), NaN for missing ones; raise BadSchema for uneven lists."""
        parts = [_matrix(batch.column(name), name) for name in self.dense]
        if self.pair:
            parts.append(_projected(*(batch.column(name) for name in self.pair)))
        return np.hstack([np.zeros((batch.num_rows, 0)), *parts])


def is_class(schema: pa.Schema, label: str) -> bool:
    """Return whether a column can serve as class label: numbers or text, one per row."""
    if label not in schema.names:
        return False
    kind = schema.field(label).type
    return bool(is_number(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def texts_of(column: pa.Array) -> npt.NDArray[Any]:
    """Return a column of numbers as float64 with NaN for nulls, or of text as strings."""
    if is_number(column.type):
        return _scalars(column)
    return np.asarray(pc.fill_null(column, "").to_pylist(), dtype=np.str_)


def _is_numbers(kind: pa.DataType) -> bool:
    while pa.types.is_fixed_size_list(kind) or item_of(kind) is not None:
        kind = kind.value_type
    return bool(is_number(kind))


def _scalars(column: pa.Array) -> Floats:
    if column.null_count:
        column = column.cast(pa.float64()).fill_null(float("nan"))
    return flat(column).astype(np.float64)


def _matrix(column: pa.Array, name: str) -> Floats:
    """Return (rows, numbers) of a column of numbers, or of number lists of one length."""
    rows = len(column)
    if is_number(column.type):
        return _scalars(column).reshape(rows, 1)
    valid = np.arange(rows)
    if column.null_count:
        valid = np.flatnonzero(flat(column.is_valid()))
    inner = _matrix(column.flatten(), name)
    if len(valid) and (inner.shape[0] % len(valid) or _lengths(column) > 1):
        raise BadSchema(f"lists of column {name!r} differ in length; give sketch=, which makes numbers of rows")
    matrix = inner.reshape(len(valid), -1)
    if len(valid) == rows:
        return matrix
    padded = np.full((rows, matrix.shape[1]), np.nan)
    padded[valid] = matrix
    return padded


def _lengths(column: pa.Array) -> int:
    return 1 if pa.types.is_fixed_size_list(column.type) else len(pc.unique(pc.list_value_length(column).drop_null()))


def _projected(indices: pa.Array, values: pa.Array) -> Floats:
    """Project sparse rows to a few numbers with random signs, which keeps distances approximately."""
    lengths = flat(pc.fill_null(pc.list_value_length(indices), 0))
    row = np.repeat(np.arange(len(indices)), lengths)
    place = _scalars(indices.flatten()).astype(np.int64).astype(np.uint64)
    value = _scalars(values.flatten())
    if len(place) != len(value):
        raise BadSchema("sparse rows must have as many indices as values")
    hashed = (place + np.uint64(1)) * GOLDEN
    hashed ^= hashed >> np.uint64(29)
    hashed *= GOLDEN
    out = np.zeros(len(indices) * PROJECTED)
    for copy in range(COPIES):
        bits = hashed >> np.uint64(64 - 6 * (copy + 1))
        to = row * PROJECTED + (bits % np.uint64(PROJECTED)).astype(np.int64)
        out += np.bincount(to, np.where(bits & np.uint64(PROJECTED), value, -value), len(out))
    return out.reshape(-1, PROJECTED)
