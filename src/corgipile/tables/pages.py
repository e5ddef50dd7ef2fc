"""Block boundaries at runs of pages of a file."""

from collections.abc import Iterable

import numpy as np

from corgipile.tables.layout import ColumnLayout, IntArray, Layout

__all__ = ["layout_cuts", "varlen_cuts"]


def layout_cuts(layout: Layout, run_bytes: int) -> IntArray:
    """Cut at runs of pages by the widest column of a layout; see `Table.run_cuts`.

    Example:
        >>> column = ColumnLayout(np.dtype("f4"), (25,), np.array([0, 300]), np.zeros(1, np.int32), np.array([128]))
        >>> layout_cuts(Layout(("x.npy",), {"features": column}), 8192).tolist()
        [0, 81, 163, 245, 300]
    """
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
