"""Sketch of a column: one number for each block."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.tables.numbered import Numbered
from corgipile.tables.scan import scan_column
from corgipile.tables.spans import flat
from corgipile.tables.table import IntArray, Table, check_columns, type_code

FloatArray = npt.NDArray[np.float64]
Look = Callable[[int, pa.Array], object]


def sketch(table: Table, cuts: IntArray, column: str, look: Look | None = None) -> FloatArray:
    """Return one number for each block from a column, which is read once; similar blocks have close numbers.

    Integers and booleans with at most 1024 values, and floats with at most 64 integral values, are classes. For two
    classes, the number is the share of the second; for more, the rank of the dominant class and half its share. Other
    columns give their mean (``kernel/plan/sketch.h``). Text and bytes are classes, see `Numbered`; times are numbers.
    NaN, infinity and null count as the previous value.

    Args:
        table: The table.
        cuts: Block boundaries.
        column: A scalar column of numbers, text or times.
        look: Called with the first row number and the values of each part, so that one scan has two uses.

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
    tally = Tally(table, cuts, column)
    for start, part in scan_column(table, column):
        if look is not None:
            look(start, part)
        tally.add(part)
    return tally.values()


class Tally:
    """Computes block sketches during a scan, so that one scan serves several block boundaries.

    Args:
        table: The table.
        cuts: Block boundaries.
        column: A scalar column of numbers, text or times.

    Raises:
        BadSchema: The column holds no scalars.

    Example:
        >>> from corgipile.tables import open
        >>> table = open(pa.table({"label": [0, 0, 1, 1]}))
        >>> tally = Tally(table, table.cuts(2), "label")
        >>> tally.add(pa.array([0, 0, 1, 1]))
        >>> tally.values().tolist()
        [0.0, 1.0]
    """

    def __init__(self, table: Table, cuts: IntArray, column: str) -> None:
        check_columns(table.schema, [column])
        self._numbered = Numbered(column, table.schema.field(column).type)
        cuts = np.ascontiguousarray(cuts, np.int64)
        if not len(cuts) or cuts[0] != 0 or cuts[-1] != len(table) or (np.diff(cuts) < 0).any():
            raise BadArgument(f"cuts must run from 0 to {len(table)}, got {cuts[:1].tolist()} to {cuts[-1:].tolist()}")
        self._blocks, self._last = len(cuts) - 1, 0.0
        self._tally = _kernel.sketch_new(cuts, self._numbered.floating)

    def add(self, part: pa.Array) -> None:
        """Add the values of the next rows."""
        values, self._last = _forward_fill(_numbers(self._numbered.of(part)), self._last)
        _kernel.sketch_add(self._tally, values, type_code(values.dtype))

    def values(self) -> FloatArray:
        """Return the number of each block after all rows have been added."""
        sketched = np.empty(self._blocks)
        _kernel.sketch_values(self._tally, sketched)
        return sketched


def _forward_fill(values: npt.NDArray[Any], last: float) -> tuple[npt.NDArray[Any], float]:
    """Replace each missing number by the previous one, and return the last number too."""
    if values.dtype.kind == "f" and not (good := np.isfinite(values)).all():
        at = np.maximum.accumulate(np.where(good, np.arange(len(values)), -1))
        values = np.where(at < 0, values.dtype.type(last), values[at])
    return values, float(values[-1]) if len(values) else last


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers with a dtype that the kernel reads."""
    if array.null_count:
        array = array.cast(pa.float64()).fill_null(float("nan"))
    values = flat(array)
    if values.dtype == np.float16:
        return values.astype(np.float32)
    return values.view(np.uint8) if values.dtype == np.bool_ else values
