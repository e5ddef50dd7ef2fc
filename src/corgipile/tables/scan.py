"""One way to read some columns of a whole table once, in little memory."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from corgipile.arrow_memory import give_back
from corgipile.tables.io.remote import in_turn
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import Table, even_cuts

__all__ = ["scan"]

READ_BYTES = 1 << 20  # at a time; what is made of them takes some times as much


def scan(table: Table, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a table as they lie, about a megabyte at a time, each part with the number of its first row.

    Example:
        >>> from corgipile.tables import open
        >>> [(start, batch.num_rows) for start, batch in scan(open(pa.table({"x": range(200_000)})), ["x"])]
        [(0, 131072), (131072, 68928)]
    """
    if not len(table):
        return
    step = max(1, int(READ_BYTES / max(1.0, row_bytes(table, columns))))
    runs = list(pairwise(even_cuts(len(table), step).tolist()))
    batches = in_turn(table, lambda start, stop: table.read(start, stop, columns), runs)
    for (start, _), batch in zip(runs, batches, strict=True):
        yield start, batch
        give_back()
