"""Which requests bring some byte ranges: near ones together, where the bytes between cost less than a request.

A request waits for its answer ``LATENCY`` seconds, in which its share of the line could have brought
``LATENCY * SHARE`` bytes (the defaults are those of S3 in its own region or near it; a store that answers faster is
measured, and a gap then costs more than a request sooner). So a gap up to that size is read over, the least ones first,
as long as no more than ``WASTE`` of all bytes are gaps, or ``TINY`` a range if that is more. Gaps up to ``LEAST_GAP``
are always read over.
"""

from typing import NamedTuple

import numpy as np

from corgipile.stores.ranges import IntArray

__all__ = ["Requests", "plan"]

SHARE = 16e6  # bytes a second of one of the requests that are on their way
LATENCY = 0.05  # seconds, until it is measured
LEAST_GAP, MOST_GAP = 4 << 10, 1 << 20
WASTE = 1 / 16
TINY = 1 << 10
PART = 8 << 20  # bytes of a request at most: more are asked for by several
LEAST_PART = 1 << 20


class Requests(NamedTuple):
    """Requests, and which ranges each of them brings.

    Attributes:
        starts: First byte of each request.
        stops: Byte after the last.
        pieces: int64[n, 4]: request, offset in the object, bytes, place in the output; ordered by request.
        firsts: int64[requests + 1]: the first piece of each request.
    """

    starts: IntArray
    stops: IntArray
    pieces: IntArray
    firsts: IntArray


def plan(offsets: IntArray, lengths: IntArray, to: IntArray, latency: float | None = None) -> Requests:
    """Plan the requests for some ranges.

    Args:
        offsets: Where they begin.
        lengths: Their bytes; those without any need no request.
        to: Where they go.
        latency: Seconds until an answer begins, where that is known.

    Example:
        >>> ranges = np.array([0, 100, 5_000_000]), np.array([50, 50, 10_000_000]), np.array([0, 50, 100])
        >>> found = plan(*ranges)
        >>> list(zip(found.starts.tolist(), found.stops.tolist()))
        [(0, 150), (5000000, 10000000), (10000000, 15000000)]
    """
    kept = np.flatnonzero(lengths > 0)
    order = kept[np.argsort(offsets[kept], kind="stable")]
    begins, ends, places = offsets[order], offsets[order] + lengths[order], to[order]
    if not len(begins):
        none = np.zeros(0, np.int64)
        return Requests(none, none, np.zeros((0, 4), np.int64), np.zeros(1, np.int64))
    reach = np.maximum.accumulate(ends)
    joined = _joined(begins, ends, reach, latency)
    fresh = np.append(0, np.flatnonzero(~joined) + 1)
    firsts, lasts = begins[fresh], reach[np.append(fresh[1:] - 1, len(begins) - 1)]
    return _split(firsts, lasts, np.repeat(np.arange(len(fresh)), np.diff(np.append(fresh, len(begins)))),
                  begins, ends, places)  # fmt: skip


def _joined(
    begins: IntArray, ends: IntArray, reach: IntArray, latency: float | None
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Say of each range but the first whether it is read with those before it."""
    gaps = begins[1:] - reach[:-1]
    limit = int(min(max((LATENCY if latency is None else min(latency, LATENCY * 4)) * SHARE, LEAST_GAP), MOST_GAP))
    near = gaps <= limit
    wasted = np.maximum(gaps, 0)
    choosable = np.flatnonzero(near & (wasted > LEAST_GAP))
    if len(choosable):
        room = int(np.maximum(WASTE * (ends - begins), TINY).sum())
        cheapest = choosable[np.argsort(wasted[choosable], kind="stable")]
        near[cheapest[np.cumsum(wasted[cheapest]) > room]] = False
    return np.asarray(near)


def _split(
    firsts: IntArray, lasts: IntArray, run: IntArray, begins: IntArray, ends: IntArray, places: IntArray
) -> Requests:
    """Divide runs that are too long into even requests, and pieces that lie in several of these."""
    counts = np.maximum(1, -(-(lasts - firsts) // PART))
    sizes = -(-(lasts - firsts) // counts)
    base = np.cumsum(counts) - counts
    inside = np.arange(int(counts.sum())) - np.repeat(base, counts)
    starts = np.repeat(firsts, counts) + inside * np.repeat(sizes, counts)
    stops = np.minimum(starts + np.repeat(sizes, counts), np.repeat(lasts, counts))
    low = (begins - firsts[run]) // sizes[run]
    high = (ends - 1 - firsts[run]) // sizes[run]
    each = high - low + 1
    which = np.repeat(np.arange(len(begins)), each)
    request = np.repeat(base[run] + low, each) + np.arange(len(which)) - np.repeat(np.cumsum(each) - each, each)
    at = np.maximum(begins[which], starts[request])
    length = np.minimum(ends[which], stops[request]) - at
    pieces = np.stack([request, at, length, places[which] + at - begins[which]], axis=1)
    pieces = pieces[np.argsort(request, kind="stable")]
    return Requests(starts, stops, pieces, np.searchsorted(pieces[:, 0], np.arange(len(starts) + 1)))
