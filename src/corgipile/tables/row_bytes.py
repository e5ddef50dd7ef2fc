"""Sizes of rows in memory: exact for fixed-width columns, else estimated once from a sample."""

from collections.abc import Sequence
from math import prod
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from corgipile.tables.table import Table, check_columns, fixed_field, is_wide
from corgipile.tables.values import values

__all__ = ["fixed_row_bytes", "row_bytes"]

RUN_BYTES = 1 << 20
SAMPLE_BYTES = 1 << 20
SAMPLE_ROWS, SAMPLE_STEP = 64, 4
_known: "WeakKeyDictionary[Table, dict[tuple[str, ...], float]]" = WeakKeyDictionary()


def fixed_row_bytes(schema: pa.Schema) -> int:
    """Return the bytes of one row in memory, 0 if rows differ in length.

    Example:
        >>> fixed_row_bytes(pa.schema({"x": pa.list_(pa.float32(), 3)})), fixed_row_bytes(pa.schema({"x": pa.string()}))
        (12, 0)
    """
    bits = 0
    for field in schema:
        kind, times = field.type, 1
        while pa.types.is_fixed_size_list(kind):
            kind, times = kind.value_type, times * kind.list_size
        try:
            bits += kind.bit_width * times
        except ValueError:
            return 0
    return max(1, bits // 8)


def row_bytes(table: Table, columns: Sequence[str] | None = None) -> float:
    """Return the bytes of one row in memory: exact for fixed-width columns, else from a sample of rows.

    Each table is sampled once, before workers are forked.

    Example:
        >>> from corgipile.tables import open
        >>> row_bytes(open(pa.table({"label": [0, 1, 1]})), ["label"])
        8.0
    """
    exact, varying = 0.0, []
    for name in check_columns(table.schema, columns):
        place = fixed_field(table.schema.field(name).type)
        if place is None:
            varying.append(name)
        else:
            exact += place[0].itemsize * float(prod(place[1]))
    if not varying or not len(table):
        return exact
    known = _known.setdefault(table, {})
    if (key := tuple(varying)) not in known:
        known[key] = _sample_bytes(table, varying)
    return exact + known[key]


def _sample_bytes(table: Table, varying: list[str]) -> float:
    """Return the mean bytes of columns of varying length in a row."""
    if (units := table.units(varying)) is not None:
        return float(units.each)
    size = min(SAMPLE_ROWS, len(table))
    if table.row_sizes(np.array([0]), varying) is None:  # known sizes spare reading long rows
        first = float(values(table.read(0, 1, varying)).nbytes)
        size = min(size, int(SAMPLE_BYTES / max(1.0, first)) + 1)
    starts = sorted({0, (len(table) - size) // 2, len(table) - size})
    runs = [(start, _sampled_end(table, start, start + size, varying)) for start in starts]
    return sum(_run_bytes(table, *run, varying) / (run[1] - run[0]) for run in runs) / len(runs)


def _sampled_end(table: Table, start: int, stop: int, columns: list[str]) -> int:
    """Return the end of a run, sooner where rows turn out to be long, unless the table knows their sizes."""
    if table.row_sizes(np.array([start]), columns) is not None:
        return stop
    end, total = start, 0
    while end < stop and total < SAMPLE_BYTES:
        begin, end = end, min(stop, end + (SAMPLE_STEP if end > start else 1))
        total += int(values(table.read(begin, end, columns)).nbytes)
    return end


def _run_bytes(table: Table, start: int, stop: int, columns: list[str]) -> int:
    """Return the bytes of a run in memory; for long runs from the sizes alone, if the table knows them."""
    sizes = table.row_sizes(np.arange(start, stop), columns)
    if sizes is None or sizes.sum() < RUN_BYTES:
        return int(values(table.read(start, stop, columns)).nbytes)
    offsets = sum(8 if is_wide(table.schema.field(name).type) else 4 for name in columns)
    return int(sizes.sum()) + (stop - start) * offsets
