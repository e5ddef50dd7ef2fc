"""Sequential scans of columns in little memory."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from corgipile.arrow_memory import give_back
from corgipile.tables.io.column import PlacedColumn
from corgipile.tables.io.remote import in_turn, is_remote
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.spans import array_of
from corgipile.tables.table import Table, even_cuts

__all__ = ["scan", "scan_column"]

READ_BYTES = 1 << 20  # read at a time; decoded rows take a few times as much
MAX_WHOLE_BYTES = 8 << 20  # of a table in memory whose batches are not cut
MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES = 32, 8 << 20  # runs of a remote column, and their bytes
PLACED_BYTES = 2 << 20  # of a fixed-width column read in place at a time


def scan(table: Table, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a table in stored order, about a megabyte at a time, with the number of the first row.

    A small table in memory yields its record batches uncut.

    Example:
        >>> from corgipile.tables import open
        >>> [(start, batch.num_rows) for start, batch in scan(open({"x": np.zeros(1_100_000)}), ["x"])][-2:]
        [(917504, 131072), (1048576, 51424)]
    """
    if not len(table):
        return
    if table.nbytes <= MAX_WHOLE_BYTES and (runs := table.memory_runs(len(table))) is not None:
        yield from ((start, table.read(start, stop, columns)) for start, stop in runs)
        return
    step = max(1, int(READ_BYTES / max(1.0, row_bytes(table, columns))))
    runs = list(pairwise(even_cuts(len(table), step).tolist()))
    batches = in_turn(table, lambda start, stop: table.read(start, stop, columns), runs)
    for (start, _), batch in zip(runs, batches, strict=True):
        yield start, batch
        if len(runs) > 1:
            give_back()


def scan_column(table: Table, name: str) -> Iterator[tuple[int, pa.Array]]:
    """Yield the parts of a scalar column as `scan` does; fixed-width numbers are read in place.

    Example:
        >>> from corgipile.tables import open
        >>> [(start, part.to_pylist()) for start, part in scan_column(open(pa.table({"x": [3, 1]})), "x")]
        [(0, [3, 1])]
    """
    layout = table.layout([name]) if len(table) else None
    if is_remote(table):  # objects and row groups are read concurrently
        cuts = table.cuts(1 if table.units([name]) is not None else PLACED_BYTES // 64)
        runs, widest = list(pairwise(cuts.tolist())), int(max(np.diff(cuts), default=0)) * row_bytes(table, [name])
        max_runs = max(2, min(MAX_IN_FLIGHT, int(MAX_IN_FLIGHT_BYTES / max(1.0, widest))))
        batches = in_turn(table, lambda start, stop: table.read(start, stop, [name]), runs, max_runs)
        yield from ((start, batch.column(0)) for (start, _), batch in zip(runs, batches, strict=True))
        return
    if layout is None:
        for start, batch in scan(table, [name]):
            yield start, batch.column(0)
        return
    runs = list(pairwise(even_cuts(len(table), PLACED_BYTES // layout.columns[name].width).tolist()))
    column = PlacedColumn(layout, name)
    for at, (start, stop) in enumerate(runs):
        for run in runs[at + 1 : at + 2]:
            column.hint(*run)
        yield start, array_of(column.read(start, stop))
