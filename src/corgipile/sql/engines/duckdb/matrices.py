"""Conversion of query columns to the matrix that a model scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corgipile.errors import BadArgument, BadSchema, BadValue
from corgipile.features.choose import is_number, item_of
from corgipile.linear.features import Features
from corgipile.linear.sgd import SGD
from corgipile.sql.engines.duckdb.models import Stored
from corgipile.suggestions import listed

__all__ = ["Scorer", "as_durations"]

Columns = Sequence[pa.ChunkedArray]
Scores = tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]


class Scorer:
    """Scores rows with one model in one thread."""

    def __init__(self, stored: Stored) -> None:
        self._name, self._model = stored.name, stored.model
        # two list columns are sparse rows
        plain = len(stored.model.features) != 2 or not stored.model.params.get("lists")
        self._direct = stored.model.encoding is None and plain and stored.model.columns == stored.model.features
        self._kernels: dict[np.dtype[Any], SGD] = {}
        self._visit = np.arange(2048, dtype=np.int32)

    def __call__(self, columns: Columns, rows: int) -> Scores:
        """Return scores [rows, outputs] and the mask of rows without nulls; None: all."""
        if not self._direct:
            return self._by_name(columns, rows)
        converted = matrix(columns, rows, self._model.coef.dtype)
        if converted is None:
            return self._by_name(columns, rows)
        values, valid = converted
        if values.shape[1] != self._model.width:
            raise BadArgument(
                f"model {self._name!r} needs {self._model.width} features{self._feature_list()}, got {values.shape[1]}"
            )
        if len(self._visit) < rows:
            self._visit = np.arange(rows, dtype=np.int32)
        return self._kernel(values.dtype).decide(values, self._visit[:rows], lambda place: f"row {place}"), valid

    def _feature_list(self) -> str:
        names = self._model.names
        return f" ({listed(names)})" if names else ""

    def _kernel(self, dtype: np.dtype[Any]) -> SGD:
        wide = np.promote_types(dtype, self._model.coef.dtype)
        if wide not in self._kernels:
            inputs = Features(("features",), sparse=False, width=self._model.width, dtype=wide, lists=True)
            self._kernels[wide] = self._model.sgd(inputs)
        return self._kernels[wide]

    def _by_name(self, columns: Columns, rows: int) -> Scores:
        """Score rows with the model's encoding, by column name."""
        names, known = self._model.columns, self._model.features
        if len(columns) != len(names):
            described = listed(known) if names == known else f"{listed(known)} and the group {names[-1]}"
            raise BadArgument(f"model {self._name!r} needs {described}, got {len(columns)} columns")
        table = pa.table([self._cast_column(*one) for one in zip(columns, names, strict=True)], names=list(names))
        empty = np.zeros((0, self._model.outputs), self._model.coef.dtype)
        columns = columns[: len(known)]  # null may be a group
        valid = None
        if self._model.encoding is None and any(column.null_count for column in columns):
            valid = np.logical_and.reduce([np.asarray(column.is_valid()) for column in columns])
            table = table.filter(pa.array(valid))
        scores = np.concatenate([empty, *self._model.scores(table)]) if table.num_rows else empty
        if valid is None:
            return scores, None
        whole = np.zeros((rows, scores.shape[1]), scores.dtype)
        whole[valid] = scores
        return whole, valid

    def _cast_column(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """Cast a column to a type that the model accepts: SQL literals are decimals, and NULL has no type."""
        grouped = name not in self._model.features
        if pa.types.is_null(column.type):
            encoders = self._model.encoding.features if self._model.encoding else ()
            text = any(one.column == name and getattr(one, "family", "") == "text" for one in encoders)
            kind = pa.array(self._model.params["groups"]).type if grouped else pa.string() if text else pa.float64()
            return pa.chunked_array([pa.nulls(len(column), kind)])
        if not pa.types.is_decimal(column.type):
            return as_durations(column)
        if grouped:
            try:
                return pc.cast(column, pa.int64())
            except pa.ArrowInvalid:
                return column
        return column if self._model.encoding else pc.cast(column, pa.float64(), safe=False)


def matrix(
    columns: Columns, rows: int, dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None] | None:
    """Return columns as a matrix and the mask of rows without nulls; None for a mix of lists and numbers.

    A float64 or decimal column makes the matrix float64, else it has the model's type.
    """
    parts = [_combine(column) for column in columns]
    kinds = [part.type for part in parts]
    if len(parts) == 1 and item_of(kinds[0]) is not None:
        return _list_rows(parts[0], dtype)
    if not all(is_number(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind) for kind in kinds):
        if all(item_of(kind) is not None or is_number(kind) for kind in kinds):
            return None
        wrong = next(i for i, kind in enumerate(kinds) if not (is_number(kind) or pa.types.is_decimal(kind)))
        raise BadSchema(f"feature {wrong + 1} must be numeric, got {kinds[wrong]}")
    wide = any(pa.types.is_float64(kind) or pa.types.is_decimal(kind) for kind in kinds)
    values = np.empty((rows, len(parts)), np.float64 if wide else dtype)
    nulls = [part for part in parts if part.null_count]
    for i, part in enumerate(parts):
        values[:, i] = _numbers(part)
    return values, np.logical_and.reduce([np.asarray(part.is_valid()) for part in nulls]) if nulls else None


def as_durations(column: Any) -> Any:
    """Convert DuckDB's intervals back to durations; return any other array unchanged. Raise BadValue for months."""
    if column.type != pa.month_day_nano_interval():
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([as_durations(part) for part in column.chunks], pa.duration("us"))
    parts = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])
    intervals = np.frombuffer(column.buffers()[1] or b"", parts)[column.offset : column.offset + len(column)]
    missing = ~np.asarray(column.is_valid())
    if intervals["months"][~missing].any():
        raise BadValue("an interval must have a fixed length, got months; give days or seconds")
    return pa.array(
        intervals["days"].astype(np.int64) * 86_400_000_000 + intervals["nanoseconds"] // 1000,
        pa.duration("us"),
        mask=missing,
    )


def _combine(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _numbers(part: pa.Array) -> npt.NDArray[Any]:
    if pa.types.is_null(part.type):
        return np.zeros(len(part))
    if pa.types.is_decimal(part.type):
        part = pc.cast(part, pa.float64(), safe=False)
    if part.null_count:
        part = part.fill_null(False if pa.types.is_boolean(part.type) else 0)
    return np.asarray(part.to_numpy(zero_copy_only=False))


def _list_rows(part: pa.Array, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Return a list column as a matrix and a mask; its lists must have one length."""
    valid: npt.NDArray[np.bool_] | None = np.asarray(part.is_valid()) if part.null_count else None
    item = part.type.value_type
    if not (is_number(item) or pa.types.is_decimal(item)):
        raise BadSchema(f"features must be lists of numbers, got {part.type}")
    if pa.types.is_fixed_size_list(part.type):
        width = part.type.list_size
        values = part.values.slice(part.offset * width, len(part) * width)
    else:
        values, width, part = _flatten_lists(part, valid)
    if values.null_count:
        whole = np.asarray(np.asarray(values.is_valid()).reshape(-1, width).all(axis=1), np.bool_)
        valid = whole if valid is None else np.asarray(valid & whole, np.bool_)
    numbers = _numbers(values)
    wide = numbers.dtype == np.float64
    rows = np.ascontiguousarray(numbers.reshape(-1, width), np.float64 if wide else dtype)
    return (rows, None) if valid is None else (np.where(valid[:, None], rows, rows.dtype.type(0)), valid)


def _flatten_lists(part: pa.Array, valid: npt.NDArray[np.bool_] | None) -> tuple[pa.Array, int, pa.Array]:
    """Return the items of equally long lists, with zeros for null lists."""
    lengths = np.asarray(part.value_lengths().fill_null(-1))
    known = lengths[lengths >= 0]
    width = int(known[0]) if len(known) else 1
    if (known != width).any():
        raise BadArgument(f"lists of features must have one length, got {width} and {int(known[known != width][0])}")
    if valid is not None:
        part = part.fill_null(pa.scalar([0] * width, part.type))
    return part.flatten(), max(1, width), part
