"""What a column looks like, block by block."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSchema
from corgipile.tables.arrow.spans import flat
from corgipile.tables.encoded import is_encoded
from corgipile.tables.io.column import PlacedColumn
from corgipile.tables.io.remote import in_turn, is_remote
from corgipile.tables.table import IntArray, Table, check_columns, even_cuts, type_code

FloatArray = npt.NDArray[np.float64]
RUN_BYTES = 2 << 20
MANY = 32  # runs that are on their way from stores


def sketch(table: Table, cuts: IntArray, column: str) -> FloatArray:
    """Describe each block by one number from a column, by reading only this column once: alike blocks get near ones.

    Integers and booleans of at most 1024 values, and floats of at most 64 whole ones, are classes: of two, the number
    is the share of the second; of more, the place of the dominant one and half its share. Other columns give their
    mean (``kernel/plan/sketch.h``). What is NaN, infinite or null counts as the value before it: which rows those
    are is for whoever reads them to mind.

    Args:
        table: The table.
        cuts: Block boundaries.
        column: A scalar column of numbers.

    Returns:
        float64[blocks]; 0 for a block without rows.

    Raises:
        BadSchema: The column holds no scalars.

    Example:
        >>> from corgipile.tables import open
        >>> table = open(pa.table({"label": [0, 0, 1, 1, 1, 0]}))
        >>> sketch(table, table.cuts(3), "label").round(2).tolist()
        [0.33, 0.67]
    """
    check_columns(table.schema, [column])
    kind = table.schema.field(column).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise BadSchema(f"column {column!r} is {kind}; a column of numbers is needed, one a row")
    cuts = np.ascontiguousarray(cuts, np.int64)
    if not len(cuts) or cuts[0] != 0 or cuts[-1] != len(table) or (np.diff(cuts) < 0).any():
        raise BadArgument(f"cuts must run from 0 to {len(table)}, got {cuts[:1].tolist()} to {cuts[-1:].tolist()}")
    tally = _kernel.sketch_new(cuts, pa.types.is_floating(kind))
    last = 0.0
    for found in in_turn(table, _reader(table, column), pairwise(_runs(table, column).tolist()), MANY):
        values, last = _steady(found, last)
        _kernel.sketch_add(tally, values, type_code(values.dtype))
    sketched = np.empty(len(cuts) - 1)
    _kernel.sketch_values(tally, sketched)
    return sketched


def _runs(table: Table, column: str) -> IntArray:
    """Cut a table into what is read of it at a time: of one in stores by objects and row groups, many at a time."""
    if not is_remote(table):
        return even_cuts(len(table), RUN_BYTES // 8)
    return table.cuts(1 if is_encoded(table, [column]) else RUN_BYTES // 64)


def _steady(values: npt.NDArray[Any], last: float) -> tuple[npt.NDArray[Any], float]:
    """Put the number before it in place of each that is missing, so that it tells nothing new; return the last one."""
    if values.dtype.kind == "f" and not (good := np.isfinite(values)).all():
        at = np.maximum.accumulate(np.where(good, np.arange(len(values)), -1))
        values = np.where(at < 0, values.dtype.type(last), values[at])
    return values, float(values[-1]) if len(values) else last


def _reader(table: Table, column: str) -> Callable[[int, int], npt.NDArray[Any]]:
    """Return what reads numbers of a column: straight from where they lie, if they have a fixed place."""
    layout = table.layout([column]) if len(table) else None
    if layout is not None:
        located = PlacedColumn(layout, column)
        return lambda start, stop: _native(located.read(start, stop))
    return lambda start, stop: _numbers(table.read(start, stop, [column]).column(0))


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    if array.null_count:
        array = array.cast(pa.float64()).fill_null(float("nan"))
    return _native(flat(array))


def _native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers in a type that the kernel reads."""
    if values.dtype == np.float16:
        return values.astype(np.float32)
    return values.view(np.uint8) if values.dtype == np.bool_ else values
