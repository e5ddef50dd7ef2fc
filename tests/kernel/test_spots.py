"""Spots: which rows are looked at, and which of them tell what is in a block, against plain integers in Python."""

import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile import _kernel

HERE = Path(__file__).parent


def placed(rows, row_bytes):
    """Return the spots of a table, by the kernel."""
    count, each, _ = _kernel.spots(rows, row_bytes)
    starts = np.empty(count, np.int64)
    _kernel.spot_rows(rows, count, each, starts)
    return count, each, starts.tolist()


def spread(rows, count, each, vectors, cuts):
    out = np.zeros((len(cuts) - 1, vectors.shape[1]), np.int16)
    _kernel.spots_spread(rows, count, each, np.ascontiguousarray(vectors), np.array(cuts, np.int64), out)
    return out


@given(st.integers(1, 1 << 45), st.sampled_from([1, 8, 40, 116, 300, 3000, 50_000, 5e6]))
@settings(max_examples=200)
def test_spots_are_apart_and_take_little_of_a_large_table(rows, row_bytes):
    count, each, starts = placed(rows, row_bytes)
    shares = [rows * spot // count for spot in range(count + 1)]
    assert 1 <= count <= min(rows, 1 << 16)
    assert 1 <= each <= 256
    assert all(a <= start <= start + each <= b for (a, b), start in zip(pairwise(shares), starts, strict=True))
    assert count * each * row_bytes <= max(16 << 20, rows * row_bytes / 32, row_bytes)
    assert each * row_bytes <= max(16 << 10, row_bytes)


@pytest.mark.parametrize(
    ("rows", "row_bytes", "count", "each"),
    [
        (0, 8, 0, 1),
        (100, 8, 100, 1),  # a small table is looked at as a whole
        (40_960, 40, 2048, 20),
        (36_000_000, 116, 2048, 35),  # one of 4 GB: a page of 2048 places
        (1 << 36, 100, 1 << 16, 40),
        (54_000, 3144, 1067, 5),
        (10_000, 1e5, 312, 1),  # rows of which some are a share of the table
    ],
)
def test_how_many_spots_there_are(rows, row_bytes, count, each):
    assert placed(rows, row_bytes)[:2] == (count, each)


def reference(rows, row_bytes, vectors, cuts):
    """Describe blocks by their spots, or the one nearest to them."""
    count, each, starts = placed(rows, row_bytes)
    middles, found = [start + each // 2 for start in starts], []
    for start, stop in pairwise(cuts):
        inside = [vectors[spot].tolist() for spot, middle in enumerate(middles) if start <= middle < stop]
        if not inside:
            middle = min(start + (stop - start) // 2, rows - 1)
            inside = [vectors[max(spot for spot in range(count) if rows * spot // count <= middle)].tolist()]
        sums = [sum(column) for column in zip(*inside, strict=True)]
        found.append([abs(x) // len(inside) * (1 if x > 0 else -1) for x in sums])
    return found


def drawn(seed):
    rng = np.random.default_rng(seed)
    rows, width = int(rng.integers(1, 300)), int(rng.integers(1, 5))
    row_bytes = float(rng.choice([1, 100, 3e5, 4e6]))
    cuts = [0, *np.sort(rng.integers(0, rows + 1, rng.integers(0, 40))).tolist(), rows]
    return rows, row_bytes, width, cuts


@given(st.integers(0, 1 << 30))
@settings(max_examples=100)
def test_blocks_are_told_by_their_spots(seed):
    rows, row_bytes, width, cuts = drawn(seed)
    count, each, _ = placed(rows, row_bytes)
    vectors = np.random.default_rng(seed).integers(-32768, 32768, (count, width)).astype(np.int16)
    assert spread(rows, count, each, vectors, cuts).tolist() == reference(rows, row_bytes, vectors, cuts)


def test_spots_under_sanitizers(sanitized):
    cases = [drawn(seed) for seed in range(80)] + [(1 << 45, 1e3, 2, [0, 5, 1 << 44, 1 << 45])]
    packed, expected = [], []
    for rows, row_bytes, width, cuts in cases:
        packed.append(struct.pack("<3qd", rows, width, len(cuts) - 1, row_bytes) + np.array(cuts, "<i8").tobytes())
        count, each, starts = placed(rows, row_bytes)
        made = (np.arange(count * width, dtype=np.uint64) * np.uint64(2654435761) >> np.uint64(7)).astype(np.int16)
        blocks = spread(rows, count, each, made.reshape(count, width), cuts)
        expected += [count, each, *starts[:: 1 + count // 50], *blocks.ravel().tolist()]
    assert sanitized((HERE / "spots.c").read_text(), packed) == expected


def test_arguments_that_do_not_fit():
    one, cuts, out = np.zeros((2, 1), np.int16), np.array([0, 10]), np.zeros((1, 1), np.int16)
    for rows, count, each in ((10, 6, 2), (-1, 0, 1), (10, 2, 0), (10, -1, 1)):
        with pytest.raises(ValueError, match="must fit"):
            _kernel.spots_spread(rows, count, each, one, cuts, out)
    for vectors, edges, found in ((one[:1], cuts, out), (one, np.array([0, 9]), out), (one, cuts, out[:0])):
        with pytest.raises(ValueError, match="must have matching shapes"):
            _kernel.spots_spread(10, 2, 1, vectors, edges, found)
    with pytest.raises(ValueError, match="one number per spot"):
        _kernel.spot_rows(10, 2, 1, np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="-1 rows"):
        _kernel.spots(-1, 8)
