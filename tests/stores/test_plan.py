"""Plans of requests: they bring every byte to its place, and few others."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corgipile.stores.plan import LEAST_GAP, MOST_GAP, PART, TINY, WASTE, plan

SIZES = st.sampled_from([0, 1, 100, 5_000, 70_000, 900_000, 20_000_000])
RANGES = st.lists(st.tuples(st.integers(0, 60_000_000), SIZES), max_size=30)


@given(RANGES, st.sampled_from([None, 0.0005, 0.05, 3.0]))
def test_every_byte_comes_to_its_place(ranges, latency):
    offsets, lengths = (np.array([one[i] for one in ranges], np.int64) for i in (0, 1))
    to = np.cumsum(lengths) - lengths
    found = plan(offsets, lengths, to, latency)
    assert ((found.stops > found.starts) & (found.stops - found.starts <= PART)).all()
    filled = []
    for request, at, length, place in found.pieces.tolist():
        assert found.starts[request] <= at < at + length <= found.stops[request]
        filled.append((place, at, length))
    assert found.firsts.tolist() == np.searchsorted(found.pieces[:, 0], range(len(found.starts) + 1)).tolist()
    wanted = []
    for offset, length, place in zip(offsets.tolist(), lengths.tolist(), to.tolist(), strict=True):
        wanted += [(place, offset, length)] if length else []
    assert joined(filled) == joined(wanted)


def joined(pieces):
    """Join pieces that follow each other, in the object as in the output."""
    made = []
    for place, at, length in sorted(pieces):
        if made and (made[-1][0] + made[-1][2], made[-1][1] + made[-1][2]) == (place, at):
            made[-1] = (*made[-1][:2], made[-1][2] + length)
        else:
            made.append((place, at, length))
    return made


@given(st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(1, 3_000_000)), min_size=1, max_size=30))
def test_little_is_read_in_vain(steps):
    gaps, lengths = (np.array([one[i] for one in steps], np.int64) for i in (0, 1))
    offsets = np.cumsum(gaps + lengths) - lengths
    found = plan(offsets, lengths, np.cumsum(lengths) - lengths)
    wasted = int((found.stops - found.starts).sum() - lengths.sum())
    assert wasted <= np.maximum(WASTE * lengths, TINY).sum() + LEAST_GAP * len(steps)
    between = found.starts[1:] - found.stops[:-1]
    assert ((between == 0) | (between > LEAST_GAP)).all()


def test_far_ranges_are_asked_for_apart_and_near_ones_together():
    offsets, lengths = np.arange(10) * (MOST_GAP + 101), np.full(10, 100)
    assert len(plan(offsets, lengths, offsets).starts) == 10
    offsets, lengths = np.arange(10) * 1_100_000, np.full(10, 1_080_000)
    assert len(plan(offsets, lengths, offsets).starts) == 2  # 8 MB each at most
    assert len(plan(offsets, lengths, offsets, latency=0.0005).starts) == 10  # a gap of 20 KB costs more than a request
