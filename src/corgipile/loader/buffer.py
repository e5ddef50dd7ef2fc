"""The buffer: rows in slots. Fixed-width columns lie in arrays, other columns in the record batches they came in."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadSchema, BudgetTooSmall, RaggedRows
from corgipile.loader.array_pool import Make
from corgipile.loader.null_rows import NullRow, null_at
from corgipile.loader.varlen import Varlen
from corgipile.sizes import format_bytes
from corgipile.tables.spans import flat
from corgipile.tables.table import fixed_field, type_code
from corgipile.tables.values import value_type

__all__ = ["FEATURE_RULE", "Buffer", "Field", "inner"]

FEATURE_RULE = "feature columns must hold numbers or lists of numbers of one length"
SlotArray = npt.NDArray[np.int32]
Arrays = tuple[npt.NDArray[np.generic], ...]
MIN_SLACK = 4 << 20  # bytes above the limit that all workers together may take
Numbered = range | npt.NDArray[np.int64]  # the row numbers of a batch


def inner(name: str) -> str:
    """Return a buffer array's name that no stored column can have: Arrow's names are UTF-8."""
    return f"\udc00{name}"


class Field:
    """A fixed-width column of the buffer: its dtype and row shape.

    Args:
        name: Its name.
        sources: Stored columns, which lie side by side in a row.
        dtype: Number type.
        shape: Shape of a row.
        widths: Numbers per row of each source; None: equal widths.

    Attributes:
        items: Numbers in a row.
        row_bytes: Bytes of a row.
    """

    __slots__ = ("begins", "dtype", "items", "name", "row_bytes", "shape", "sources", "widths")

    def __init__(
        self,
        name: str,
        sources: Sequence[str],
        dtype: np.dtype[np.generic],
        shape: tuple[int, ...],
        widths: Sequence[int] | None = None,
    ) -> None:
        self.name, self.sources, self.dtype, self.shape = name, tuple(sources), dtype, shape
        self.items = prod(shape)
        self.row_bytes = self.items * int(dtype.itemsize)
        self.widths = tuple(widths or [self.items // len(self.sources)] * len(self.sources))
        self.begins = tuple(accumulate(self.widths[:-1], initial=0))


class Buffer:
    """Holds buffered rows, by slot; varlen columns stay in the record batches that were read.

    ``workers`` share the slack above the ``limit`` of bytes; ``make`` allocates the bytes of an array.
    """

    def __init__(
        self,
        slots: int,
        fields: Sequence[Field],
        varlen: Mapping[str, pa.DataType],
        limit: int | None = None,
        workers: int = 1,
        make: Make = np.empty,
    ) -> None:
        self.slots, self.limit, self._workers = slots, limit, workers
        self.fields = {field.name: field for field in fields}
        self.varlen = Varlen(slots, varlen, limit)
        try:
            self._arrays = {field.name: _aligned(slots, field, make) for field in fields}
        except (MemoryError, ValueError):  # NumPy raises ValueError for sizes beyond the address space
            size = format_bytes(sum(slots * field.row_bytes for field in fields))
            raise BudgetTooSmall(f"the machine has no memory for a buffer of {slots} rows, {size}") from None
        self._columns, self._row_bytes = tuple(self._arrays.values()), np.array([field.row_bytes for field in fields])

    @property
    def nbytes(self) -> int:
        """Return the bytes of arrays and of record batches still in use."""
        return sum(array.nbytes for array in self._arrays.values()) + self.varlen.nbytes

    @property
    def most(self) -> int:
        """Return the largest number of bytes of variable-length rows; above the limit, since fits use a mean size."""
        limit = self.limit or 0
        return limit + max(limit // 8, MIN_SLACK // self._workers)

    def dense(self, name: str) -> npt.NDArray[np.generic]:
        """Return the array of a fixed-width column, [slots, *row shape]; steps read rows in place."""
        return self._arrays[name]

    def ragged(self, name: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return address and length of each slot's row in a column of number lists.

        Returns:
            uint64[slots], address of the first element; int64[slots], elements. Valid while the row is buffered.
        """
        return self.varlen.span(name)

    def put(self, batch: pa.RecordBatch, into: SlotArray, numbered: Numbered) -> None:
        """Put the rows of a batch, which have these row numbers, into slots; -1 drops a row."""
        for field in self.fields.values():
            for index, source in enumerate(field.sources):
                self._put_dense(field, index, batch.column(source), into, numbered)
        if self.varlen:
            self.varlen.put(batch, into)

    def _put_dense(self, field: Field, index: int, column: pa.Array, into: SlotArray, numbered: Numbered) -> None:
        values = numbers(column, field, index, numbered)
        castable = (
            type_code(values.dtype) >= 0 and values.dtype != np.float16 and field.dtype in (np.float32, np.float64)
        )
        if values.dtype != field.dtype and not castable:
            values = values.astype(field.dtype)
        code, to, target = type_code(values.dtype), type_code(field.dtype), self._arrays[field.name]
        if code < 0 or to < 0:
            filled = into >= 0
            begin = field.begins[index]
            target.reshape(self.slots, -1)[into[filled], begin : begin + values.shape[1]] = values[filled]
            return
        items = values.shape[1]
        at = field.begins[index] * field.dtype.itemsize
        _kernel.scatter(
            target, np.ascontiguousarray(values), into,
            at=at, stride=field.row_bytes, items=items, from_type=code, to_type=to,
        )  # fmt: skip

    def gather(self, visit: SlotArray, out: Arrays, at: int) -> None:
        """Copy the rows of all fixed-width columns into arrays from row ``at``, in visiting order."""
        _kernel.gather(out, self._columns, self._row_bytes, visit, at)


def _aligned(slots: int, field: Field, make: Make) -> npt.NDArray[np.generic]:
    size = slots * field.row_bytes
    raw = make((size + 64,), np.dtype(np.uint8))
    start = -raw.ctypes.data % 64
    flat: npt.NDArray[np.generic] = raw[start : start + size].view(field.dtype)
    return flat.reshape((slots, *field.shape))


def numbers(column: pa.Array, field: Field, index: int, numbered: Numbered) -> npt.NDArray[np.generic]:
    """Return a column as a [rows, items] array.

    Raises:
        BadValue: A null.
        RaggedRows: A row of a list column has not the field's number of values.
        BadSchema: Not a column of numbers.
    """
    source, rows, width = field.sources[index], len(column), field.widths[index]
    if (null := null_at(column)) is not None:
        raise NullRow.of(column, null, source, int(numbered[null]))
    if (fixed := fixed_field(column.type)) is not None and not fixed[1]:
        return flat(column).reshape(rows, -1)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lengths = np.diff(flat(column.offsets))
        uneven = np.flatnonzero(lengths != width)
        if uneven.size:
            raise RaggedRows(
                f"row {numbered[int(uneven[0])]} of column {source!r} has {int(lengths[uneven[0]])} numbers, "
                f"{width} are needed: dense features are rows of one length. on_bad= does not cover this; leave others "
                f"out by table.filter(pyarrow.compute.list_value_length(pyarrow.compute.field({source!r})) == {width})"
            )
        column = column.flatten()
    while pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    if not (pa.types.is_boolean(column.type) or fixed_field(column.type) or pa.types.is_decimal(column.type)):
        raise BadSchema(f"column {source!r} must hold numbers, got type {column.type}")
    return flat(column).reshape(rows, -1)


def fields_of(
    schema: pa.Schema,
    columns: Sequence[str],
    casts: Mapping[str, npt.DTypeLike],
    pack: Mapping[str, Sequence[str]],
    widths: Mapping[str, int],
) -> tuple[list[Field], dict[str, pa.DataType]]:
    """Split columns into fixed-width and variable-length ones."""
    fields, varlen = [], {}
    for name in columns:
        sources = pack.get(name, (name,))
        cols = [_fixed(schema.field(source).type, widths.get(source)) for source in sources]
        if cols[0] is None and name not in pack:
            varlen[name] = value_type(schema.field(name).type)
            _check_movable(name, varlen[name])
            continue
        for source, col in zip(sources, cols, strict=True):
            if col is None:
                raise BadSchema(f"feature column {source!r} is {schema.field(source).type}; {FEATURE_RULE}")
            if 0 in col[1]:
                kind = schema.field(source).type
                raise BadSchema(f"column {source!r} is {kind}: its rows are empty; leave it out by columns=[...]")
        fields.append(_field(name, sources, [col for col in cols if col is not None], casts.get(name), name in pack))
    return fields, varlen


def _fixed(kind: pa.DataType, width: int | None) -> tuple[np.dtype[np.generic], tuple[int, ...]] | None:
    """Return a column's dtype and row shape, None for variable-length columns."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_), ()
    if width is not None:
        return np.dtype(kind.value_type.to_pandas_dtype()), (width,)
    return fixed_field(kind)


def _field(name: str, sources: Sequence[str], cols: Sequence[Any], cast: Any, packed: bool) -> Field:
    kinds, shapes = [col[0] for col in cols], [col[1] for col in cols]
    items = [prod(shape) for shape in shapes]
    dtype: np.dtype[np.generic] = np.dtype(cast if cast is not None else kinds[0])
    return Field(name, sources, dtype, (sum(items),) if packed else shapes[0], items)


def _check_movable(name: str, kind: pa.DataType) -> None:
    """Raise BadSchema for types whose rows Arrow cannot select, nested types included."""
    inside, types = [kind], pa.types
    while inside:
        col = inside.pop()
        if types.is_string_view(col) or types.is_binary_view(col) or types.is_run_end_encoded(col):
            raise BadSchema(
                f"column {name!r} is {kind}, whose rows cannot be selected; store plain values, or leave it out "
                "by columns=[...]"
            )
        inside += [col.field(i).type for i in range(col.num_fields)]
