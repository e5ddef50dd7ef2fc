"""Tables as learners read them: labels given beside the rows, and nulls read as NaN."""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corgipile.errors import BadArgument
from corgipile.features.choose import is_number, item_of
from corgipile.linear.features import Features
from corgipile.linear.sparse import NULL
from corgipile.tables.arrow.spans import array_of
from corgipile.tables.io.files import digest
from corgipile.tables.placed import Placed, placed
from corgipile.tables.table import IntArray, Layout, Table, check_columns
from corgipile.tables.wrapper import Wrapper

__all__ = ["Labelled", "NaNs"]


class Labelled(Wrapper):
    """Puts labels from memory beside the rows of a table, in place of a column of their name if there is one.

    Args:
        table: The rows.
        name: Name of the label column.
        labels: One label a row.

    Raises:
        BadArgument: There are more labels than rows, or fewer.

    Example:
        >>> from corgipile.tables import open
        >>> table = Labelled(open(pa.table({"x": [1.5, 2.5]})), "label", pa.array([1, 0]))
        >>> table.read(0, 2).to_pydict()
        {'x': [1.5, 2.5], 'label': [1, 0]}
    """

    def __init__(self, table: Table, name: str, labels: npt.NDArray[Any]) -> None:
        super().__init__(table)
        if len(labels) != len(table):
            raise BadArgument(f"y has {len(labels)} labels for {len(table)} rows of {table!r}; one for each is needed")
        self._name, self._labels = name, pa.array(labels)
        kept = [column for column in table.schema if column.name != name]
        self.schema = pa.schema([*kept, pa.field(name, self._labels.type)], table.schema.metadata)

    @property
    def fingerprint(self) -> str:
        """Return an identity of rows and labels."""
        labels = np.ascontiguousarray(self._labels.to_numpy(zero_copy_only=False))
        values = blake2b(labels.data, digest_size=16).hexdigest()
        return digest(self.table.fingerprint, self._name, str(labels.dtype), values)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one run of rows with their labels."""
        return self._join(columns, lambda names: self.table.read(start, stop, names), slice(start, stop))

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows with their labels."""
        return self._join(columns, lambda names: self.table.take(rows, names), rows)

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return where columns lie, None where the labels are among them."""
        return None if self._name in check_columns(self.schema, columns) else self.table.layout(columns)

    def _stored(self, columns: Sequence[str]) -> list[str]:
        return [name for name in columns if name != self._name]

    def _join(self, columns: Sequence[str] | None, read: Any, at: Any) -> pa.RecordBatch:
        names = check_columns(self.schema, columns)
        stored = self._stored(names)
        batch: Any = read(stored) if stored else None
        labels = self._labels[at] if isinstance(at, slice) else self._labels.take(array_of(at))
        arrays = [labels if name == self._name else batch.column(name) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([self.schema.field(name) for name in names]))


class NaNs(Wrapper):
    """Reads nulls in features as NaN, so that the learner meets them row by row as it meets NaN.

    Args:
        table: The rows.
        inputs: The features.
        label: The label column; its nulls become NaN too where rows that cannot be learnt from are skipped.
        skip: Whether they are.

    Example:
        >>> from corgipile.linear.features import find_inputs
        >>> from corgipile.tables import open
        >>> rows = open(pa.table({"x": [1, None], "label": [1, 0]}))
        >>> NaNs(rows, find_inputs(rows, None, "label"), "label").read(0, 2).to_pydict()
        {'x': [1.0, nan], 'label': [1, 0]}
    """

    def __init__(self, table: Table, inputs: Features, label: str | None, *, skip: bool = False) -> None:
        super().__init__(table)
        self._inputs, self._features = inputs, frozenset(inputs.columns)
        self.schema = table.schema
        self._label = label if skip and label is not None and not _is_float(table.schema.field(label)) else None
        if self._label is not None:
            at = table.schema.get_field_index(self._label)
            self.schema = table.schema.set(at, pa.field(self._label, pa.float64()))
        self._filled_too = label if skip else None

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one run of rows."""
        return self._filled(self.table.read(start, stop, columns))

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows."""
        return self._filled(self.table.take(rows, columns))

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return where the columns lie: a column with nulls has no fixed place."""
        return self.table.layout(columns)

    def placed(self, columns: Sequence[str]) -> Placed | None:
        """Return where the kernel finds the columns: one with nulls is not found."""
        return placed(self.table, columns)

    def _filled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        arrays = [self._fill(name, array) for name, array in zip(names, batch.columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _fill(self, name: str, array: pa.Array) -> pa.Array:
        if name == self._label:
            array = array.cast(pa.float64(), safe=False)
        if name not in self._features and name != self._filled_too:
            return array
        if item_of(array.type) is None:
            return _numbers(array)
        missing = NULL if self._inputs.sparse and name == self._inputs.columns[0] else math.nan
        return _lists(array, missing, 1 if self._inputs.sparse else self._inputs.width)


def _is_float(column: pa.Field) -> bool:
    return bool(pa.types.is_floating(column.type))


def _numbers(array: pa.Array, missing: float = math.nan) -> pa.Array:
    """Put a number in place of nulls."""
    if not array.null_count:
        return array
    if not math.isnan(missing):  # an index
        return pc.fill_null(array, pa.scalar(missing, array.type))
    kind = pa.float32() if pa.types.is_float16(array.type) else array.type
    kind = kind if pa.types.is_floating(kind) else pa.float64()
    return pc.fill_null(array.cast(kind, safe=False), pa.scalar(missing, kind))


def _lists(array: pa.Array, missing: float, width: int) -> pa.Array:
    """Put a number in place of nulls in lists, and a list of ``width`` of them in place of a null."""
    inner = array.type.value_type
    if not is_number(inner):
        return array  # lists of lists, and what is no number: refused elsewhere
    if array.null_count:
        rows = [[missing] * width if row is None else row for row in array.to_pylist()]
        kind = (
            array.type
            if not math.isnan(missing) or pa.types.is_floating(inner)
            else _with_items(array.type, pa.float64())
        )
        array = pa.array(rows, kind)
    if not array.values.null_count:
        return array
    values = _numbers(array.values, missing)
    if not pa.types.is_fixed_size_list(array.type):
        return type(array).from_arrays(array.offsets, values)
    size = array.type.list_size
    return pa.FixedSizeListArray.from_arrays(values.slice(array.offset * size, len(array) * size), size)


def _with_items(kind: pa.DataType, item: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)
