"""Planning of requests for byte ranges: close ranges are joined if the bytes between cost less than a request.

A request waits ``LATENCY`` seconds for its answer, in which its share of the bandwidth could bring ``LATENCY *
REQUEST_RATE`` bytes. The defaults are those of S3 in or near its own region; faster stores are measured, and smaller
gaps then end a request. Gaps up to that size are read over, the smallest first, while gaps make up at most ``WASTE`` of
all bytes, or ``TINY`` per range if that is more. Gaps up to ``LEAST_GAP`` are always read over.
"""

from typing import NamedTuple

import numpy as np

from corgipile.stores.ranges import IntArray

__all__ = ["Requests", "plan"]

REQUEST_RATE = 16e6  # bytes per second of one of the requests in flight
LATENCY = 0.05  # seconds, until it is measured
LEAST_GAP, MOST_GAP = 4 << 10, 1 << 20
WASTE = 1 / 16
TINY = 1 << 10
PART = 8 << 20  # most bytes of a request: larger ones are split
LEAST_PART = 1 << 20


class Requests(NamedTuple):
    """Requests, and the ranges that each of them brings.

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
        offsets: Their offsets.
        lengths: Their bytes; empty ranges need no request.
        to: Their places in the output.
        latency: Seconds until an answer begins, if known.

    Example:
        >>> ranges = np.array([0, 100, 5_000_000]), np.array([50, 50, 10_000_000]), np.array([0, 50, 100])
        >>> found = plan(*ranges)
        >>> list(zip(found.starts.tolist(), found.stops.tolist()))
        [(0, 150), (5000000, 10000000), (10000000, 15000000)]
    """
    nonempty = np.flatnonzero(lengths > 0)
    order = nonempty[np.argsort(offsets[nonempty], kind="stable")]
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
    """Return for each range except the first whether it is joined with the previous ones."""
    gaps = begins[1:] - reach[:-1]
    limit = int(
        min(max((LATENCY if latency is None else min(latency, LATENCY * 4)) * REQUEST_RATE, LEAST_GAP), MOST_GAP)
    )
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
    """Split runs that are too long into even requests, and pieces across them."""
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
