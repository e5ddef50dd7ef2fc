"""Division of a step into parts that bound the bytes in flight from a store."""

from typing import NamedTuple

import numpy as np

from corgipile.loader.buffer import SlotArray
from corgipile.orders.order import Step
from corgipile.tables.table import IntArray

__all__ = ["Part", "divide"]


class Part(NamedTuple):
    """Some rows of a step.

    Attributes:
        extents: int64[k, 2], runs of rows, ascending.
        into: int32[rows], buffer slot of each row.
        nbytes: Bytes in flight, gaps between runs included.
    """

    extents: IntArray
    into: SlotArray
    nbytes: int


def divide(step: Step, row_bytes: float, most: int, between: int, *, whole: bool = False) -> list[Part]:
    """Divide a step into parts of about equal bytes, neighbouring rows together; long runs are cut evenly.

    Args:
        step: The step.
        row_bytes: Bytes of a row.
        most: Bytes of a part; it may have half as many more, or twice as many if it has several runs.
        between: Largest gap in bytes between two runs that is read over.
        whole: Do not cut runs.

    Example:
        >>> step = Step(np.array([[50, 60], [0, 30]]), np.arange(40, dtype=np.int32), np.zeros(0, np.int32))
        >>> [(part.extents.tolist(), part.into[0].item(), part.nbytes) for part in divide(step, 10, 150, 8)]
        [([[0, 15]], 10, 150), ([[15, 30]], 25, 158), ([[50, 60]], 0, 100)]
    """
    order = np.argsort(step.extents[:, 0], kind="stable")
    extents, into = step.extents[order], _sorted(step, order)
    if not len(extents):
        return []
    lengths = extents[:, 1] - extents[:, 0]
    cuts = np.ones(len(extents), np.int64) if whole else np.maximum(1, np.rint(lengths * row_bytes / most)).astype(int)
    run = np.repeat(np.arange(len(extents)), cuts)
    nth = np.arange(len(run)) - np.repeat(np.cumsum(cuts) - cuts, cuts)
    starts = extents[run, 0] + nth * lengths[run] // cuts[run]
    stops = extents[run, 0] + (nth + 1) * lengths[run] // cuts[run]
    gaps = np.append(np.maximum(starts[1:] - stops[:-1], 0), 0) * row_bytes
    costs = (stops - starts) * row_bytes + np.minimum(gaps, between)
    edges = _edges(costs, most)
    runs, rows = np.stack([starts, stops], axis=1), np.append(0, np.cumsum(stops - starts))
    return [
        Part(runs[first:last], into[rows[first] : rows[last]], int(np.ceil(costs[first:last].sum())))
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]


def _sorted(step: Step, order: IntArray) -> SlotArray:
    """Return the slots of a step's rows for its runs in another order."""
    if (order[1:] > order[:-1]).all():
        return step.into
    lengths = step.extents[:, 1] - step.extents[:, 0]
    begins, some = np.cumsum(lengths) - lengths, lengths[order]
    return step.into[np.repeat(begins[order] - np.cumsum(some) + some, some) + np.arange(int(lengths.sum()))]


def _edges(costs: "np.ndarray[tuple[int], np.dtype[np.float64]]", most: int) -> IntArray:
    turn = ((np.cumsum(costs) - costs / 2) // most).astype(np.int64)
    return np.concatenate([[0], np.flatnonzero(np.diff(turn)) + 1, [len(costs)]])
