"""Block boundaries at runs of pages of a file."""

from collections.abc import Iterable, Sequence

import numpy as np

from corgipile.tables.table import ColumnLayout, IntArray, Table

__all__ = ["run_cuts", "varlen_cuts"]


def run_cuts(table: Table, columns: Sequence[str], run_bytes: int) -> IntArray:
    """Cut a table into the rows of each run of pages; a row belongs to the run of its first byte.

    One request reads each run, from the first byte of its first row to the end of its last; only the page of the last
    row's end is read twice. The widest column decides. Tables without a layout (compressed, or in memory) are cut at
    their natural units.

    Args:
        table: The table; its method ``run_cuts(columns, run_bytes)`` takes precedence.
        columns: The columns that are read.
        run_bytes: Bytes of a run of pages.

    Returns:
        int64[runs + 1], row numbers from 0 to the number of rows.

    Example:
        >>> from corgipile.tables import NumpyTable
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:  # 128 bytes of header, then rows of 100 bytes
        ...     np.save(f"{folder}/x.npy", np.zeros((300, 25), np.float32))
        ...     run_cuts(NumpyTable(f"{folder}/x.npy"), ["features"], 8192).tolist()
        [0, 81, 163, 245, 300]
    """
    own = getattr(table, "run_cuts", None)
    if own is not None:
        return np.asarray(own(columns, run_bytes))
    layout = table.layout(columns) if columns and len(table) else None
    if layout is None:
        return table.cuts(max(1, run_bytes * len(table) // max(table.nbytes, 1)))
    return _fixed_cuts(max(layout.columns.values(), key=lambda column: column.width), run_bytes)


def _fixed_cuts(column: ColumnLayout, run_bytes: int) -> IntArray:
    """Cut fixed-width rows: run k begins at the first row that begins at or after ``k * run_bytes``."""
    starts, width = column.starts, column.width
    before = column.offsets // run_bytes  # the run of each piece's first row, and of its last
    last = (column.offsets + (np.diff(starts) - 1) * width) // run_bytes
    counts = last - before
    piece = np.repeat(np.arange(len(counts)), counts)
    run = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + before[piece] + 1
    inside = starts[piece] - (column.offsets[piece] - run * run_bytes) // width
    joined = (column.files[1:] == column.files[:-1]) & (before[1:] == last[:-1])
    return np.unique(np.concatenate([inside, starts[1:-1][~joined], starts[[0, -1]]]))


def varlen_cuts(begins: Iterable[IntArray], run_bytes: int) -> IntArray:
    """Cut rows of varying length by their first bytes.

    Args:
        begins: The first byte of each row, ascending, in any number of parts.
        run_bytes: Bytes of a run of pages.

    Example:
        >>> varlen_cuts([np.array([0, 30, 90]), np.array([130, 150, 220])], 100).tolist()
        [0, 3, 5, 6]
    """
    cuts, rows, last = [np.zeros(1, np.int64)], 0, None
    for part in begins:
        runs = part // run_bytes
        fresh = np.flatnonzero(np.diff(runs, prepend=runs[:1] if last is None else [last]))
        cuts.append(fresh + rows)
        rows += len(part)
        last = runs[-1] if len(runs) else last
    return np.unique(np.concatenate([*cuts, [rows]]))
