"""Tables for training: nulls in features become NaN."""

import math
import operator
from collections.abc import Sequence

import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.features.choose import is_number, item_of
from corgipile.linear.features import Features
from corgipile.linear.sparse import NULL
from corgipile.tables.table import Table
from corgipile.tables.wrapper import Wrapper

__all__ = ["NullsAsNaN"]


class NullsAsNaN(Wrapper):
    """A table whose null features read as NaN, so that the learner handles both the same way.

    So do labels with ``skip``.

    Example:
        >>> from corgipile.linear.features import find_inputs
        >>> from corgipile.tables import open
        >>> rows = open(pa.table({"x": [1, None], "label": [1, 0]}))
        >>> NullsAsNaN(rows, find_inputs(rows, None, "label"), "label").read(0, 2).to_pydict()
        {'x': [1.0, nan], 'label': [1, 0]}
    """

    def __init__(self, table: Table, inputs: Features, *labels: str | None, skip: bool = False) -> None:
        super().__init__(table)
        self._inputs, self._features = inputs, frozenset(inputs.columns)
        self._widths = dict(zip(inputs.columns, inputs.widths, strict=False))  # empty for a single list column
        self.schema = table.schema
        self._fill_labels = {name for name in labels if skip and name is not None}
        self._widened = {name for name in self._fill_labels if not pa.types.is_floating(table.schema.field(name).type)}
        for name in self._widened:
            self.schema = self.schema.set(self.schema.get_field_index(name), pa.field(name, pa.float64()))

    def keeps(self, column: str) -> bool:
        """Return whether the nulls of a column stay."""
        return column not in self._features and column not in self._fill_labels

    def _in_place(self, columns: Sequence[str]) -> list[str]:
        return list(columns)  # columns that lie in place have no nulls

    def _assemble(self, batch: pa.RecordBatch, names: list[str], rows: object) -> pa.RecordBatch:
        arrays = [self._fill(name, array) for name, array in zip(names, batch.columns, strict=True)]
        if all(map(operator.is_, arrays, batch.columns)):
            return batch
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _fill(self, name: str, array: pa.Array) -> pa.Array:
        if name in self._widened:
            array = array.cast(pa.float64(), safe=False)
        if self.keeps(name):
            return array
        if item_of(array.type) is None:
            return _numbers(array)
        missing = NULL if self._inputs.sparse and name == self._inputs.columns[0] else math.nan
        return _lists(array, missing, 1 if self._inputs.sparse else self._widths.get(name, self._inputs.width))


def _numbers(array: pa.Array, missing: float = math.nan) -> pa.Array:
    """Replace nulls by a number."""
    if not array.null_count:
        return array
    if not math.isnan(missing):  # an index column
        return pc.fill_null(array, pa.scalar(missing, array.type))
    kind = pa.float32() if pa.types.is_float16(array.type) else array.type
    kind = kind if pa.types.is_floating(kind) else pa.float64()
    return pc.fill_null(array.cast(kind, safe=False), pa.scalar(missing, kind))


def _lists(array: pa.Array, missing: float, width: int) -> pa.Array:
    """Replace nulls in lists by a number, and null lists by ``width`` such numbers."""
    inner = array.type.value_type
    if not is_number(inner):
        return array  # other checks refuse lists of lists and non-numbers
    if array.null_count:
        rows = [[missing] * width if row is None else row for row in array.to_pylist()]
        keeps_type = not math.isnan(missing) or pa.types.is_floating(inner)
        array = pa.array(rows, array.type if keeps_type else _with_items(array.type, pa.float64()))
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
